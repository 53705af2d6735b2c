"""The three ways in which papers turn a year's subsets into one number (SimCSE, appendix B)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

AGGREGATIONS = ("all", "mean", "wmean")


def combine(scores: Sequence[NDArray[np.float64] | float], sizes: Sequence[int], how: str) -> NDArray[np.float64]:
    """`mean`: unweighted mean of the subsets' scores; `wmean`: weighted by their numbers of scored pairs.

    scores: one number or one (resamples,) array per subset. `all` is not a combination of subset scores (it is one
    correlation over the concatenated pairs), so it is refused here.
    """
    if how == "mean":
        return np.asarray(np.mean(np.asarray(scores, np.float64), axis=0))
    if how == "wmean":
        return np.asarray(np.average(np.asarray(scores, np.float64), axis=0, weights=np.asarray(sizes, np.float64)))
    raise ValueError(f"'{how}' does not combine subset scores")


def average_of_printed(scores: Sequence[float]) -> float:
    """The average as papers print it: of the scores rounded to two decimals, rounded again (SentEval, SimCSE)."""
    return round(sum(round(score, 2) for score in scores) / len(scores), 2)
