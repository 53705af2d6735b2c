"""What ConSERT's options train, and which backbones they can."""

from __future__ import annotations

from stsbench.encoders.forward.padded import check_family
from stsbench.errors import StsbenchError
from stsbench.training.modules.backbone import Backbone

from .options import ConSERTOptions

_POOLERS = ("mean", "cls", "max", "last2", "first_last:embeddings", "first_last:layer1")


def stages_of(options: ConSERTOptions) -> tuple[str, ...]:
    """Return the stages that options.setting trains."""
    return tuple(options.setting.split("-"))


def augmentations(options: ConSERTOptions, stage: str) -> tuple[str, str]:
    """Return what is done to the two views of a stage, unsup or joint."""
    return options.views if stage == "unsup" else options.joint_views


def shares(options: ConSERTOptions, stage: str) -> tuple[float | None, float | None]:
    """Return the rates of the two views of a stage, unsup or joint."""
    return options.rates if stage == "unsup" else options.joint_rates


def check_backbone(options: ConSERTOptions, backbone: Backbone) -> None:
    """Raise StsbenchError, one line, for a pooler that is trained otherwise, and for a model whose embeddings cannot be
    changed."""
    if backbone.pooler not in _POOLERS:
        raise StsbenchError(f"consert trains the poolers {', '.join(_POOLERS)}: set backbone.pooler, not {backbone.pooler}")
    if any(view != "none" for stage in stages_of(options) if stage != "sup" for view in augmentations(options, stage)):
        check_family(backbone.model)
