"""Which of ConSERT's options go together: whatever would have no effect, or cannot be computed, is refused."""

from __future__ import annotations

from stsbench.encoders.forward.padded import check_family
from stsbench.errors import StsbenchError
from stsbench.training.api.options import refuse_idle
from stsbench.training.modules.backbone import Backbone

from .options import ConSERTOptions

RATED = ("token_cutoff", "feature_cutoff", "dropout", "span")
_POOLERS = ("mean", "cls", "max", "last2", "first_last:embeddings", "first_last:layer1")
_SECTIONS = {"unsup": ("views", "rates"), "joint": ("joint_views", "joint_rates")}  # stage -> its options


def stages_of(options: ConSERTOptions) -> tuple[str, ...]:
    """The stages that options.setting trains."""
    return tuple(options.setting.split("-"))


def augmentations(options: ConSERTOptions, stage: str) -> tuple[str, str]:
    """What is done to the two views of a stage, unsup or joint."""
    return options.views if stage == "unsup" else options.joint_views


def shares(options: ConSERTOptions, stage: str) -> tuple[float | None, float | None]:
    """The rates of the two views of a stage, unsup or joint."""
    return options.rates if stage == "unsup" else options.joint_rates


def check_options(options: ConSERTOptions) -> None:
    """Raises StsbenchError, one line, for options that contradict one another."""
    stages, setting = stages_of(options), f"options.setting {options.setting}"
    for stage, names in _SECTIONS.items():
        if stage not in stages:
            refuse_idle(options, names, f"{setting} has no stage {stage}")
        else:
            _check_views(options, stage, *names)
    if stages == ("sup",):
        refuse_idle(options, ("temperature", "nt_xent"), f"{setting} has no contrastive loss")
    if "unsup" not in stages:
        refuse_idle(options, ("weigh_unsup",), f"{setting} has no stage unsup")
    if "joint" not in stages and not options.weigh_unsup:
        refuse_idle(options, ("contrastive_weight",), f"{setting} has no stage joint, and options.weigh_unsup is false")
    if stages == ("unsup",):
        refuse_idle(options, ("features",), f"{setting} trains no classifier")
    if "joint" not in stages or "adversarial" not in options.joint_views:
        refuse_idle(options, ("adversarial_norm",), "no view is adversarial")


def check_backbone(options: ConSERTOptions, backbone: Backbone) -> None:
    """Raises StsbenchError, one line, for a pooler that is trained otherwise, and for a model whose embeddings cannot be
    changed."""
    if backbone.pooler not in _POOLERS:
        raise StsbenchError(f"consert trains the poolers {', '.join(_POOLERS)}: set backbone.pooler, not {backbone.pooler}")
    if any(view != "none" for stage in _SECTIONS if stage in stages_of(options) for view in augmentations(options, stage)):
        check_family(backbone.model)


def _check_views(options: ConSERTOptions, stage: str, views_name: str, rates_name: str) -> None:
    views = augmentations(options, stage)
    for view, rate in zip(views, shares(options, stage), strict=True):
        if view in RATED and rate is None:
            raise StsbenchError(f"options.{views_name}: {view} needs its rate in options.{rates_name}, e.g. 0.2")
        if view not in RATED and rate is not None:
            raise StsbenchError(f"options.{rates_name}: {view} has no rate, and {rate:g} is given: write null")
    if "adversarial" not in views:
        return
    if stage == "unsup":
        raise StsbenchError("options.views: adversarial needs labels and the supervised loss: it is for options.joint_views")
    if views != ("none", "adversarial"):
        raise StsbenchError(f"options.joint_views {', '.join(views)}: adversarial is the second view, of an unchanged first")
