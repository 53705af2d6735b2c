"""Bootstrap: resamples as counts of how often each item is drawn, correlations under them, intervals; stratified folds.

Several rows may be one item, as a pair that a file holds twice. item: int (n,), equal numbers for the rows of one item.

Mid-ranks under counts follow from one running sum over pairs sorted once, so a thousand resamples of a correlation cost a
few passes over the data. Whatever depends on the gold scores alone is computed once for all encoders.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.integer[Any]]
FEWEST_DRAWS = 40  # fewer draws have no 2.5 % and 97.5 % percentiles
ROUNDING = 1e-9  # relative to the scores' size: how much a score may differ between two ways of computing it
_NUMBERS = 300_000  # counts in a block: the arrays computed from them stay in the processor's cache
_MOST = 4_000_000  # counts in a block of very many pairs: some ten arrays of this size are in memory at once
Counts = NDArray[np.signedinteger[Any]]


def resample_counts(n: int, resamples: int, seed: tuple[int, ...]) -> Floats:
    """Return float64 (resamples, n): how often each of n pairs is drawn when n are drawn with replacement.

    The same `seed` and n give the same draws for every encoder, so that two encoders' intervals are paired.
    """
    return np.concatenate([np.empty((0, n)), *resample_blocks(n, resamples, seed, block_rows(n))])


def block_rows(n: int) -> int:
    """Return the number of resamples of n pairs in a block, by the processor's cache and, for many pairs, by memory."""
    return min(512, max(32, _NUMBERS // max(n, 1))) if 32 * n <= _MOST else max(1, _MOST // n)


def resample_blocks(
    n: int, resamples: int, seed: tuple[int, ...], rows: int, item: Ints | None = None
) -> Iterator[Floats]:
    """Yield the rows of `resample_counts` in blocks of `rows`. With `item`, items are drawn instead of pairs, as many as
    there are, each with all of its rows."""
    if item is not None and (items := distinct(item)) < n:
        at = np.unique(item, return_inverse=True)[1]
        yield from (block[:, at] for block in resample_blocks(items, resamples, seed, rows))
        return
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    for start in range(0, resamples, rows):
        rows = min(rows, resamples - start)
        draws = rng.integers(0, n, size=(rows, n), dtype=np.int64)
        draws += np.arange(rows, dtype=np.int64)[:, None] * n
        yield np.bincount(draws.ravel(), minlength=rows * n).reshape(rows, n).astype(np.float64)


def count_blocks(counts: NDArray[Any]) -> Iterator[Floats]:
    """Yield the rows of (resamples, n) counts as float64, in blocks of `block_rows`."""
    rows = block_rows(counts.shape[1])
    for start in range(0, len(counts), rows):
        yield np.asarray(counts[start : start + rows], dtype=np.float64)


def fisher_interval(
    draws: Floats, value: float, n: int, level: float = 0.95, stretch: float = 1.0
) -> tuple[float, float] | None:
    """Return the interval of a correlation `value`, or of a mean of correlations, from (resamples,) draws of it; unit 1.

    It is symmetric on Fisher's z, and reaches as far as `level` of the draws lie from the value, stretched by
    sqrt(n / (n - 1)) and by the ratio of Student's quantile, n - 2 degrees of freedom, to the normal one, since a bootstrap
    of few pairs is too narrow: the percentile interval of Pearson's correlation covers only 90 to 93 % at 20 pairs. None
    where `interval` is None. stretch: the least factor, for dependent items (`metrics.shared_sentences`); infinite: None.
    """
    from scipy.special import ndtri, stdtrit

    if interval(draws, level) is None or not np.isfinite(stretch):
        return None
    finite = draws[np.isfinite(draws)]
    most = 1 - 1e-15  # resamples of few pairs may have a correlation of 1, whose z is infinite
    centre = np.arctanh(np.clip(value, -most, most))
    tail = (1 + level) / 2
    stretched = max(np.sqrt(n / max(n - 1, 1)) * stdtrit(max(n - 2, 1), tail) / ndtri(tail), stretch)
    reach = stretched * np.quantile(np.abs(np.arctanh(np.clip(finite, -most, most)) - centre), level)
    # Where every draw equals the value, rounding must not put it outside of the interval.
    return min(float(np.tanh(centre - reach)), value), max(float(np.tanh(centre + reach)), value)


def interval(draws: Floats, level: float = 0.95) -> tuple[float, float] | None:
    """Return the percentile interval of (resamples,) draws; None when more than 5 % of them could not be computed.

    None also for fewer than 2 / (1 - level) draws (40), which have no such percentiles, and where all draws are equal up to
    rounding, as those of 4 correct among 4 are, which do not show how certain the share is.
    """
    finite = draws[np.isfinite(draws)]
    if len(finite) < 0.95 * len(draws) or len(finite) * (1 - level) < 2 - 1e-9:
        return None
    low, high = np.quantile(finite, [(1 - level) / 2, (1 + level) / 2]).tolist()
    return None if is_point(low, high) else (low, high)


def is_point(low: float, high: float) -> bool:
    """Return whether the ends of an interval are equal up to rounding, so that it does not count as one."""
    return abs(high - low) <= ROUNDING * max(abs(low), abs(high), 1.0)


def distinct(item: Ints) -> int:
    """Return the number of distinct items."""
    return len(np.unique(item))


def stratified_folds(label: NDArray[Any], folds: int, seed: int, item: Ints) -> NDArray[np.int64]:
    """Return int64 (n,), the fold of each row: scikit-learn's stratified folds of the items, shuffled by `seed`.

    The class of an item is that of its first row. Raises ValueError, as scikit-learn does, where every class has fewer items
    than there are folds.
    """
    from sklearn.model_selection import StratifiedKFold

    _, first, at = np.unique(item, return_index=True, return_inverse=True)
    order = np.argsort(first)  # items in the order of their first rows, so that repeated rows do not change the folds
    fold = np.empty(len(first), dtype=np.int64)
    splitter = StratifiedKFold(n_splits=folds, shuffle=True, random_state=seed)
    for number, (_, held_out) in enumerate(splitter.split(np.zeros(len(first)), label[first[order]])):
        fold[order[held_out]] = number
    return fold[at]


def bootstrap_correlation(predicted: Floats, gold: Floats, counts: Floats, metric: str) -> Floats:
    """Return (resamples,) correlations of (n,) `predicted` with (n,) `gold` under (resamples, n) `counts`.

    For (e, n) `predicted` of e encoders, they are (e, resamples).
    """
    predicted = np.asarray(predicted, np.float64)
    correlate = BootstrapCorrelation(np.atleast_2d(predicted), gold, metric)
    drawn = np.concatenate([np.empty((len(correlate), 0)), *(correlate(block) for block in count_blocks(counts))], axis=1)
    return drawn if predicted.ndim == 2 else np.asarray(drawn[0])


class BootstrapCorrelation:
    """Bootstrap of the correlations of `predicted` (e, n) with `gold` (n,): a call with (b, n) counts returns them, (e, b).

    A resample in which all drawn values are equal has NaN, which `interval` leaves out.
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
    """Spearman's correlation under counts.

    The ranks of N drawn values sum to N^2 / 2, and their squares about the mean to (N^3 - sum of t^3) / 12, where a value is
    drawn t times (Kendall's correction for ties). All sums are of whole numbers, and so exact."""

    def __init__(self, predicted: Floats, gold: Floats) -> None:
        self._predicted, self._gold = [_Ranker(row) for row in predicted], _Ranker(gold)

    def __call__(self, counts: Floats) -> Floats:
        total = counts.sum(axis=1)
        # Transposed, a pair's counts in all resamples are neighbours in memory, and are moved and added together.
        kind = np.int16 if 2 * total.max(initial=0) < np.iinfo(np.int16).max else np.int32
        times: Counts = counts.T.astype(kind, order="C")
        cubes = _cubes(times)
        ranks, excess = self._gold(times)
        square_gold = _squares(cubes + excess, total)
        weights = np.empty(ranks.shape)
        weights[self._gold.order] = ranks
        weights -= total  # less the mean of the ranks, so that the weights sum to 0
        weights *= times
        out = np.empty((len(self._predicted), len(total)))
        for i, ranker in enumerate(self._predicted):
            ranks, excess = ranker(times)
            # Divided by 4, as both factors hold twice the ranks.
            covariance = np.einsum("nb,nb->b", np.take(weights, ranker.order, axis=0, mode="clip"), ranks) / 4
            out[i] = _correlation(covariance, _squares(cubes + excess, total), square_gold, total)
        return out


class _Ranker:
    """Mid-ranks of a variable x (n,) under many counts, prepared once; tied values share their mean rank."""

    def __init__(self, x: Floats) -> None:
        self.order = np.argsort(x, kind="stable")
        differs = x[self.order][1:] != x[self.order][:-1]
        first, last = np.flatnonzero(np.r_[True, differs]), np.flatnonzero(np.r_[differs, True])  # of each distinct value
        several = last > first
        self._first, self._last = first[several], last[several]  # only of tied values, as most values are distinct
        sizes = self._last - self._first + 1
        self._value = np.repeat(np.arange(len(sizes)), sizes)  # the number of the value of each tied item
        self._items = np.arange(len(self._value)) + np.repeat(self._first - np.cumsum(sizes) + sizes, sizes)

    def __call__(self, times: Counts) -> tuple[Counts, Floats]:
        """Return, under (n, b) counts, (n, b) twice the mid-ranks, less 1, in the variable's order; and (b,) the sum of the
        cubed counts of distinct values less that of the items."""
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
    """Return (b,) sums of the cubes of (k, b) counts."""
    times = counts.astype(np.float64)
    return np.asarray(np.einsum("kb,kb->b", times * times, times))


def _squares(cubes: Floats, total: Floats) -> Floats:
    """Return (b,) the sum of squares of the ranks about their mean, over `total` (b,) draws. cubes: of counts of values."""
    return np.asarray((total**3 - cubes) / 12)


def _running_sum(rows: Counts) -> None:
    """Replace each row of (n, b) by the sum of the rows up to it, first within blocks of eight rows, then over the blocks.

    numpy's cumsum goes down one column after another, which takes several times as long.
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
        # Variables are standardised, so that sums of squares keep their digits in any unit.
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
    """Return (..., b) correlations from sums of products and squares over `total` (b,) draws; NaN for constant variables."""
    spread = np.sqrt(np.maximum(square_x, 0) * np.maximum(square_y, 0))
    varies = np.minimum(square_x, square_y) > 1e-9 * total  # the variance of a constant may not be 0, due to rounding
    return np.asarray(np.divide(covariance, spread, out=np.full_like(covariance, np.nan), where=varies))


def wilson(hits: float, n: float) -> tuple[float, float]:
    """Return the 95 % score interval of a share of `hits` among n > 0 (Wilson 1927, JASA 22:209-212), within 0 and 1."""
    z, share = 1.959963984540054, hits / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    spread = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    # Rounding must not put the share outside where all or none are hits.
    return min(share, max(0.0, middle - spread)), max(share, min(1.0, middle + spread))


def share_interval(hits: NDArray[np.bool_], item: Ints, stretch: float = 1.0) -> tuple[float, float]:
    """Return the 95 % score interval of the share of (n,) `hits`, n > 0; rows with equal numbers in `item` are one item.

    stretch: the factor by which dependent items widen it, as fewer items would; infinite: the interval is 0 to 1.
    """
    if not math.isfinite(stretch):
        return 0.0, 1.0
    effective = effective_rows(item) / stretch**2
    return wilson(int(hits.sum()) * effective / len(hits), effective)


def effective_rows(item: Ints) -> float:
    """Return the effective number of independent rows (Kish 1965, Survey Sampling, section 11.7): the number of items where
    all have equally many rows, fewer elsewhere."""
    sizes = np.unique(item, return_counts=True)[1]
    return len(item) ** 2 / int((sizes**2).sum())
