"""Spearman and Pearson correlation, with an error where it is undefined."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from stsbench.errors import ScoreError

METRICS = ("spearman", "pearson")
LEAST = 3  # pairs
Floats = NDArray[np.float64]


def correlation(predicted: NDArray[np.floating], gold: NDArray[np.floating], metric: str, items: int | None = None) -> float:
    """Return correlation of two (n,) arrays: scipy's, average ranks for ties. Unit: 1, not 100. items: the number of
    different pairs, n by default.

    Raises ScoreError for fewer than three pairs (over two it is 1 or -1, whatever they are), for constant or
    non-finite predictions or gold scores.
    """
    predicted, gold = np.asarray(predicted, np.float64), np.asarray(gold, np.float64)
    if (pairs := len(predicted) if items is None else items) < LEAST:
        reason = ": over two it is 1 or -1, whatever they are" if pairs == 2 else ""
        raise ScoreError(f"a correlation needs at least three pairs, not {pairs}{reason}")
    for name, values in (("predictions", predicted), ("gold scores", gold)):
        if not np.isfinite(values).all():
            raise ScoreError(f"{int((~np.isfinite(values)).sum())} of {len(values)} {name} are NaN or infinite")
        if np.ptp(values) <= 1e-12 * np.abs(values).max():  # cosines of vectors along one line: 1 but for the last bit
            raise ScoreError(f"all {len(values)} {name} are equal ({values[0]:g}): their correlation is undefined")
    function = stats.spearmanr if metric == "spearman" else stats.pearsonr
    return float(function(predicted, gold).statistic)
