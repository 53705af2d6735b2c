"""Spearman and Pearson correlation, with an error where it is undefined; and the sampling error of a printed one."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from stsbench.errors import ScoreError, StsbenchError

METRICS = ("spearman", "pearson")
LEAST = 3  # pairs
Floats = NDArray[np.float64]


def correlation(predicted: NDArray[np.floating], gold: NDArray[np.floating], metric: str, items: int | None = None) -> float:
    """Correlation of two (n,) arrays: scipy's, average ranks for ties. Unit: 1, not 100. items: the number of different
    pairs, n by default.

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


def spearman_error(correlation: ArrayLike, items: ArrayLike) -> Floats:
    """Standard errors of Spearman's correlations, of the shape of the two together.

    correlation: in [-1, 1], as printed; items: numbers of items, above 3. Fisher's z of a Spearman correlation has about the
    variance (1 + r^2 / 2) / (n - 3) (Bonett & Wright 2000, Sample size requirements for estimating Pearson, Kendall and
    Spearman correlations, Psychometrika 65, 23-28), times the slope of r in z, 1 - r^2. An approximation that assumes
    continuous, about bivariate normal values; it errs near |r| = 1. Raises StsbenchError for 3 items or fewer and scores
    outside [-1, 1].

    >>> import numpy as np
    >>> from stsbench.metrics.correlation import spearman_error
    >>> np.round(100 * spearman_error(np.array([0.5, 0.8]), np.array([1379, 1379])), 2).tolist()
    [2.14, 1.12]
    """
    correlation, items = np.asarray(correlation, dtype=np.float64), np.asarray(items)
    if (items <= 3).any():
        raise StsbenchError("a correlation of 3 items or fewer has no known error")
    if not (np.abs(correlation) <= 1).all():
        raise StsbenchError("a correlation lies outside [-1, 1] or is NaN")
    return np.asarray((1 - correlation**2) * np.sqrt((1 + correlation**2 / 2) / (items - 3)))


def mean_difference_error(correlation: ArrayLike, items: ArrayLike, shared: float) -> Floats:
    """(r, r): standard errors of the differences between the rows' means over tasks, in the unit of a correlation.

    correlation: (r, k) of r rows on k tasks; items: (k,); shared: the correlation between two rows' errors on one task,
    which nobody can know without the items: 0 where they err independently, and the error is largest, near 1 for two
    encoders that err on the same items. The tasks' items are taken as independent of each other.

    >>> import numpy as np
    >>> from stsbench.metrics.correlation import mean_difference_error
    >>> printed, items = np.array([[0.80, 0.85], [0.78, 0.84]]), np.array([3108, 1379])
    >>> [round(100 * float(mean_difference_error(printed, items, shared)[0, 1]), 2) for shared in (0, 0.5, 0.9)]
    [0.84, 0.59, 0.27]
    """
    errors = spearman_error(correlation, items)
    total = (errors**2).sum(axis=1)
    variance = total[:, None] + total[None, :] - 2 * shared * (errors @ errors.T)
    return np.asarray(np.sqrt(np.maximum(variance, 0)) / errors.shape[1])
