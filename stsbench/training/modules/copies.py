"""Copies of a backbone: a frozen reference, which keeps its first weights or follows the trained ones as a momentum encoder,
and DiffCSE's discriminator, which reads a sentence vector in place of its first token's embedding."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from stsbench.encoders.forward.passes import attention_mask
from stsbench.errors import EncoderError
from stsbench.training.modules.backbone import Backbone
from stsbench.training.modules.lora import check_whole
from stsbench.training.modules.packed_training import PackedTraining, packable
from stsbench.training.modules.soft_prompt import changed_embeddings

# The module whose output is the first layer's input: ELECTRA and ALBERT project their embeddings to the layers' width first.
_ENTRANCES = ("embeddings_project", "encoder.embedding_hidden_mapping_in", "embeddings")


class Reference(nn.Module):
    """A frozen copy of a backbone. Its weights are not trained, and its results have no gradient.

    It is stored in checkpoints with the method that holds it, and not exported.
    """

    def __init__(self, backbone: Backbone, dropout: bool = False) -> None:
        """Copy `backbone`. dropout: whether the copy has dropout while this module is in train mode."""
        super().__init__()
        self.backbone = copy.deepcopy(backbone, {id(backbone.tokenizer): backbone.tokenizer}).requires_grad_(False)
        self.dropout = dropout
        self.train()

    def train(self, mode: bool = True) -> Reference:
        """Set train or eval mode; a copy without dropout always stays in eval mode."""
        super().train(mode and self.dropout)
        return self

    def restart(self, backbone: Backbone) -> None:
        """Copy the backbone's current weights, at the start of a stage."""
        self.backbone.load_state_dict(backbone.state_dict())

    def randomise(self) -> None:
        """Draw new weights for the transformer, as in a model that was never trained. Raises EncoderError for adapters."""
        model = self.backbone.model
        fresh = type(model)(copy.deepcopy(model.config)).state_dict()
        names = [*model.state_dict()]
        if strange := [name for name in names if name not in fresh]:
            raise EncoderError(f"a random start is of all weights, and {strange[0]} is an adapter's: set start to copy")
        model.load_state_dict({name: fresh[name] for name in names})

    @torch.no_grad()
    def follow(self, backbone: Backbone, momentum: float) -> None:
        """Move the copy's weights w0 towards the backbone's weights w: w0 = momentum * w0 + (1 - momentum) * w."""
        for slow, weight in zip(self.backbone.parameters(), backbone.parameters(), strict=True):
            slow.copy_(slow * momentum + weight * (1 - momentum))

    def states(self, ids: Tensor, mask: Tensor, layers: tuple[int, ...]) -> list[Tensor]:
        """Return the hidden states `layers`, each (n, L, d), as of `Backbone.forward`."""
        with torch.no_grad():
            states: list[Tensor] = self.backbone(ids, mask, layers)
        return states

    def distance(self, backbone: Backbone) -> Tensor:
        """Return the penalty L2-SP, the sum of (w - w0)^2 over the backbone's trainable weights w, w0 the copy's.

        Sources: Li et al. (2018), L2-SP; Kim et al. (2021), SG-OPT.
        """
        if any(isinstance(weight, DTensor) for weight in backbone.parameters()):
            raise EncoderError("FSDP: the distance to the first weights is of all layers at once, and each is sharded by "
                               "itself: set fsdp_auto_wrap_policy to NO_WRAP")
        pairs = zip(backbone.parameters(), self.backbone.parameters(), strict=True)
        return torch.stack([(weight - start).square().sum() for weight, start in pairs if weight.requires_grad]).sum()


class Conditioned(nn.Module):
    """DiffCSE's discriminator: a trainable copy of a backbone's transformer that reads a vector as its first token.

    D(x'', h) of Chuang et al. (2022), DiffCSE. As in their code, h replaces the first token's embedding after the whole
    embedding layer: no position, no LayerNorm and no dropout are applied to it.
    """

    def __init__(self, backbone: Backbone) -> None:
        """Copy the transformer. Raises EncoderError, one line, if its embedding layer is not known."""
        super().__init__()
        check_whole(backbone.model, "DiffCSE's conditioned copy")
        self.model: Any = copy.deepcopy(backbone.model).requires_grad_(True)
        paths = dict(self.model.named_modules(remove_duplicate=False))
        self.entrance = next((path for path in _ENTRANCES if path in paths), "")
        if not self.entrance:
            raise EncoderError(
                f"no vector can be put in the place of a token of {type(self.model).__name__}: its embedding layer is not "
                "known here; take a BERT-like model"
            )

    @property
    def width(self) -> int:
        """Return d, the width of hidden states and of the vector that replaces the first embedding."""
        return int(self.model.config.hidden_size)

    def forward(self, ids: Tensor, mask: Tensor, first: Tensor, padding: bool) -> Tensor:
        """Return (n, L, d) last hidden states. The gradient reaches `first`.

        ids, mask: (n, L), rows that begin with a real token; first: (n, d), replaces that token's embedding. padding:
        whether the states of padding are needed, too; else they are arbitrary, and the faster packed pass is used where
        possible.
        """
        if first.shape != (len(ids), self.width):
            raise ValueError(f"{len(ids)} rows and width {self.width} need vectors of that shape, not {tuple(first.shape)}")
        entering = partial(changed_embeddings, self.model, path=self.entrance)
        if not padding and ids.device.type == "cpu" and packable(self.model) and bool(mask[:, 0].all()):
            batch = PackedTraining(self.model, ids, mask)
            vectors = first[batch.order][None]
            with entering(lambda row: row.index_copy(1, batch.starts, vectors.to(row.dtype)), shape=(1, self.width)):
                return batch.states((-1,))[0]
        vectors = first.unsqueeze(1)
        with entering(lambda rows: torch.cat([vectors.to(rows.dtype), rows[:, 1:]], 1), shape=(len(ids), self.width)):
            states: Tensor = self.model(input_ids=ids, attention_mask=attention_mask(self.model, mask)).last_hidden_state
        return states
