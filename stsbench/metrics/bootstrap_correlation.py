"""Bootstrap distributions of correlations, of many encoders at once, without sorting a single resample.

A resample is a vector of how often each pair was drawn. Mid-ranks under such weights follow from one running sum over
pairs sorted once, so a thousand resamples cost a few passes over the data. What the gold scores alone decide is computed
once for all encoders.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.metrics.bootstrap import blocks_of

Floats = NDArray[np.float64]
Counts = NDArray[np.signedinteger[Any]]


def bootstrap_correlation(predicted: Floats, gold: Floats, counts: Floats, metric: str) -> Floats:
    """(resamples,) correlations of (n,) `predicted` with (n,) `gold` under (resamples, n) `counts`.

    Of (e, n) `predicted`, those of e encoders, (e, resamples).
    """
    predicted = np.asarray(predicted, np.float64)
    correlate = BootstrapCorrelation(np.atleast_2d(predicted), gold, metric)
    drawn = np.concatenate([np.empty((len(correlate), 0)), *(correlate(block) for block in blocks_of(counts))], axis=1)
    return drawn if predicted.ndim == 2 else np.asarray(drawn[0])


class BootstrapCorrelation:
    """Correlations of `predicted` (e, n) with `gold` (n,), prepared once; called with (b, n) counts it gives (e, b) of them.

    NaN, which `interval` leaves out, for a resample that drew one value only.
    """

    def __init__(self, predicted: Floats, gold: Floats, metric: str) -> None:
        self._encoders = len(predicted)
        gold = np.asarray(gold, np.float64)
        self._correlate = (_Spearman if metric == "spearman" else _Pearson)(np.asarray(predicted, np.float64), gold)

    def __len__(self) -> int:
        return self._encoders

    def __call__(self, counts: Floats) -> Floats:
        return self._correlate(counts)


class _Spearman:
    """The ranks of N drawn values sum to N^2 / 2, and their squares about the mean to (N^3 - sum of t^3) / 12, where a value
    is drawn t times (Kendall's correction for ties). All sums are of whole numbers: they are exact.
    """

    def __init__(self, predicted: Floats, gold: Floats) -> None:
        self._predicted, self._gold = [_Ranker(row) for row in predicted], _Ranker(gold)

    def __call__(self, counts: Floats) -> Floats:
        total = counts.sum(axis=1)
        # Resamples side by side: a pair's counts are neighbours in memory, and moved and added together.
        kind = np.int16 if 2 * total.max(initial=0) < np.iinfo(np.int16).max else np.int32
        times: Counts = counts.T.astype(kind, order="C")
        cubes = _cubes(times)
        ranks, excess = self._gold(times)
        square_gold = _squares(cubes + excess, total)
        weights = np.empty(ranks.shape)
        weights[self._gold.order] = ranks
        weights -= total  # the mean of the ranks: the weights sum to 0
        weights *= times
        out = np.empty((len(self._predicted), len(total)))
        for i, ranker in enumerate(self._predicted):
            ranks, excess = ranker(times)
            # Twice the ranks in both factors.
            covariance = np.einsum("nb,nb->b", np.take(weights, ranker.order, axis=0, mode="clip"), ranks) / 4
            out[i] = _correlation(covariance, _squares(cubes + excess, total), square_gold, total)
        return out


class _Ranker:
    """Weighted mid-ranks of one variable x (n,), ties shared, for many weightings."""

    def __init__(self, x: Floats) -> None:
        self.order = np.argsort(x, kind="stable")
        differs = x[self.order][1:] != x[self.order][:-1]
        first, last = np.flatnonzero(np.r_[True, differs]), np.flatnonzero(np.r_[differs, True])  # of each distinct value
        several = last > first
        self._first, self._last = first[several], last[several]  # of values that several items have: most have one
        sizes = self._last - self._first + 1
        self._value = np.repeat(np.arange(len(sizes)), sizes)  # of each of these items
        self._items = np.arange(len(self._value)) + np.repeat(self._first - np.cumsum(sizes) + sizes, sizes)

    def __call__(self, times: Counts) -> tuple[Counts, Floats]:
        """(n, b) twice the mid-ranks, less 1, in the variable's order, under (n, b) counts; (b,) by how much the cubes of
        the counts of distinct values exceed those of the items."""
        drawn = np.take(times, self.order, axis=0, mode="clip")
        ranks = drawn.copy()
        _running_sum(ranks)
        up_to = np.take(ranks, self._last, axis=0)
        before = np.take(ranks, self._first, axis=0) - np.take(drawn, self._first, axis=0)
        ranks += ranks
        ranks -= drawn
        ranks[self._items] = np.take(up_to + before, self._value, axis=0)
        return ranks, _cubes(up_to - before) - _cubes(np.take(drawn, self._items, axis=0))


def _cubes(counts: Counts) -> Floats:
    """(b,) sums of the cubes of (k, b) counts."""
    times = counts.astype(np.float64)
    return np.asarray(np.einsum("kb,kb->b", times * times, times))


def _squares(cubes: Floats, total: Floats) -> Floats:
    """(b,) the squares of the ranks about their mean, summed over `total` draws."""
    return np.asarray((total**3 - cubes) / 12)


def _running_sum(rows: Counts) -> None:
    """Replace each row of (n, b) by the sum of the rows up to it: within eights first, then over the eights.

    numpy's own sum walks down one column after another, which takes several times as long.
    """
    whole = len(rows) // 8 * 8
    if whole:
        eights = rows[:whole].reshape(-1, 8, rows.shape[1])
        for i in range(1, 8):
            eights[:, i] += eights[:, i - 1]
        ends = eights[:-1, -1].copy()
        _running_sum(ends)
        eights[1:] += ends[:, None]
    for i in range(max(whole, 1), len(rows)):
        rows[i] += rows[i - 1]


class _Pearson:
    def __init__(self, predicted: Floats, gold: Floats) -> None:
        # Standardised, so that the sums of squares keep their digits whatever the units.
        x, y = _standardised(predicted), _standardised(gold)
        self._encoders = len(x)
        self._summed = np.ascontiguousarray(np.concatenate([x, x * x, x * y, [y, y * y]]).T)

    def __call__(self, counts: Floats) -> Floats:
        total = np.maximum(counts.sum(axis=1), np.finfo(np.float64).tiny)  # Poisson counts of a small subset may all be 0
        sums = (counts @ self._summed).T
        x, squares_x, products = (sums[i * self._encoders : (i + 1) * self._encoders] for i in range(3))
        y, squares_y = sums[-2:]
        covariance = products - x * y / total
        return _correlation(covariance, squares_x - x * x / total, squares_y - y * y / total, total)


def _standardised(values: Floats) -> Floats:
    spread = values.std(axis=-1, keepdims=True)
    spread[spread == 0] = 1
    return np.asarray((values - values.mean(axis=-1, keepdims=True)) / spread)


def _correlation(covariance: Floats, square_x: Floats, square_y: Floats, total: Floats) -> Floats:
    """From sums over `total` (b,) draws."""
    spread = np.sqrt(np.maximum(square_x, 0) * np.maximum(square_y, 0))
    varies = np.minimum(square_x, square_y) > 1e-9 * total  # above what rounding leaves of a constant
    return np.asarray(np.divide(covariance, spread, out=np.full_like(covariance, np.nan), where=varies))
