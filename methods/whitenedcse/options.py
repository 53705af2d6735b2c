"""Options of WhitenedCSE (Zhuo et al. 2023). Imports no torch."""

from __future__ import annotations

from typing import Literal

from stsbench.options import Values
from stsbench.settings import setting
from stsbench.training.api.options import Options, Repetition

_WHITENED = {"split": ("per_third", "per_view", "whole")}


class WhitenedCSEOptions(Options):
    """Defaults: the settings that produced the published scores of BERT-base, by the released code."""

    default_recipe = "bert-base"

    temperature: float = setting(0.05, "divides the cosine", "released code", gt=0)
    views: int = setting(3, "of each sentence: one anchor and its positives", "README", ge=2)
    reduce: Literal["sum", "mean"] = setting(
        "sum", "over the positives", "released code", goes_with={"views": Values(lambda views: views > 2, "above 2")},
    )
    split: Literal["per_third", "per_view", "whole", "none"] = setting(
        "per_third", "over which rows is whitened: consecutive thirds of the batch, each view, all; none: no whitening",
        "per_third: as released; per_view: as meant",
    )
    groups: int = setting(
        128, "of features; must divide their number", "source of the released code", ge=1, goes_with=_WHITENED,
    )
    shuffle: bool = setting(
        True, "the features, before they are divided into groups", "released code",
        goes_with=(_WHITENED, {"groups": Values(lambda groups: groups > 1, "above 1")}),
    )
    eps: float = setting(
        0.0, "added to the variances; needed for few rows and constant features", "released code: none", ge=0,
        goes_with=_WHITENED,
    )
    detach_matrix: bool = setting(
        True, "the whitening matrix is a constant for the gradient", "released code", goes_with=_WHITENED,
    )
    repeat: Repetition | None = setting(
        None, "sub-words or words repeated in every view but the first; null: none", "ESimCSE (Wu et al. 2022)",
    )
