"""Similarities of sentence vectors, dense or sparse: of all pairs of two sets, or row by row, as in sentence-transformers.

Binary vectors, of one bit a number, are packed into bytes and unpacked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, issparse

from stsbench.errors import EncoderError
from stsbench.metrics.similarity import SIMILARITIES, paired_similarity, whole_cosines, whole_rows

if TYPE_CHECKING:
    from torch import Tensor

Floats = NDArray[np.float32]
# Entry points for similarities of two texts that do not come from their sentence vectors, but from token vectors or from a
# model that reads both texts: functions of an encoder and two lists of n texts that return Compared or raise EncoderError.
GROUP = "stsbench.similarities"


@dataclass(frozen=True)
class Compared:
    """Similarities of n pairs of texts. values: float64 (n,); cut: bool (n,), pairs cut at the model's limit."""

    values: NDArray[np.float64]
    cut: NDArray[np.bool_]


def all_similarities(first: Any, second: Any, name: str) -> Tensor:
    """Return float32 (n, m) similarities of (n, d) to (m, d) vectors; a single vector (d,) counts as one row.

    Cosines that are mathematically equal come out equal to the last bit where dense vectors hold whole numbers.
    """
    import torch

    _check(name)
    if issparse(first) or issparse(second):
        return torch.from_numpy(_sparse(*_widened(first, second), name).astype(np.float32))
    a, b = _tensor(first), _tensor(second)
    if name in ("euclidean", "manhattan"):
        return -torch.cdist(a, b, p=2.0 if name == "euclidean" else 1.0)
    if name != "cosine":
        return a @ b.T
    normalize = torch.nn.functional.normalize
    cosines = normalize(a, dim=1) @ normalize(b, dim=1).T
    if not (a[:, :1] == a[:, :1].round()).all():  # a cheap test first: whole numbers are rare in a model's vectors
        return cosines
    x, y = a.cpu().double().numpy(), b.cpu().double().numpy()
    if not (whole_rows(x).all() and whole_rows(y).all()):
        return cosines
    squares = (x * x).sum(axis=1)[:, None], (y * y).sum(axis=1)[None]
    return torch.from_numpy(whole_cosines(x @ y.T, *squares, cosines.cpu().numpy())).to(cosines)


def pair_similarities(first: Any, second: Any, name: str) -> Tensor:
    """Return float32 (n,) similarities of row i of `first` to row i of `second`, both (n, d), computed in float64."""
    import torch

    _check(name)
    if issparse(first) or issparse(second):
        a, b = _widened(first, second)
    else:
        a, b = _tensor(first).cpu().numpy(), _tensor(second).cpu().numpy()
    if a.shape != b.shape:
        raise EncoderError(f"similarity_pairwise compares row with row: {a.shape} and {b.shape} are not of one shape")
    return torch.from_numpy(paired_similarity(a, b, name)).float()


def _check(name: str) -> None:
    if name not in SIMILARITIES:
        raise EncoderError(f"unknown similarity '{name}' (there are {', '.join(SIMILARITIES)})")


def _tensor(vectors: Any) -> Tensor:
    """Return float32 (n, d) of a tensor, an array or a list of either."""
    import torch

    if isinstance(vectors, list | tuple) and len(vectors) and isinstance(vectors[0], torch.Tensor):
        vectors = torch.stack(list(vectors))
    tensor = vectors if isinstance(vectors, torch.Tensor) else torch.from_numpy(np.array(vectors, dtype=np.float32))
    return tensor.detach().float().unsqueeze(0) if tensor.ndim == 1 else tensor.detach().float()


def _widened(first: Any, second: Any) -> tuple[csr_matrix, csr_matrix]:
    """Return both matrices as CSR of one width: the vocabulary of a lexical encoder grows from call to call."""
    a, b = (csr_matrix(vectors, copy=True) for vectors in (first, second))
    width = max(a.shape[1], b.shape[1])
    for matrix in (a, b):
        matrix.resize(matrix.shape[0], width)
    return a, b


def _sparse(first: csr_matrix, second: csr_matrix, name: str) -> Any:
    from sklearn.metrics import pairwise

    if name in ("euclidean", "manhattan"):
        return -getattr(pairwise, f"{name}_distances")(first, second)
    return (pairwise.cosine_similarity if name == "cosine" else pairwise.linear_kernel)(first, second, dense_output=True)


def packed(vectors: Floats) -> NDArray[np.uint8]:
    """Return uint8 (n, ceil(d / 8)): a bit for each number of (n, d) vectors, 1 where it is above 0, highest bit first."""
    return np.packbits(vectors > 0, axis=1)


def unpacked(rows: NDArray[np.uint8], dimension: int) -> Floats:
    """Return `packed` rows as float32 (n, d) vectors of 1 and 0."""
    return np.unpackbits(np.asarray(rows), axis=1, count=dimension).astype(np.float32)


def signs(rows: NDArray[np.uint8], dimension: int) -> Floats:
    """Return `packed` rows as float32 (n, d) of 1 and -1: a dot product of two is d minus twice their Hamming distance."""
    return unpacked(rows, dimension) * 2 - 1
