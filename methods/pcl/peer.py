"""PCL's second network: a full copy of the encoder, or a model from elsewhere, with the pooler that is stored with it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stsbench.encoders.forward.checkpoint import load_model
from stsbench.encoders.forward.identity import folder_digest
from stsbench.encoders.forward.model import dropout_rates
from stsbench.encoders.prompt.modules import MLPHead
from stsbench.encoders.transformer.find import backbone_folder, resolve_base
from stsbench.errors import StsbenchError
from stsbench.torch_random import forked
from stsbench.training.modules.backbone import Backbone, load_backbone

from .options import PeerOptions

_OPTION = "options.peer.model"


class Peer(nn.Module):
    """tanh(W h + b) of the first token's last state h, W and b the pooler of the model's folder.

    Its dropout is on whenever this module is in train mode, frozen or not: without it both views of a sentence are one.
    digest: of the folder, where it is not the encoder's. made_up: whether the folder has no such pooler: W is then random.
    """

    def __init__(self, backbone: Backbone, options: PeerOptions) -> None:
        """Raise StsbenchError, one line, for a model of another vocabulary or width than the backbone's."""
        super().__init__()
        offline = getattr(backbone, "offline", False)
        self.masked, self.digest, self.name = options.mask, None, options.model or backbone.name
        if options.model is None:  # as the encoder is now, which a run may have begun from another one's weights
            folder, model = Path(backbone.folder), copy.deepcopy(backbone.model)
        else:
            folder = backbone_folder(options.model, offline, _OPTION)
            model = _load_transformer(folder, options.model, backbone)
            base = resolve_base(folder, offline)
            self.digest = folder_digest(folder, [base] if base else [])
        # padding that is attended to has to be computed
        engine = backbone.engine if options.mask else "padded"
        self.backbone = Backbone(model, backbone.tokenizer, "cls", backbone.max_length, engine)
        self.pooler = MLPHead(backbone.width, getattr(model.config, "initializer_range", 0.02))
        dense = _stored_pooler(folder, self.name, offline)
        self.made_up = dense is None
        if dense is not None:
            self.pooler.dense.load_state_dict(dense.state_dict())
        self.requires_grad_(not options.frozen)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return (n, d) pooled vectors of texts, ids and mask (n, L). Without options.peer.mask padding counts as text,
        so that L is part of the result."""
        if self.masked:
            first = self.backbone.at(ids, mask, mask.new_zeros(len(mask)))
        else:
            first = self.backbone(ids, torch.ones_like(mask))[0][:, 0]
        vectors: Tensor = self.pooler(first)
        return vectors


def _load_transformer(folder: Path, name: str, backbone: Backbone) -> Any:
    """Return the transformer of a folder, with the backbone's rate of dropout, if it reads the backbone's tokens and
    gives vectors of its width."""
    rates = {*dropout_rates(backbone.model.config).values()}
    other = load_backbone(
        folder, name, max_length=backbone.max_length, dropout=rates.pop() if len(rates) == 1 else None,
        offline=getattr(backbone, "offline", False),
    )
    what = f"{_OPTION} {name} must have the %s of {backbone.name}, and it has not: name another, or null for the backbone's"
    if other.tokenizer.get_vocab() != backbone.tokenizer.get_vocab():
        raise StsbenchError(what % "vocabulary")
    if other.width != backbone.width:
        raise StsbenchError(what % f"width {backbone.width}")
    return other.model


def _stored_pooler(folder: Path, name: str, offline: bool) -> nn.Linear | None:
    """Return the dense layer of a checkpoint's pooler, if it stores one of that kind."""
    with forked():  # the library makes up what is missing
        model, missing = load_model(folder, name, "float32", base=resolve_base(folder, offline))
    dense, width = getattr(getattr(model, "pooler", None), "dense", None), model.config.hidden_size
    if any(key.startswith("pooler.") for key in missing) or not isinstance(dense, nn.Linear):
        return None
    return dense if tuple(dense.weight.shape) == (width, width) and dense.bias is not None else None
