"""Tests and intervals of the difference between two scores on the same items or tasks; and many such tests jointly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, inf

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stsbench.errors import StsbenchError
from stsbench.metrics.bootstrap import ROUNDING

Floats = NDArray[np.float64]
LEVEL = 0.95
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
BLOCK = 65_536  # numbers at a time: 512 kB, which a core keeps at hand
MOST_TASKS = 12  # 2,047 patterns of signs: of more tasks, all patterns are too many
_EXACT = 10  # decimals: sums of the same numbers in another order are one number


@dataclass(frozen=True)
class Difference:
    """value: first score less second, in their unit; low, high: its 95 % interval; p: of no difference, two-sided.

    low, high and p are None where the draws are too few, or too many of them could not be computed. error: its standard
    error, None where they are and where the difference is the same in every draw; df: degrees of freedom of that, infinite
    where all noise is of the items.
    """

    value: float
    low: float | None = None
    high: float | None = None
    p: float | None = None
    error: float | None = None
    df: float = inf


def critical_value(draws: Floats, level: float = LEVEL) -> float:
    """The number that a statistic must exceed for (1 + #{draws >= statistic}) / (B + 1) to be below 1 - `level`.

    draws: (B,) of the statistic where the null hypothesis holds. Infinite for fewer than 1 / (1 - level) draws.
    """
    return float(critical_values(draws[None, :], level)[0])


def critical_values(draws: Floats, level: float = LEVEL) -> Floats:
    """(m,): `critical_value` of each row of draws (m, B)."""
    count = draws.shape[1]
    allowed = ceil((1 - level) * (count + 1) - 1e-9) - 2  # how many draws may reach a significant statistic
    if allowed < 0:
        return np.full(len(draws), inf)
    at = count - 1 - allowed
    return np.asarray(np.partition(draws, at, axis=1)[:, at])


def paired_difference(value_a: float, value_b: float, draws_a: ArrayLike, draws_b: ArrayLike) -> Difference:
    """The difference of two scores with a symmetric bootstrap interval and test, which always agree.

    draws: (B,) of each score over the same resamples, so that what makes an item hard for both cancels. The deviations
    |d* - d| stand for those of d from the truth (Hall 1992, The Bootstrap and Edgeworth Expansion, 3.6): p = (1 + #{|d* -
    d| >= |d|}) / (B + 1), and d +- their 95 % quantile leaves 0 out exactly where p < 0.05. Resamples that one of the two
    has no score of are left out; with more than 5 % of them there is no interval and no test.
    """
    value, deviations = paired_deviations(value_a, value_b, draws_a, draws_b)
    half = critical_value(deviations)
    if half == inf:
        return Difference(value)
    p = (1 + int(np.count_nonzero(deviations >= abs(value)))) / (len(deviations) + 1)
    error = _error(np.subtract(draws_a, draws_b), max(abs(value_a), abs(value_b)))
    return Difference(value, value - half, value + half, p, error)


def paired_deviations(value_a: float, value_b: float, draws_a: ArrayLike, draws_b: ArrayLike) -> tuple[float, Floats]:
    """The difference of two scores, and (n,) the sizes |d* - d| of its deviations in n resamples, as `paired_difference`
    takes both: n is 0 where more than 5 % of the resamples have no score."""
    value = _rounded(value_a - value_b, max(abs(value_a), abs(value_b)))
    differences = np.subtract(draws_a, draws_b, dtype=np.float64)
    kept = differences[np.isfinite(differences)]
    if len(kept) < LEVEL * len(differences):
        return value, np.zeros(0)
    return value, np.abs(kept - value)


def holm(p: Sequence[float]) -> list[float]:
    """p-values corrected for testing all of them (Holm 1979), in the order given: none decreases, none exceeds 1."""
    corrected, largest = [0.0] * len(p), 0.0
    for rank, index in enumerate(sorted(range(len(p)), key=lambda index: p[index])):
        largest = max(largest, min(1.0, (len(p) - rank) * p[index]))
        corrected[index] = largest
    return corrected


def _error(draws: Floats, size: float) -> float | None:
    """The standard deviation of (B,) draws of a difference, NaN of none; None where it is only rounding."""
    kept = draws[np.isfinite(draws)]
    error = float(np.std(kept, ddof=1)) if len(kept) > 1 else 0.0
    return error if error > ROUNDING * size else None


def _rounded(difference: float, size: float) -> float:
    """0 for a difference that is only rounding: it would be equal in every resample and so look certain."""
    return 0.0 if abs(difference) <= ROUNDING * size else difference


def few_enough(reached: Ints, draws: int, level: float = LEVEL) -> Bools:
    """Whether p = (1 + how many of the draws reached a statistic) / (1 + draws) is below 1 - `level`."""
    return np.asarray(1 + reached < (1 - level) * (draws + 1) - 1e-9)


def rejected(statistics: Floats, drawn: Callable[[Ints], Floats], draws: int, level: float = LEVEL) -> tuple[Bools, Floats]:
    """bool (m,): which of m hypotheses are rejected, at a family-wise error rate of 1 - `level`; (draws,): the largest drawn
    statistics of all.

    drawn: m' indices -> (m', draws) statistics where the null hypotheses hold, of the same draws each time. From the largest
    statistic on, each is compared with the largest drawn one of all hypotheses that are not yet rejected; the first that
    is reached by too many draws ends it. The hypotheses are looked at from the smallest statistic on, some at a time, so
    that one pass gives all these maxima.
    """
    order = np.argsort(statistics, kind="stable")
    passed = np.empty(len(order), dtype=np.bool_)
    largest = np.zeros(draws)
    block = max(1, BLOCK // max(draws, 1))
    for start in range(0, len(order), block):
        some = order[start : start + block]
        maxima = drawn(some)
        np.maximum(maxima[0], largest, out=maxima[0])
        np.maximum.accumulate(maxima, axis=0, out=maxima)
        largest = maxima[-1].copy()
        passed[start : start + block] = few_enough((maxima >= statistics[some][:, None]).sum(axis=1), draws, level)
    # Equal statistics stand or fall together: the first of them is met with fewer maxima than the last.
    sizes = statistics[order]
    last = np.searchsorted(sizes, sizes, side="right") - 1
    passed = passed[last]
    standing = np.flatnonzero(~passed)
    result = np.zeros(len(order), dtype=np.bool_)
    result[order[(standing[-1] + 1 if len(standing) else 0) :]] = True
    return result, largest


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
    >>> from stsbench.metrics.paired import different_over_tasks
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

    >>> from stsbench.metrics.paired import sign_patterns
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
