"""Which rows of printed correlations differ over other items, by the error that score and number of items give."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from stsbench.metrics.correlation import mean_difference_error
from stsbench.metrics.paired import LEVEL

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def separated_over_items(scores: Floats, items: Floats) -> Bools:
    """bool (r, r): rows of (r, k) correlations on (k,) items that differ in the test of a row's pairs together, if errors
    were independent."""
    errors = mean_difference_error(scores, items, 0.0)
    gaps = np.abs(scores.mean(axis=1)[:, None] - scores.mean(axis=1)[None, :])
    return np.asarray(gaps > critical(max(len(scores) - 1, 1)) * errors)


def critical(tests: int) -> float:
    """How many standard errors a difference must exceed at 5 %, two-sided, in so many tests (Bonferroni)."""
    return float(norm.isf((1 - LEVEL) / 2 / tests))
