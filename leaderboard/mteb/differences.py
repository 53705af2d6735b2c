"""Significance tests from printed scores alone, for differences between rows in their mean over tasks: by sign flips over
tasks, and by the sampling error of a correlation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stsbench.errors import StsbenchError
from stsbench.metrics.paired import LEVEL, few_enough, rejected

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
MOST_TASKS = 12  # 2,047 patterns of signs: with more tasks there are too many to compute all
_EXACT = 10  # decimals of statistics, so that sums of the same numbers in another order are equal


@dataclass(frozen=True)
class TaskSample:
    """The pairs of r rows that differ in their mean over tasks, as bool (r, r). pairs: at 5 % for each pair by itself;
    alone: line i at 5 % for the pairs of row i jointly; jointly: at 5 % for all pairs jointly.

    patterns: the number of ways to flip signs, 2^(k - 1) for k tasks; the smallest p-value is 1 / patterns.
    """

    pairs: Bools
    alone: Bools
    jointly: Bools
    patterns: int


def compare_over_tasks(scores: ArrayLike, level: float = LEVEL) -> TaskSample:
    """Return which rows differ in their mean over tasks, by an exact sign-flip test (Fisher 1935, The Design of Experiments,
    section 21), for many pairs jointly by the step-down method (Romano & Wolf 2005).

    scores: (r, k), of r rows on k tasks, in any unit. The test assumes that the vector of a task's deviations, over all
    pairs of rows, is symmetric about 0 and independent of the other tasks' vectors. Nothing else is assumed of the
    distribution: unlike a bootstrap over so few tasks, whose intervals are too short, the test holds its level at any k.
    Differences are studentised, so that one row of highly variable scores does not raise the threshold for all. Fewer than 6
    tasks give at most 16 patterns, so that no pair can differ at 5 %. Raises StsbenchError for NaN, fewer than 2 tasks or
    more than 12.

    >>> import numpy as np
    >>> from stsbench.leaderboard.mteb.differences import compare_over_tasks
    >>> scores = np.array([[80, 81, 82, 83, 84, 85, 86], [79, 80, 81, 82, 83, 84, 85], [80, 80, 83, 82, 85, 84, 87.0]])
    >>> compare_over_tasks(scores).pairs.astype(int).tolist()
    [[0, 1, 0], [1, 0, 0], [0, 0, 0]]
    """
    scores = np.asarray(scores, dtype=np.float64)
    if scores.ndim != 2 or not 2 <= scores.shape[1] <= MOST_TASKS:
        raise StsbenchError(f"scores of 2 to {MOST_TASKS} tasks are needed, as (rows, tasks): not of shape {scores.shape}")
    if not np.isfinite(scores).all():
        raise StsbenchError("a score is NaN or infinite: leave out its row or its task")
    count, tasks = scores.shape
    signs = sign_patterns(tasks)
    pairs, alone, jointly = (np.zeros((count, count), dtype=np.bool_) for _ in range(3))
    for i in range(count):
        others = np.delete(np.arange(count), i)
        observed, drawn = _statistics(scores[i] - scores[others], signs)
        pairs[i, others] = few_enough((drawn >= observed[:, None]).sum(axis=1), len(signs), level)
        alone[i, others] = _rejected(observed, drawn, level)
    one, other = np.triu_indices(count, 1)
    jointly[one, other] = _rejected(*_statistics(scores[one] - scores[other], signs), level)
    return TaskSample(pairs, alone, jointly | jointly.T, len(signs) + 1)


def sign_patterns(tasks: int) -> Floats:
    """Return (2^(tasks - 1) - 1, tasks) of 1 and -1: all ways to flip signs, except for no flip and for mirror images of
    others.

    >>> from stsbench.leaderboard.mteb.differences import sign_patterns
    >>> sign_patterns(3).tolist()
    [[1.0, -1.0, 1.0], [1.0, 1.0, -1.0], [1.0, -1.0, -1.0]]
    """
    bits = np.arange(1, 2 ** (tasks - 1))[:, None] >> np.arange(tasks - 1)[None, :] & 1
    return np.hstack([np.ones((len(bits), 1)), 1.0 - 2.0 * bits])


def _statistics(differences: Floats, signs: Floats) -> tuple[Floats, Floats]:
    """Return (m,) and (m, patterns): |mean| / root mean square of the differences (m, k), as observed and with signs
    flipped. The statistic is a strictly increasing function of |Student's t|, the same for all pairs."""
    tasks = differences.shape[1]
    root = np.sqrt((differences**2).mean(axis=1, keepdims=True))
    units = np.divide(differences, root, out=np.zeros_like(differences), where=root > 0)
    observed = np.abs(units.sum(axis=1)) / tasks
    return np.round(observed, _EXACT), np.round(np.abs(units @ signs.T) / tasks, _EXACT)


def _rejected(observed: Floats, draws: Floats, level: float) -> Bools:
    return rejected(observed, lambda some: draws[some].copy(), draws.shape[1], level)[0]


def spearman_error(correlation: ArrayLike, items: ArrayLike) -> Floats:
    """Return standard errors of Spearman correlations, in the broadcast shape of the two arguments.

    correlation: in [-1, 1], as printed; items: numbers of items, above 3. Fisher's z of a Spearman correlation has a
    variance of about (1 + r^2 / 2) / (n - 3) (Bonett & Wright 2000, Sample size requirements for estimating Pearson, Kendall
    and Spearman correlations, Psychometrika 65, 23-28); its root is multiplied by the slope of r in z, 1 - r^2. The
    approximation assumes continuous, roughly bivariate normal values, and is poor near |r| = 1. Raises StsbenchError for 3
    items or fewer and scores outside [-1, 1].

    >>> import numpy as np
    >>> from stsbench.leaderboard.mteb.differences import spearman_error
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
    """Return (r, r) standard errors of the differences between the rows' means over tasks, in the unit of a correlation.

    correlation: (r, k) of r rows on k tasks; items: (k,); shared: the assumed correlation of two rows' errors on one task,
    which cannot be known without the scores of the items: 0 for independent errors, where the standard error is largest,
    near 1 for two encoders that err on the same items. Errors on different tasks are taken as independent.

    >>> import numpy as np
    >>> from stsbench.leaderboard.mteb.differences import mean_difference_error
    >>> printed, items = np.array([[0.80, 0.85], [0.78, 0.84]]), np.array([3108, 1379])
    >>> [round(100 * float(mean_difference_error(printed, items, shared)[0, 1]), 2) for shared in (0, 0.5, 0.9)]
    [0.84, 0.59, 0.27]
    """
    errors = spearman_error(correlation, items)
    total = (errors**2).sum(axis=1)
    variance = total[:, None] + total[None, :] - 2 * shared * (errors @ errors.T)
    return np.asarray(np.sqrt(np.maximum(variance, 0)) / errors.shape[1])
