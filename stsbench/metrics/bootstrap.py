"""Bootstrap distributions of correlations without sorting a single resample.

A resample is a vector of how often each pair was drawn. Mid-ranks under such weights follow from one cumulative sum over
pairs sorted once, so a thousand resamples cost a few passes over the data.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_BLOCK = 64  # resamples at a time: the working set stays in the processor's cache


def resample_counts(n: int, resamples: int, seed: tuple[int, ...]) -> NDArray[np.float64]:
    """float64 (resamples, n): how often each of n pairs is drawn when n are drawn with replacement.

    The same `seed` and n give the same draws for every encoder, so that two encoders' intervals are paired.
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    draws = rng.integers(0, n, size=(resamples, n), dtype=np.int64)
    draws += np.arange(resamples, dtype=np.int64)[:, None] * n
    return np.asarray(np.bincount(draws.ravel(), minlength=resamples * n).reshape(resamples, n), dtype=np.float64)


class _Ranker:
    """Weighted mid-ranks of one variable x (n,), ties shared, for many weightings."""

    def __init__(self, x: Floats) -> None:
        order = np.argsort(x, kind="stable")
        new = np.r_[True, x[order][1:] != x[order][:-1]]
        self.order, self.starts = order, np.flatnonzero(new)
        self.group = np.empty(len(x), dtype=np.int64)
        self.group[order] = np.cumsum(new) - 1

    def __call__(self, counts: Floats) -> Floats:
        """(b, n) mid-ranks under (b, n) counts, less their mean, which is half the number drawn."""
        weight = counts[:, self.order]
        if len(self.starts) < len(self.order):
            weight = np.add.reduceat(weight, self.starts, axis=1)
        middle = np.cumsum(weight, axis=1)
        middle -= weight / 2
        middle -= len(self.order) / 2
        return np.asarray(middle[:, self.group])


def _weighted_pearson(x: Floats, y: Floats, counts: Floats) -> Floats:
    """(b,) correlations of x and y, each (b, n) or (1, n), under (b, n) counts."""
    total = np.maximum(counts.sum(axis=1), np.finfo(np.float64).tiny)  # Poisson counts of a small subset may all be 0
    weighted_x, weighted_y = counts * x, counts * y
    mean_x, mean_y = weighted_x.sum(axis=1) / total, weighted_y.sum(axis=1) / total
    x, y = np.broadcast_to(x, counts.shape), np.broadcast_to(y, counts.shape)
    covariance = np.einsum("bn,bn->b", weighted_x, y) - total * mean_x * mean_y
    square_x = np.einsum("bn,bn->b", weighted_x, x) - total * mean_x**2
    square_y = np.einsum("bn,bn->b", weighted_y, y) - total * mean_y**2
    spread = np.sqrt(np.maximum(square_x, 0) * np.maximum(square_y, 0))
    # A resample that drew one value only has no correlation: NaN, left out by `interval`.
    varies = np.minimum(square_x, square_y) > 1e-9 * total  # above what rounding leaves of a constant
    return np.asarray(np.divide(covariance, spread, out=np.full_like(covariance, np.nan), where=varies))


def bootstrap_correlation(predicted: Floats, gold: Floats, counts: Floats, metric: str) -> Floats:
    """(resamples,) correlations of (n,) `predicted` with (n,) `gold` under (resamples, n) `counts`."""
    predicted, gold = np.asarray(predicted, np.float64), np.asarray(gold, np.float64)
    out = np.empty(len(counts))
    rankers = (_Ranker(predicted), _Ranker(gold)) if metric == "spearman" else None
    # Standardised, so that the sums of squares keep their digits whatever the units.
    x, y = ((values - values.mean()) / (values.std() or 1.0) for values in (predicted, gold))
    for start in range(0, len(counts), _BLOCK):
        block = counts[start : start + _BLOCK]
        if rankers:
            out[start : start + _BLOCK] = _weighted_pearson(rankers[0](block), rankers[1](block), block)
        else:
            out[start : start + _BLOCK] = _weighted_pearson(x[None], y[None], block)
    return out


def interval(draws: Floats, level: float = 0.95) -> tuple[float, float] | None:
    """Percentile interval of (resamples,) draws; None when more than 5 % of them could not be computed.

    None also for fewer than 2 / (1 - level) draws (40), which have no such percentiles.
    """
    finite = draws[np.isfinite(draws)]
    if len(finite) < 0.95 * len(draws) or len(finite) * (1 - level) < 2 - 1e-9:
        return None
    low, high = np.quantile(finite, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
