"""Paired bootstrap tests and intervals of the difference between two scores on the same items; multiple testing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, inf

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stsbench.metrics.bootstrap import ROUNDING

Floats = NDArray[np.float64]
LEVEL = 0.95
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
BLOCK = 65_536  # numbers in a block: 512 kB, which stay in a core's cache


@dataclass(frozen=True)
class Difference:
    """A difference between two scores, with its interval and test.

    value: first score less second, in their unit; low, high: its 95 % interval; p: two-sided, of no difference; all three
    None where draws are too few, or too many of them could not be computed. error: standard error, None where p is and where
    all draws are equal; df: degrees of freedom of `error`, infinite where all noise is due to the items."""

    value: float
    low: float | None = None
    high: float | None = None
    p: float | None = None
    error: float | None = None
    df: float = inf


def critical_value(draws: Floats, level: float = LEVEL) -> float:
    """Return the number that a statistic must exceed for (1 + #{draws >= statistic}) / (B + 1) to be below 1 - `level`.

    draws: (B,) of the statistic where the null hypothesis holds. Infinite for fewer than 1 / (1 - level) draws.
    """
    return float(critical_values(draws[None, :], level)[0])


def critical_values(draws: Floats, level: float = LEVEL) -> Floats:
    """Return (m,) the `critical_value` of each row of draws (m, B)."""
    count = draws.shape[1]
    allowed = ceil((1 - level) * (count + 1) - 1e-9) - 2  # number of draws that may reach a significant statistic
    if allowed < 0:
        return np.full(len(draws), inf)
    at = count - 1 - allowed
    return np.asarray(np.partition(draws, at, axis=1)[:, at])


def paired_difference(value_a: float, value_b: float, draws_a: ArrayLike, draws_b: ArrayLike) -> Difference:
    """Return the difference of two scores with a symmetric bootstrap interval and test, which always agree.

    draws: (B,) of each score over the same resamples, so that the difficulty of items cancels. The deviations |d* - d| of
    the draws d* estimate those of d from the truth (Hall 1992, The Bootstrap and Edgeworth Expansion, 3.6): p = (1 +
    #{|d* - d| >= |d|}) / (B + 1), and d +- their 95 % quantile excludes 0 exactly where p < 0.05. Resamples in which one of
    the two has no score are left out; with more than 5 % of them there is no interval and no test.
    """
    value, deviations = paired_deviations(value_a, value_b, draws_a, draws_b)
    half = critical_value(deviations)
    if half == inf:
        return Difference(value)
    p = (1 + int(np.count_nonzero(deviations >= abs(value)))) / (len(deviations) + 1)
    drawn = np.subtract(draws_a, draws_b)
    drawn = drawn[np.isfinite(drawn)]
    error = float(np.std(drawn, ddof=1)) if len(drawn) > 1 else 0.0
    rounding = ROUNDING * max(abs(value_a), abs(value_b))
    return Difference(value, value - half, value + half, p, error if error > rounding else None)


def paired_deviations(value_a: float, value_b: float, draws_a: ArrayLike, draws_b: ArrayLike) -> tuple[float, Floats]:
    """Return the difference of two scores, and (n,) its absolute deviations |d* - d| in n resamples, as `paired_difference`
    uses them; n is 0 where more than 5 % of the resamples have no score."""
    value = value_a - value_b
    if abs(value) <= ROUNDING * max(abs(value_a), abs(value_b)):  # rounding is equal in every resample and looks certain
        value = 0.0
    differences = np.subtract(draws_a, draws_b, dtype=np.float64)
    kept = differences[np.isfinite(differences)]
    if len(kept) < LEVEL * len(differences):
        return value, np.zeros(0)
    return value, np.abs(kept - value)


def holm(p: Sequence[float]) -> list[float]:
    """Return the p-values after Holm's correction for testing all of them (Holm 1979), in the same order, at most 1."""
    corrected, largest = [0.0] * len(p), 0.0
    for rank, index in enumerate(sorted(range(len(p)), key=lambda index: p[index])):
        largest = max(largest, min(1.0, (len(p) - rank) * p[index]))
        corrected[index] = largest
    return corrected


def few_enough(reached: Ints, draws: int, level: float = LEVEL) -> Bools:
    """Return bool: whether p = (1 + reached) / (1 + draws) is below 1 - `level`. reached: draws as large as a statistic."""
    return np.asarray(1 + reached < (1 - level) * (draws + 1) - 1e-9)


def rejected(statistics: Floats, draw: Callable[[Ints], Floats], draws: int, level: float = LEVEL) -> tuple[Bools, Floats]:
    """Return bool (m,), which of m hypotheses are rejected at a family-wise error rate of 1 - `level` (step-down); and
    (draws,), the maximum over all hypotheses of each draw.

    draw: m' indices -> (m', draws) statistics under the null hypotheses, from the same draws in each call. From the largest
    statistic on, each is compared with the maximum drawn statistic of all hypotheses that are not yet rejected, and the
    first that too many draws reach ends the rejections. The code goes from the smallest statistic on, in blocks, so that one
    pass gives all these maxima.
    """
    order = np.argsort(statistics, kind="stable")
    passed = np.empty(len(order), dtype=np.bool_)
    largest = np.zeros(draws)
    block = max(1, BLOCK // max(draws, 1))
    for start in range(0, len(order), block):
        some = order[start : start + block]
        maxima = draw(some)
        np.maximum(maxima[0], largest, out=maxima[0])
        np.maximum.accumulate(maxima, axis=0, out=maxima)
        largest = maxima[-1].copy()
        passed[start : start + block] = few_enough((maxima >= statistics[some][:, None]).sum(axis=1), draws, level)
    # Equal statistics are rejected together or not at all: the maxima of the last of them include those of the others.
    sizes = statistics[order]
    last = np.searchsorted(sizes, sizes, side="right") - 1
    passed = passed[last]
    standing = np.flatnonzero(~passed)
    result = np.zeros(len(order), dtype=np.bool_)
    result[order[(standing[-1] + 1 if len(standing) else 0) :]] = True
    return result, largest
