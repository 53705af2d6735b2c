"""Similarities of paired vectors (cosine, dot, ...), and Spearman's and Pearson's correlation with gold scores."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from stsbench.errors import ScoreError

Floats = NDArray[np.float64]
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
_BLOCK = 16_384  # pairs in a block: float64 copies of all vectors would take twice the memory of float32 ones


def zero_rows(vectors: Any) -> NDArray[np.bool_]:
    """Return bool (n,): which rows of (n, d) `vectors`, dense or CSR, are zero."""
    if sparse.issparse(vectors):
        return np.asarray(np.asarray(abs(vectors).sum(axis=1)).ravel() == 0, dtype=np.bool_)
    return np.asarray(~np.asarray(vectors).any(axis=1), dtype=np.bool_)


def paired_similarity(first: Any, second: Any, name: str = "cosine") -> Floats:
    """Return float64 (n,) similarity of row i of `first` with row i of `second`, both (n, d), dense or CSR.

    Distances are negated, so that larger is always more similar. A zero vector's cosine is 0 (SentEval maps its NaN to 0).
    For dense vectors of whole numbers (bits, int8), cosines that are mathematically equal are equal to the last bit, as
    broken ties changed a Spearman of bits by up to .26 points. Count vectors (CSR) are divided by one root of the product of
    both squares, as for published values of lexical encoders, which breaks a few ties (.01 points).
    """
    if name not in SIMILARITIES:
        raise ValueError(f"unknown similarity '{name}'; known: {', '.join(SIMILARITIES)}")
    blocks = (slice(start, start + _BLOCK) for start in range(0, first.shape[0], _BLOCK))
    return np.concatenate([np.zeros(0), *(_similarity(first[at], second[at], name) for at in blocks)])


def _similarity(first: Any, second: Any, name: str) -> Floats:
    measure = _sparse if sparse.issparse(first) else _dense
    if name in ("manhattan", "euclidean"):
        return -measure(first, second, name)
    dot, square_a, square_b = (measure(*pair, "dot") for pair in ((first, second), (first, first), (second, second)))
    if name == "dot":
        return dot
    norms = np.sqrt(square_a * square_b)
    cosines = np.divide(dot, norms, out=np.zeros_like(dot), where=norms > 0)
    if sparse.issparse(first):
        return cosines
    whole = np.flatnonzero(whole_rows(first) & whole_rows(second))
    cosines[whole] = whole_cosines(dot[whole], square_a[whole], square_b[whole], cosines[whole])
    return cosines


def whole_rows(vectors: Any) -> NDArray[np.bool_]:
    """Return bool (n,): which rows of dense (n, d) `vectors` hold only whole numbers."""
    vectors = np.asarray(vectors)
    if vectors.dtype.kind in "iub":
        return np.ones(len(vectors), dtype=np.bool_)
    whole = np.isfinite(vectors[:, :1]).all(axis=1) & (vectors[:, :1] == np.rint(vectors[:, :1])).all(axis=1)
    rows = np.flatnonzero(whole)  # the first number of other vectors is hardly ever whole, so few rows are left to check
    whole[rows] = (vectors[rows] == np.rint(vectors[rows])).all(axis=1)
    return np.asarray(whole, dtype=np.bool_)


def whole_cosines(dot: Floats, square_a: Floats, square_b: Floats, rounded: Floats) -> Floats:
    """Return (n,) cosines of vectors of whole numbers from their products, as the root of a fraction in lowest terms, so
    that equal cosines are the same number; `rounded` where products are 0 or too large for exact integers."""
    largest = np.maximum(square_a, square_b)
    exact = (largest < 2.0**53) & (square_a * square_b < 2.0**62) & (square_a * square_b > 0)
    above, below = (np.where(exact, part, 1).astype(np.int64) for part in (dot, square_a))
    above, below = above * above, below * np.where(exact, square_b, 1).astype(np.int64)
    shared = np.gcd(above, below)
    return np.where(exact, np.sign(dot) * np.sqrt((above // shared) / (below // shared)), rounded)


def _dense(first: Any, second: Any, name: str) -> Floats:
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if name == "dot":
        return np.asarray(np.einsum("nd,nd->n", a, b))
    return np.asarray(np.linalg.norm(a - b, ord=1 if name == "manhattan" else 2, axis=1))


def _sparse(first: Any, second: Any, name: str) -> Floats:
    a, b = first.astype(np.float64), second.astype(np.float64)
    if name == "dot":
        return np.asarray(a.multiply(b).sum(axis=1)).ravel()
    gap = abs(a - b)
    if name == "manhattan":
        return np.asarray(gap.sum(axis=1)).ravel()
    return np.asarray(np.sqrt(np.asarray(gap.multiply(gap).sum(axis=1)).ravel()))


METRICS = ("spearman", "pearson")
LEAST = 3  # the fewest pairs with a meaningful correlation


def correlation(predicted: NDArray[np.floating], gold: NDArray[np.floating], metric: str, items: int | None = None) -> float:
    """Return the correlation of two (n,) arrays, -1 to 1, by scipy, with average ranks for ties. metric: "spearman" or
    "pearson"; items: the number of distinct pairs, n by default.

    Raises ScoreError for fewer than three pairs (the correlation of two is always 1 or -1), and for constant or non-finite
    predictions or gold scores.
    """
    predicted, gold = np.asarray(predicted, np.float64), np.asarray(gold, np.float64)
    if (pairs := len(predicted) if items is None else items) < LEAST:
        reason = ": over two it is 1 or -1, whatever they are" if pairs == 2 else ""
        raise ScoreError(f"a correlation needs at least three pairs, not {pairs}{reason}")
    for name, values in (("predictions", predicted), ("gold scores", gold)):
        if not np.isfinite(values).all():
            raise ScoreError(f"{int((~np.isfinite(values)).sum())} of {len(values)} {name} are NaN or infinite")
        if np.ptp(values) <= 1e-12 * np.abs(values).max():  # cosines of parallel vectors may differ in the last bit
            raise ScoreError(f"all {len(values)} {name} are equal ({values[0]:g}): their correlation is undefined")
    from scipy import stats  # imported here, as it takes half a second that other commands need not spend

    function = stats.spearmanr if metric == "spearman" else stats.pearsonr
    return float(function(predicted, gold).statistic)


def fall_as_scores_rise(similarity: NDArray[np.float64], scores: NDArray[Any]) -> bool:
    """Return whether (n,) similarities fall as (n,) scores or labels rise: Spearman's correlation below 0, at 1 %."""
    from scipy.stats import spearmanr

    varied = min(len(np.unique(similarity)), len(np.unique(scores))) > 1
    return varied and bool(spearmanr(similarity, scores, alternative="less").pvalue < 0.01)
