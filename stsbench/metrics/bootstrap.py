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
    return np.bincount(draws.ravel(), minlength=resamples * n).reshape(resamples, n).astype(np.float64)


class _Ranker:
    """Weighted mid-ranks of one variable x (n,), ties shared, for many weightings."""

    def __init__(self, x: Floats) -> None:
        self.order = np.argsort(x, kind="stable")
        ordered = x[self.order]
        self.starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
        group = np.cumsum(np.r_[False, ordered[1:] != ordered[:-1]])
        self.group = np.empty(len(x), dtype=np.int64)
        self.group[self.order] = group

    def __call__(self, counts: Floats) -> Floats:
        """(b, n) mid-ranks, up to a constant, under (b, n) counts."""
        weight = np.add.reduceat(counts[:, self.order], self.starts, axis=1)
        middle = np.cumsum(weight, axis=1) - weight / 2
        return middle[:, self.group]


def _weighted_pearson(x: Floats, y: Floats, counts: Floats) -> Floats:
    total = counts.sum(axis=1, keepdims=True)
    x = x - (counts * x).sum(axis=1, keepdims=True) / total
    y = y - (counts * y).sum(axis=1, keepdims=True) / total
    weighted = counts * x
    covariance = (weighted * y).sum(axis=1)
    spread = np.sqrt((weighted * x).sum(axis=1) * (counts * y * y).sum(axis=1))
    # A resample that drew one value only has no correlation: NaN, left out by `interval`.
    return np.divide(covariance, spread, out=np.full_like(covariance, np.nan), where=spread > 1e-12)


def bootstrap_correlation(predicted: Floats, gold: Floats, counts: Floats, metric: str) -> Floats:
    """(resamples,) correlations of (n,) `predicted` with (n,) `gold` under (resamples, n) `counts`."""
    predicted, gold = np.asarray(predicted, np.float64), np.asarray(gold, np.float64)
    out = np.empty(len(counts))
    rankers = (_Ranker(predicted), _Ranker(gold)) if metric == "spearman" else None
    for start in range(0, len(counts), _BLOCK):
        block = counts[start : start + _BLOCK]
        if rankers:
            out[start : start + _BLOCK] = _weighted_pearson(rankers[0](block), rankers[1](block), block)
        else:
            out[start : start + _BLOCK] = _weighted_pearson(predicted[None], gold[None], block)
    return out


def interval(draws: Floats, level: float = 0.95) -> tuple[float, float] | None:
    """Percentile interval of (resamples,) draws; None when more than 5 % of them could not be computed."""
    finite = draws[np.isfinite(draws)]
    if len(finite) < 0.95 * len(draws):
        return None
    low, high = np.quantile(finite, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
