"""A copy of the model that no gradient trains: as it was before training, or following the trained one slowly."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from stsbench.errors import EncoderError
from stsbench.training.modules.backbone import Backbone


class Reference(nn.Module):
    """A copy of a backbone's weights and settings. None of its weights is trained, and nothing it computes has a gradient.

    It is stored in checkpoints with the method that holds it, and not exported.
    """

    def __init__(self, backbone: Backbone, dropout: bool = False) -> None:
        """dropout: the copy's is on whenever this module is in train mode; else never."""
        super().__init__()
        self.backbone = copy.deepcopy(backbone, {id(backbone.tokenizer): backbone.tokenizer}).requires_grad_(False)
        self.dropout = dropout
        self.train()

    def train(self, mode: bool = True) -> Reference:
        """Without dropout stay in eval mode, whatever the method around it does."""
        super().train(mode and self.dropout)
        return self

    def restart(self, backbone: Backbone) -> None:
        """Take the backbone's weights as they are now: where a stage begins."""
        self.backbone.load_state_dict(backbone.state_dict())

    def randomise(self) -> None:
        """New weights for the transformer, as of a model that was never trained."""
        model = self.backbone.model
        fresh = type(model)(copy.deepcopy(model.config)).state_dict()
        names = [*model.state_dict()]
        if strange := [name for name in names if name not in fresh]:
            raise EncoderError(f"a random start is of all weights, and {strange[0]} is an adapter's: set start to copy")
        model.load_state_dict({name: fresh[name] for name in names})

    @torch.no_grad()
    def follow(self, backbone: Backbone, momentum: float) -> None:
        """A step towards the backbone's weights w: momentum * w0 + (1 - momentum) * w, w0 the copy's own."""
        for slow, weight in zip(self.backbone.parameters(), backbone.parameters(), strict=True):
            slow.copy_(slow * momentum + weight * (1 - momentum))

    def states(self, ids: Tensor, mask: Tensor, wanted: tuple[int, ...]) -> list[Tensor]:
        """The hidden states `wanted`, each (n, L, d), as of `Backbone.forward`."""
        with torch.no_grad():
            states: list[Tensor] = self.backbone(ids, mask, wanted)
        return states

    def distance(self, backbone: Backbone) -> Tensor:
        """The sum of (w - w0)^2 over all weights that are trained, w0 the copy's: their gradient pulls them back to it.

        Sources: Li et al. (2018), L2-SP; Kim et al. (2021), SG-OPT.
        """
        pairs = zip(backbone.parameters(), self.backbone.parameters(), strict=True)
        return torch.stack([(weight - start).square().sum() for weight, start in pairs if weight.requires_grad]).sum()
