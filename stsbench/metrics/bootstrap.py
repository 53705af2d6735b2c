"""The bootstrap's resamples, as counts of how often each item was drawn, the intervals that they give, and folds of items.

Rows of a set may be one item, as a pair that a file holds twice. item: int (n,), equal numbers for the rows of one item.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.integer[Any]]
FEWEST_DRAWS = 40  # that have 2.5 % and 97.5 % percentiles
ROUNDING = 1e-9  # relative to the scores' size: how much two ways of computing one score may differ
_NUMBERS = 300_000  # counts at a time: what is computed from them stays in the processor's cache
_MOST = 4_000_000  # counts at a time of very many pairs: some ten arrays of this size are in memory at once


def resample_counts(n: int, resamples: int, seed: tuple[int, ...]) -> Floats:
    """float64 (resamples, n): how often each of n pairs is drawn when n are drawn with replacement.

    The same `seed` and n give the same draws for every encoder, so that two encoders' intervals are paired.
    """
    return np.concatenate([np.empty((0, n)), *resample_blocks(n, resamples, seed, block_rows(n))])


def block_rows(n: int) -> int:
    """How many rows of counts of n pairs are best handled at a time."""
    return min(512, max(32, _NUMBERS // max(n, 1))) if 32 * n <= _MOST else max(1, _MOST // n)


def resample_blocks(
    n: int, resamples: int, seed: tuple[int, ...], rows: int, item: Ints | None = None
) -> Iterator[Floats]:
    """The rows of `resample_counts`, so many at a time. With `item` as many items are drawn as there are, each with
    all of its rows."""
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


def blocks_of(counts: NDArray[Any]) -> Iterator[Floats]:
    """The rows of (resamples, n) counts, some at a time, as float64."""
    rows = block_rows(counts.shape[1])
    for start in range(0, len(counts), rows):
        yield np.asarray(counts[start : start + rows], dtype=np.float64)


def fisher_interval(draws: Floats, value: float, n: int, level: float = 0.95) -> tuple[float, float] | None:
    """Interval of a correlation `value`, or of a mean of correlations, from (resamples,) draws of it; unit 1.

    Symmetric on Fisher's z: as far as `level` of the draws lie from the value, stretched by sqrt(n / (n - 1)) and by the
    ratio of Student's quantile, n - 2 degrees of freedom, to the normal one: a bootstrap of few pairs is too narrow. The
    percentile interval of Pearson's correlation covers only 90 to 93 % at 20 pairs. None where `interval` is None.
    """
    from scipy.special import ndtri, stdtrit

    if interval(draws, level) is None:
        return None
    finite = draws[np.isfinite(draws)]
    most = 1 - 1e-15  # resamples of few pairs may lie on a line
    centre = np.arctanh(np.clip(value, -most, most))
    tail = (1 + level) / 2
    stretched = np.sqrt(n / max(n - 1, 1)) * stdtrit(max(n - 2, 1), tail) / ndtri(tail)
    reach = stretched * np.quantile(np.abs(np.arctanh(np.clip(finite, -most, most)) - centre), level)
    # Rounding must not leave the value outside where every draw is equal to it.
    return min(float(np.tanh(centre - reach)), value), max(float(np.tanh(centre + reach)), value)


def interval(draws: Floats, level: float = 0.95) -> tuple[float, float] | None:
    """Percentile interval of (resamples,) draws; None when more than 5 % of them could not be computed.

    None also for fewer than 2 / (1 - level) draws (40), which have no such percentiles, and where all draws are the same but
    for rounding: none can say how sure 4 of 4 is.
    """
    finite = draws[np.isfinite(draws)]
    if len(finite) < 0.95 * len(draws) or len(finite) * (1 - level) < 2 - 1e-9:
        return None
    low, high = np.quantile(finite, [(1 - level) / 2, (1 + level) / 2]).tolist()
    return None if is_point(low, high) else (low, high)


def is_point(low: float, high: float) -> bool:
    """Whether the ends of an interval are equal but for rounding: it is none."""
    return abs(high - low) <= ROUNDING * max(abs(low), abs(high), 1.0)


def distinct(item: Ints) -> int:
    """Return the number of items."""
    return len(np.unique(item))


def stratified_folds(label: NDArray[Any], folds: int, seed: int, item: Ints) -> NDArray[np.int64]:
    """Return int64 (n,), the fold of each row: scikit-learn's stratified folds of the items, shuffled by `seed`.

    An item is of the class of its first row. Raises ValueError, as scikit-learn does, where no class has as many items as
    there are folds.
    """
    from sklearn.model_selection import StratifiedKFold

    _, first, at = np.unique(item, return_index=True, return_inverse=True)
    order = np.argsort(first)  # the items by their first rows: rows that repeat earlier ones move no fold
    fold = np.empty(len(first), dtype=np.int64)
    splitter = StratifiedKFold(n_splits=folds, shuffle=True, random_state=seed)
    for number, (_, held_out) in enumerate(splitter.split(np.zeros(len(first)), label[first[order]])):
        fold[order[held_out]] = number
    return fold[at]
