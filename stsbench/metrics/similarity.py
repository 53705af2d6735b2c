"""Similarity of paired vectors, by name."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Floats = NDArray[np.float64]
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
_BLOCK = 16_384  # pairs at a time: in float64, each side of all of them would take twice its memory again


def zero_rows(vectors: Any) -> NDArray[np.bool_]:
    """bool (n,): rows of (n, d), dense or CSR, that are zero throughout."""
    if sparse.issparse(vectors):
        return np.asarray(np.asarray(abs(vectors).sum(axis=1)).ravel() == 0, dtype=np.bool_)
    return np.asarray(~np.asarray(vectors).any(axis=1), dtype=np.bool_)


def paired_similarity(first: Any, second: Any, name: str = "cosine") -> Floats:
    """float64 (n,) similarity of row i of `first` with row i of `second`, both (n, d), dense or CSR.

    Distances are negated, so that more is always more similar. A zero vector's cosine is 0 (SentEval maps its NaN
    to 0). The norms are multiplied under one root: with two roots, pairs whose cosine is equal by mathematics (1/2 and
    2/4) differ in the last bit more often, and broken ties move a Spearman of count vectors by up to .03 points.
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
    return np.divide(dot, norms, out=np.zeros_like(dot), where=norms > 0)


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
