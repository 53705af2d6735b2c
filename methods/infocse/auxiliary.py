"""The other half of InfoCSE: masked tokens are guessed by layers that see of the encoder nothing but its [CLS] vector."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stsbench.encoders.forward.checkpoint import first_line
from stsbench.encoders.forward.passes import wide_mask
from stsbench.errors import StsbenchError
from stsbench.losses.tokens import count_guesses, guess_metrics, masked_lm
from stsbench.training.api.batch import IGNORED, Term
from stsbench.training.modules.backbone import Backbone
from stsbench.training.modules.copies import Reference
from stsbench.training.modules.masked_lm import LMHead

from .options import InfoCSEOptions

_FILE, _PREFIX = "model.pt", "c_head."  # where Condenser's pre-training stores the layers of its head, and under which names


class Auxiliary(nn.Module):
    """The frozen first layers of the checkpoint, the head's layers behind them, and the checkpoint's masked-LM head.

    The head reads the frozen layers' states of the masked sentence, and the encoder's vector of the unmasked one in the
    place of the first: Condenser (Gao and Callan 2021) with the lower half cut off from the encoder. Nothing but that vector
    takes the gradient to the encoder.
    """

    guesses: Tensor  # (2,) correct guesses and guesses since the last `metrics`

    def __init__(self, backbone: Backbone, options: InfoCSEOptions) -> None:
        """backbone: with its `folder` and `name`, as it was loaded. The head's random weights come from torch's global
        generator. Raises StsbenchError, one line, for a model.pt without such layers."""
        super().__init__()
        self.weight = options.mlm_weight
        self.frozen = _first_layers(backbone, options.frozen_layers, dropout=options.frozen_mode == "train")
        self.head = _new_layers(backbone.model, options.head_layers)
        if options.head_init == "condenser":  # the folder's digest, which a resumed run compares, is of this file, too
            _load_condenser(self.head, backbone.folder / _FILE)
        self.lm_head = LMHead.load(backbone.folder, backbone.model, backbone.name, tied=False)
        self.register_buffer("guesses", torch.zeros(2, dtype=torch.long))

    def forward(self, ids: Tensor, mask: Tensor, labels: Tensor, first: Tensor) -> Term:
        """Return the mean cross-entropy of the masked tokens.

        ids, mask, labels: (m, L), the masked sentences and what stood there, IGNORED elsewhere; first: (m, d), the
        encoder's [CLS] of the unmasked ones.
        """
        states = self.frozen.states(ids, mask, (-1,))[0]
        hidden = torch.cat([first.unsqueeze(1), states[:, 1:]], 1)
        visible = wide_mask(self.frozen.backbone.model, mask.bool(), 0)
        for layer in self.head:
            hidden = layer(hidden, visible)
        chosen = (labels != IGNORED).nonzero(as_tuple=True)  # a GPU is waited for once
        logits, targets = self.lm_head(hidden[chosen]), labels[chosen]
        count_guesses(self.guesses, logits, targets)
        return Term(masked_lm(logits, targets), len(targets), self.weight)

    def metrics(self) -> dict[str, float]:
        """masked_accuracy: the share of this process's masked tokens that were guessed right."""
        return guess_metrics(self.guesses)


def _first_layers(backbone: Backbone, count: int, dropout: bool) -> Reference:
    """Return a copy of the first `count` layers that nothing trains. dropout: it has the encoder's while that trains."""
    frozen = Reference(backbone, dropout)
    model: Any = frozen.backbone.model
    model.encoder.layer = model.encoder.layer[:count]
    model.config.num_hidden_layers = count
    return frozen


def _new_layers(model: Any, count: int) -> nn.ModuleList:
    """So many layers of the model's kind: linear weights from N(0, initializer_range^2), biases 0, LayerNorms 1 and 0."""
    config = copy.deepcopy(model.config)
    kind, std = type(model.encoder.layer[0]), getattr(config, "initializer_range", 0.02)
    layers = nn.ModuleList(kind(config, layer_idx=number) for number in range(count))
    for module in layers.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=std)
            nn.init.zeros_(module.bias)
    weight = model.get_input_embeddings().weight
    return layers.to(weight.device, weight.dtype).train(model.training)


def _load_condenser(layers: nn.ModuleList, path: Path) -> None:
    """Weights as a pre-training of Condenser stored them. Raises StsbenchError, one line, for any that do not fit."""
    wanted = f"options.head_init condenser reads the head's layers from {path}"
    if not path.is_file():
        raise StsbenchError(
            f"{wanted}, which is not there: let backbone.model be a folder of Condenser's pre-training, or set random"
        )
    try:
        stored = torch.load(path, map_location="cpu", weights_only=True)  # nothing but tensors is unpickled
    except Exception as error:  # pickle, zipfile and torch each have their own kinds
        raise StsbenchError(f"{wanted}, which cannot be read as weights alone: {first_line(error)}") from error
    if not isinstance(stored, dict):
        raise StsbenchError(f"{wanted}, which holds no weights by name")
    weights = {str(name).removeprefix(_PREFIX): value for name, value in stored.items() if str(name).startswith(_PREFIX)}
    count = len({name.partition(".")[0] for name in weights})
    if count != len(layers):
        raise StsbenchError(f"{wanted}, which holds {count}: options.head_layers {len(layers)} must be as many")
    try:
        layers.load_state_dict(weights)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise StsbenchError(f"{wanted}, which do not fit the encoder: {' '.join(str(error).split())[:200]}") from error
