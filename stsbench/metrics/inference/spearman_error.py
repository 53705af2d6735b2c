"""The sampling error of Spearman's correlation where only the score and the number of items are known."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stsbench.errors import StsbenchError

Floats = NDArray[np.float64]


def spearman_error(correlation: ArrayLike, items: ArrayLike) -> Floats:
    """Standard errors of Spearman's correlations, of the shape of the two together.

    correlation: in [-1, 1], as printed; items: numbers of items, above 3. Fisher's z of a Spearman correlation has about the
    variance (1 + r^2 / 2) / (n - 3) (Bonett & Wright 2000, Sample size requirements for estimating Pearson, Kendall and
    Spearman correlations, Psychometrika 65, 23-28), times the slope of r in z, 1 - r^2. An approximation that assumes
    continuous, about bivariate normal values; it errs near |r| = 1. Raises StsbenchError for 3 items or fewer and scores
    outside [-1, 1].

    >>> import numpy as np
    >>> from stsbench.metrics.inference.spearman_error import spearman_error
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
    >>> from stsbench.metrics.inference.spearman_error import mean_difference_error
    >>> printed, items = np.array([[0.80, 0.85], [0.78, 0.84]]), np.array([3108, 1379])
    >>> [round(100 * float(mean_difference_error(printed, items, shared)[0, 1]), 2) for shared in (0, 0.5, 0.9)]
    [0.84, 0.59, 0.27]
    """
    errors = spearman_error(correlation, items)
    total = (errors**2).sum(axis=1)
    variance = total[:, None] + total[None, :] - 2 * shared * (errors @ errors.T)
    return np.asarray(np.sqrt(np.maximum(variance, 0)) / errors.shape[1])
