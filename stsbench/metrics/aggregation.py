"""The three ways in which papers turn a year's subsets into one number (SimCSE, appendix B)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

AGGREGATIONS = ("all", "mean", "wmean")
IN_WORDS = {"all": "one score over all items of a task", "mean": "the mean of the scores of a task's subsets",
            "wmean": "the mean of the scores of a task's subsets, weighted by their items"}
OF_PARTS = ("mean", "wmean")  # those that average the scores of parts
FEWEST_ITEMS = 50  # of a part that one may rank by: of fewer, a correlation of .8 is known to +-.12 or worse


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


def small_parts(sizes: Mapping[str, int]) -> dict[str, int]:
    """The parts of an average that have too few items to rank by: one score of theirs counts as much as one of thousands.

    sizes: part -> its items. Fewer than 50 are too few; the average keeps them, for it is the published one.

    >>> from stsbench.metrics.aggregation import small_parts
    >>> small_parts({"en": 197, "fr-pl": 8})
    {'fr-pl': 8}
    """
    return {part: n for part, n in sizes.items() if n < FEWEST_ITEMS}


def average_of_printed(scores: Sequence[float]) -> float:
    """The average as papers print it: of the scores rounded to two decimals, rounded again (SentEval, SimCSE)."""
    return round(sum(round(score, 2) for score in scores) / len(scores), 2)
