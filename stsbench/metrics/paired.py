"""Tests and intervals of the difference between two scores on the same items; and many such tests jointly."""

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
BLOCK = 65_536  # numbers at a time: 512 kB, which a core keeps at hand


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
    """Return the number that a statistic must exceed for (1 + #{draws >= statistic}) / (B + 1) to be below 1 - `level`.

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
    """Return the difference of two scores with a symmetric bootstrap interval and test, which always agree.

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
    drawn = np.subtract(draws_a, draws_b)
    drawn = drawn[np.isfinite(drawn)]
    error = float(np.std(drawn, ddof=1)) if len(drawn) > 1 else 0.0
    rounding = ROUNDING * max(abs(value_a), abs(value_b))
    return Difference(value, value - half, value + half, p, error if error > rounding else None)


def paired_deviations(value_a: float, value_b: float, draws_a: ArrayLike, draws_b: ArrayLike) -> tuple[float, Floats]:
    """Return the difference of two scores, and (n,) the sizes |d* - d| of its deviations in n resamples, as
    `paired_difference` takes both: n is 0 where more than 5 % of the resamples have no score."""
    value = value_a - value_b
    if abs(value) <= ROUNDING * max(abs(value_a), abs(value_b)):  # it would be equal in every resample and so look certain
        value = 0.0
    differences = np.subtract(draws_a, draws_b, dtype=np.float64)
    kept = differences[np.isfinite(differences)]
    if len(kept) < LEVEL * len(differences):
        return value, np.zeros(0)
    return value, np.abs(kept - value)


def holm(p: Sequence[float]) -> list[float]:
    """Return p-values corrected for testing all of them (Holm 1979), in the order given: none decreases, none exceeds 1."""
    corrected, largest = [0.0] * len(p), 0.0
    for rank, index in enumerate(sorted(range(len(p)), key=lambda index: p[index])):
        largest = max(largest, min(1.0, (len(p) - rank) * p[index]))
        corrected[index] = largest
    return corrected


def few_enough(reached: Ints, draws: int, level: float = LEVEL) -> Bools:
    """Return whether p = (1 + how many of the draws reached a statistic) / (1 + draws) is below 1 - `level`."""
    return np.asarray(1 + reached < (1 - level) * (draws + 1) - 1e-9)


def rejected(statistics: Floats, draw: Callable[[Ints], Floats], draws: int, level: float = LEVEL) -> tuple[Bools, Floats]:
    """Return bool (m,): which of m hypotheses are rejected, at a family-wise error rate of 1 - `level`; (draws,): the
    largest drawn statistics of all.

    draw: m' indices -> (m', draws) statistics where the null hypotheses hold, of the same draws each time. From the largest
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
        maxima = draw(some)
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
