"""Which of several means over tasks differ, where the tasks are the sample: every sign of a task's difference may flip."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stsbench.errors import StsbenchError
from stsbench.metrics.paired import LEVEL
from stsbench.metrics.stepdown import few_enough, rejected

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
MOST_TASKS = 12  # 2,047 patterns of signs: of more tasks, all patterns are too many
_EXACT = 10  # decimals: sums of the same numbers in another order are one number


@dataclass(frozen=True)
class TaskSample:
    """Which pairs of r rows differ in their mean over tasks, bool (r, r): `pairs`, each pair by itself at 5 %; line i of
    `alone`, at 5 % for the pairs of row i together; `jointly`, at 5 % for all pairs together.

    patterns: how many ways to flip the signs there are, 2^(k - 1) of k tasks; the least p is 1 / patterns.
    """

    pairs: Bools
    alone: Bools
    jointly: Bools
    patterns: int


def different_over_tasks(scores: ArrayLike, level: float = LEVEL) -> TaskSample:
    """Which rows differ in their mean over tasks, by an exact test of sign flips (Fisher 1935, The Design of Experiments,
    section 21), of many pairs together by the step-down method (Romano & Wolf 2005).

    scores: (r, k), of r rows on k tasks, in any unit. Assumes that another draw of tasks moves the differences between all
    rows up or down together, equally likely: the vector of a task's deviations is symmetric about 0 and independent of the
    other tasks'. Nothing else is assumed of their distribution: unlike a bootstrap over so few tasks, whose intervals are
    too short, the test holds its level at any k. Fewer than 6 tasks give at most 16 patterns, so that no pair can differ at
    5 %. Raises StsbenchError for NaN, fewer than 2 tasks or more than 12.

    >>> import numpy as np
    >>> from stsbench.metrics.inference.sign_flips import different_over_tasks
    >>> scores = np.array([[80, 81, 82, 83, 84, 85, 86], [79, 80, 81, 82, 83, 84, 85], [80, 80, 83, 82, 85, 84, 87.0]])
    >>> different_over_tasks(scores).pairs.astype(int).tolist()
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
        observed, drawn = _means(scores[i] - scores[others], signs)
        pairs[i, others] = few_enough((drawn >= observed[:, None]).sum(axis=1), len(signs), level)
        alone[i, others] = _rejected(observed, drawn, level)
    one, other = np.triu_indices(count, 1)
    jointly[one, other] = _rejected(*_means(scores[one] - scores[other], signs), level)
    return TaskSample(pairs, alone, jointly | jointly.T, len(signs) + 1)


def sign_patterns(tasks: int) -> Floats:
    """(2^(tasks - 1) - 1, tasks) of 1 and -1: all ways to flip signs, but for none, and for those that mirror another.

    >>> from stsbench.metrics.inference.sign_flips import sign_patterns
    >>> sign_patterns(3).tolist()
    [[1.0, -1.0, 1.0], [1.0, 1.0, -1.0], [1.0, -1.0, -1.0]]
    """
    bits = np.arange(1, 2 ** (tasks - 1))[:, None] >> np.arange(tasks - 1)[None, :] & 1
    return np.hstack([np.ones((len(bits), 1)), 1.0 - 2.0 * bits])


def _means(differences: Floats, signs: Floats) -> tuple[Floats, Floats]:
    """(m,), (m, patterns): the sizes of the mean differences as observed, and with the signs flipped."""
    tasks = differences.shape[1]
    observed = np.abs(differences.sum(axis=1)) / tasks
    return np.round(observed, _EXACT), np.round(np.abs(differences @ signs.T) / tasks, _EXACT)


def _rejected(observed: Floats, drawn: Floats, level: float) -> Bools:
    return rejected(observed, lambda some: drawn[some].copy(), drawn.shape[1], level)[0]
