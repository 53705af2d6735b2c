"""Geometry of sentence vectors on the unit sphere: alignment, uniformity, anisotropy, spectrum, cosines by human rating."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from stsbench.errors import ScoreError
from stsbench.metrics.similarity import zero_rows

Floats = NDArray[np.float64]
RATINGS = ("0-1", "1-2", "2-3", "3-4", "4-5")  # groups of ratings without the upper end, except for the last
_TILE = 1024  # pairwise terms are computed in tiles of 1024 x 1024, which take 8 MB for any n
_DENSE_LIMIT = 2**28  # the most bytes of sparse vectors when made dense


def directions(vectors: Any) -> Floats:
    """Return float64 (m, d): the rows of (n, d) `vectors`, dense or CSR, scaled to length 1, without zero rows.

    Raises ScoreError for sparse vectors that would need more than 256 MiB when dense.
    """
    kept = vectors[np.flatnonzero(~zero_rows(vectors))]
    if sparse.issparse(kept):
        size = 8 * kept.shape[0] * kept.shape[1]
        if size > _DENSE_LIMIT:
            raise ScoreError(
                f"sparse vectors of {kept.shape[1]} dimensions for {kept.shape[0]} sentences take {size / 2**20:.0f} MiB "
                "when dense; geometry supports 256 MiB: use an encoder with fewer dimensions"
            )
        kept = kept.toarray()
    # Divided by the largest entry first, as the square of a tiny or huge one would under- or overflow in float64.
    rows = np.array(kept, dtype=np.float64)
    rows /= np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def distances(first: Floats, second: Floats) -> Floats:
    """Return float64 (n,): Euclidean distance of row i of `first` from row i of `second`, both (n, d)."""
    return np.asarray(np.linalg.norm(first - second, axis=1))


def alignment(distance: Floats, alpha: float = 2.0) -> float:
    """Return E |f(x) - f(x+)|^alpha over (p,) distances of positive pairs of unit vectors; 0 is best (Wang & Isola 2020,
    4.1). Raises ScoreError without any pair."""
    if not len(distance):
        raise ScoreError("alignment needs at least one positive pair")
    return float(np.mean(distance**alpha))


def uniformity(unit: Floats, t: float = 2.0, tile: int = _TILE) -> float:
    """Return log E exp(-t |f(x) - f(y)|^2) over all pairs i < j of (n, d) unit vectors; lower is more uniform.

    Wang & Isola 2020, section 4.1. Computed as one log-sum-exp over all pairs, so that no t under- or overflows; memory does
    not grow with n^2. Raises ScoreError for fewer than two vectors.
    """
    n = _several(unit, "uniformity")
    total = -np.inf
    for top in range(0, n, tile):
        for left in range(top, n, tile):
            exponent = -t * np.maximum(2.0 - 2.0 * (unit[top : top + tile] @ unit[left : left + tile].T), 0.0)
            if top == left:
                exponent = exponent[np.triu_indices(len(exponent), 1)]
            if exponent.size:
                peak = exponent.max()
                total = np.logaddexp(total, peak + np.log(np.exp(exponent - peak).sum()))
    return float(total - np.log(n * (n - 1) / 2))


def anisotropy(unit: Floats) -> float:
    """Return the mean cosine of all pairs i != j of (n, d) unit vectors (Ethayarajh 2019, section 3.4, who samples pairs).

    Computed as (|sum u|^2 - sum |u|^2) / (n (n - 1)), exactly, without pairs. Raises ScoreError for fewer than two vectors.
    """
    n = _several(unit, "anisotropy")
    whole = unit.sum(axis=0)
    return float((whole @ whole - np.einsum("nd,nd->", unit, unit)) / (n * (n - 1)))


def singular_values(unit: Floats, centre: bool = False) -> Floats:
    """Return float64 (min(n, d),): singular values of the (n, d) matrix, largest first; `centre` subtracts its mean row.

    They are the roots of the eigenvalues of the smaller Gram matrix, several times faster than an SVD and exact to 1e-7 of
    the largest value, the precision of float32 vectors.
    """
    rows = unit - unit.mean(axis=0) if centre else unit
    gram = rows @ rows.T if len(rows) < rows.shape[1] else rows.T @ rows
    return np.asarray(np.sqrt(np.maximum(np.linalg.eigvalsh(gram)[::-1], 0.0)))


def relative(values: Floats) -> Floats:
    """Return singular values divided by the largest, which becomes 1. Raises ScoreError when all are zero."""
    if not len(values) or values[0] <= 0:
        raise ScoreError("every singular value is zero: all sentences have the same vector")
    return np.asarray(values / values[0])


def effective_rank(values: Floats) -> float:
    """Return the exponential of the entropy of singular values scaled to sum 1, between 1 and their number (Roy & Vetterli
    2007, definition 1). Raises ScoreError when all are zero."""
    share = relative(values) / relative(values).sum()
    share = share[share > 0]
    return float(np.exp(-(share * np.log(share)).sum()))


def explained_by_first(values: Floats) -> float:
    """Return the share of the first squared singular value in the sum of all, 0 to 1 (MEV: Ethayarajh 2019, def. 3)."""
    return float(1 / (relative(values) ** 2).sum())


def by_rating(cosine: Floats, gold: Floats) -> dict[str, Floats]:
    """Return group of RATINGS -> its cosines of (n,), for groups that have pairs (SimCSE, Gao et al. 2021, figure G.1)."""
    group = rating_groups(gold)
    return {name: cosine[group == i] for i, name in enumerate(RATINGS) if (group == i).any()}


def rating_groups(gold: Floats) -> NDArray[np.int64]:
    """Return int64 (n,): the position in RATINGS of each human rating. Raises ScoreError for one outside 0 to 5."""
    if outside := np.flatnonzero(~((gold >= 0) & (gold <= 5))).tolist():
        raise ScoreError(f"the rating of pair {outside[0] + 1} is {gold[outside[0]]:g}, not between 0 and 5")
    return np.asarray(np.minimum(gold.astype(np.int64), len(RATINGS) - 1))


def _several(unit: Floats, measure: str) -> int:
    if len(unit) < 2:
        raise ScoreError(f"{measure} needs at least two sentences with a non-zero vector, not {len(unit)}")
    return len(unit)
