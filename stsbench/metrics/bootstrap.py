"""Bootstrap distributions of correlations without sorting a single resample.

A resample is a vector of how often each pair was drawn. Mid-ranks under such weights follow from one cumulative sum over
pairs sorted once, so a thousand resamples cost a few passes over the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]  # enough for a billion draws, in half the memory of int64
_NUMBERS = 24_000  # counts at a time: the working set stays in the processor's cache


def resample_counts(n: int, resamples: int, seed: tuple[int, ...]) -> NDArray[np.float64]:
    """float64 (resamples, n): how often each of n pairs is drawn when n are drawn with replacement.

    The same `seed` and n give the same draws for every encoder, so that two encoders' intervals are paired.
    """
    return np.concatenate([np.empty((0, n)), *resample_blocks(n, resamples, seed, block_rows(n))])


def block_rows(n: int) -> int:
    """How many rows of counts of n pairs are best handled at a time."""
    return max(8, _NUMBERS // max(n, 1))


def resample_blocks(n: int, resamples: int, seed: tuple[int, ...], rows: int) -> Iterator[Floats]:
    """The rows of `resample_counts`, so many at a time."""
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    for start in range(0, resamples, rows):
        rows = min(rows, resamples - start)
        draws = rng.integers(0, n, size=(rows, n), dtype=np.int64)
        draws += np.arange(rows, dtype=np.int64)[:, None] * n
        yield np.bincount(draws.ravel(), minlength=rows * n).reshape(rows, n).astype(np.float64)


class _Ranker:
    """Weighted mid-ranks of one variable x (n,), ties shared, for many weightings."""

    def __init__(self, x: Floats) -> None:
        order = np.argsort(x, kind="stable")
        last = np.r_[x[order][1:] != x[order][:-1], True]  # of the items of one value
        self.order, self.last = order, np.flatnonzero(last)
        self.group = np.empty(len(x), dtype=np.int64)
        self.group[order] = np.cumsum(last) - last

    def __call__(self, counts: Ints) -> tuple[Ints, Floats]:
        """(b, k) times that each of the k distinct values was drawn under (b, n) counts, from the lowest to the highest, and
        (b, n) mid-ranks, less their mean where n were drawn, which is n / 2.
        """
        drawn = np.take(counts, self.order, axis=1)
        # Sums of integers: a processor adds them several times as fast as floats, each of which waits for the one before.
        up_to = np.cumsum(drawn, axis=1, dtype=drawn.dtype)
        if len(self.last) < len(self.order):
            up_to = np.take(up_to, self.last, axis=1)
            drawn = up_to.copy()
            drawn[:, 1:] -= up_to[:, :-1]
        doubled = 2 * up_to
        doubled -= drawn
        doubled -= len(self.order)
        return drawn, np.take(doubled / 2, self.group, axis=1)


def _weighted_spearman(x: _Ranker, y: _Ranker, counts: Floats) -> Floats:
    """(b,) rank correlations of x and y under (b, n) counts.

    The ranks of N drawn values sum to N^2 / 2, and their squares about the mean to (N^3 - sum of t^3) / 12, where a value is
    drawn t times (Kendall's correction for ties).
    """
    whole = counts.astype(np.int32)
    (drawn_x, ranks_x), (drawn_y, ranks_y) = x(whole), y(whole)
    total = counts.sum(axis=1)
    ranks_x *= counts
    products = np.einsum("bn,bn->b", ranks_x, ranks_y)
    covariance = products - total * (total - counts.shape[1]) ** 2 / 4
    square_x, square_y = ((total**3 - _cubes(drawn)) / 12 for drawn in (drawn_x, drawn_y))
    return _correlation(covariance, square_x, square_y, total)


def _cubes(drawn: Ints) -> Floats:
    times = drawn.astype(np.float64)
    return np.asarray(np.einsum("bk,bk->b", times * times, times))


def _correlation(covariance: Floats, square_x: Floats, square_y: Floats, total: Floats) -> Floats:
    """(b,) from sums over `total` (b,) draws; NaN, which `interval` leaves out, for a resample that drew one value only."""
    spread = np.sqrt(np.maximum(square_x, 0) * np.maximum(square_y, 0))
    varies = np.minimum(square_x, square_y) > 1e-9 * total  # above what rounding leaves of a constant
    return np.asarray(np.divide(covariance, spread, out=np.full_like(covariance, np.nan), where=varies))


def _weighted_pearson(x: Floats, y: Floats, counts: Floats) -> Floats:
    """(b,) correlations of x (n,) and y (n,), both standardised, under (b, n) counts."""
    total = np.maximum(counts.sum(axis=1), np.finfo(np.float64).tiny)  # Poisson counts of a small subset may all be 0
    sum_x, sum_y, products, squares_x, squares_y = (counts @ values for values in (x, y, x * y, x * x, y * y))
    mean_x, mean_y = sum_x / total, sum_y / total
    covariance = products - total * mean_x * mean_y
    square_x, square_y = squares_x - total * mean_x**2, squares_y - total * mean_y**2
    return _correlation(covariance, square_x, square_y, total)


class BootstrapCorrelation:
    """Correlations of `predicted` (n,) with `gold` (n,), prepared once; called with (b, n) counts it gives (b,) of them."""

    def __init__(self, predicted: Floats, gold: Floats, metric: str) -> None:
        predicted, gold = np.asarray(predicted, np.float64), np.asarray(gold, np.float64)
        self._rankers = (_Ranker(predicted), _Ranker(gold)) if metric == "spearman" else None
        # Standardised, so that the sums of squares keep their digits whatever the units.
        self._x, self._y = ((values - values.mean()) / (values.std() or 1.0) for values in (predicted, gold))

    def __call__(self, counts: Floats) -> Floats:
        if self._rankers:
            return _weighted_spearman(*self._rankers, counts)
        return _weighted_pearson(self._x, self._y, counts)


def bootstrap_correlation(predicted: Floats, gold: Floats, counts: Floats, metric: str) -> Floats:
    """(resamples,) correlations of (n,) `predicted` with (n,) `gold` under (resamples, n) `counts`."""
    correlate = BootstrapCorrelation(predicted, gold, metric)
    return np.concatenate([np.empty(0), *(correlate(block) for block in blocks_of(counts))])


def blocks_of(counts: NDArray[Any]) -> Iterator[Floats]:
    """The rows of (resamples, n) counts, some at a time, as float64."""
    rows = block_rows(counts.shape[1])
    for start in range(0, len(counts), rows):
        yield np.asarray(counts[start : start + rows], dtype=np.float64)


def interval(draws: Floats, level: float = 0.95) -> tuple[float, float] | None:
    """Percentile interval of (resamples,) draws; None when more than 5 % of them could not be computed.

    None also for fewer than 2 / (1 - level) draws (40), which have no such percentiles.
    """
    finite = draws[np.isfinite(draws)]
    if len(finite) < 0.95 * len(draws) or len(finite) * (1 - level) < 2 - 1e-9:
        return None
    low, high = np.quantile(finite, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
