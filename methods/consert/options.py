"""Options of ConSERT (Yan et al. 2021), including where its released code differs from the paper. Imports no torch."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from stsbench import settings  # `setting` is an option here
from stsbench.losses.choices import SBERT_FEATURES, Features
from stsbench.options import Values, Where
from stsbench.training.api.options import Options

Setting = Literal["unsup", "sup", "joint", "sup-unsup", "joint-unsup"]
Augmentation = Literal["none", "shuffle", "token_cutoff", "feature_cutoff", "dropout", "span", "adversarial"]
Rate = Annotated[float, Field(gt=0, lt=1)] | None

_RATED = ("token_cutoff", "feature_cutoff", "dropout", "span")
_UNSUP = {"setting": ("unsup", "sup-unsup", "joint-unsup")}
_JOINT = {"setting": ("joint", "joint-unsup")}
_CONTRASTED = {"setting": ("unsup", "joint", "sup-unsup", "joint-unsup")}
_WEIGHED = Where(lambda options: "joint" in options.setting or options.weigh_unsup,
                 "setting joint or joint-unsup, or weigh_unsup")


class ConSERTOptions(Options):
    """Defaults: the unsupervised ConSERT-base of the paper. Pairs of values are for the first and for the second view."""

    stages = ("sup", "joint", "unsup")
    default_recipe = "unsup-bert-base"

    setting: Setting = settings.setting(
        "unsup", "its stages: sup, NLI's cross-entropy; unsup, the contrastive loss; joint, both", "Tables 2 and 3",
    )
    views: tuple[Augmentation, Augmentation] = settings.setting(
        ("feature_cutoff", "shuffle"), "augmentations of stage unsup", "section 3; span: in the released code only",
        goes_with=_UNSUP,
    )
    rates: tuple[Rate, Rate] = settings.setting(
        (0.2, None), "share of tokens, features or elements set to 0; of span: of tokens outside it",
        "the paper and the released script", goes_with=_UNSUP,
    )
    joint_views: tuple[Augmentation, Augmentation] = settings.setting(
        ("none", "token_cutoff"), "augmentations of stage joint", "the released scripts", goes_with=_JOINT,
    )
    joint_rates: tuple[Rate, Rate] = settings.setting(
        (None, 0.15), "as rates, of stage joint", "the paper; the released scripts: 0.1", goes_with=_JOINT,
    )
    adversarial_norm: float = settings.setting(
        1.0, "length of what is added to each token's embedding", "the released code, noise_norm; not in the paper", gt=0,
        goes_with={"joint_views": Values(lambda views: "adversarial" in views, "[none, adversarial]")},
    )
    temperature: float = settings.setting(0.1, "divides the cosines", "Eq. 2", gt=0, goes_with=_CONTRASTED)
    contrastive_weight: float = settings.setting(
        0.15, "alpha of stage joint", "cl_rate in the released code", gt=0, goes_with=_WEIGHED,
    )
    weigh_unsup: bool = settings.setting(
        False, "the same weight in stage unsup", "the released code", goes_with=_UNSUP,
    )
    nt_xent: Literal["mean", "sum"] = settings.setting(
        "mean", "over 2N views; sum: of the means of first and of second views", "Eq. 2; sum: the released code",
        goes_with=_CONTRASTED,
    )
    features: Features = settings.setting(
        SBERT_FEATURES, "what the NLI classifier sees", "the released scripts add max_square",
        goes_with={"setting": ("sup", "joint", "sup-unsup", "joint-unsup")},
    )
    test_pooler: Literal["last2", "mean", "cls", "max", "first_last:embeddings", "first_last:layer1"] = settings.setting(
        "last2", "of the tested encoder; backbone.pooler is trained", "the released code, last2avg",
    )

    @model_validator(mode="after")
    def _check_views(self) -> Self:
        for views_name, rates_name in (("views", "rates"), ("joint_views", "joint_rates")):
            for view, rate in zip(getattr(self, views_name), getattr(self, rates_name), strict=True):
                if view in _RATED and rate is None:
                    raise ValueError(f"{views_name}: {view} needs its rate in {rates_name}, e.g. 0.2")
                if view not in _RATED and rate is not None:
                    raise ValueError(f"{rates_name}: {view} has no rate, and {rate:g} is given: write null")
        if "adversarial" in self.views:
            raise ValueError("views: adversarial needs labels and the supervised loss: it is for joint_views")
        if "adversarial" in self.joint_views and self.joint_views != ("none", "adversarial"):
            raise ValueError(
                f"joint_views {', '.join(self.joint_views)}: adversarial is the second view, of an unchanged first"
            )
        return self


def trained_stages(options: ConSERTOptions) -> tuple[str, ...]:
    """Return the stages that options.setting trains."""
    return tuple(options.setting.split("-"))


def augmentations(options: ConSERTOptions, stage: str) -> tuple[str, str]:
    """Return the augmentations of the two views in a stage, unsup or joint."""
    return options.views if stage == "unsup" else options.joint_views


def shares(options: ConSERTOptions, stage: str) -> tuple[float | None, float | None]:
    """Return the augmentation rates of the two views in a stage, unsup or joint."""
    return options.rates if stage == "unsup" else options.joint_rates
