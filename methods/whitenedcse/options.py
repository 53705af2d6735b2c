"""WhitenedCSE's choices (Zhuo et al. 2023). Imports no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stsbench.training.api.options import Options, Repetition


class WhitenedCSEOptions(Options):
    """Defaults: what produced the published scores of BERT-base, by the released code."""

    default_recipe = "bert-base"

    temperature: float = Field(default=0.05, gt=0)
    views: int = Field(default=3, ge=2)  # of each sentence: one anchor and its positives
    reduce: Literal["sum", "mean"] = "sum"  # over the positives
    # over which rows is whitened: consecutive thirds of the batch (released), each view (as meant), all; none: no whitening
    split: Literal["per_third", "per_view", "whole", "none"] = "per_third"
    groups: int = Field(default=128, ge=1)  # of features; must divide their number
    shuffle: bool = True  # the features, before they are divided into groups
    eps: float = Field(default=0.0, ge=0)  # added to the variances; needed for few rows and constant features
    detach_matrix: bool = True  # the whitening matrix is a constant for the gradient
    repeat: Repetition | None = None  # ESimCSE: sub-words or words repeated in every view but the first; null: none
