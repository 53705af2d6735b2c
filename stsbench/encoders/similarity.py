"""What `Encoder.similarity` computes: all pairs of two sets of vectors, as sentence-transformers does, and sparse ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_matrix, issparse

from stsbench.errors import EncoderError
from stsbench.metrics.similarity import SIMILARITIES, paired_similarity, whole_cosines, whole_rows

if TYPE_CHECKING:
    from torch import Tensor


def all_similarities(first: Any, second: Any, name: str) -> Tensor:
    """float32 (n, m): each of n vectors with each of m, (n, d) and (m, d); a single vector (d,) is a set of one.

    Equal cosines of dense whole numbers are equal to the last bit.
    """
    import torch

    _check(name)
    if issparse(first) or issparse(second):
        return torch.from_numpy(_sparse(*_widened(first, second), name).astype(np.float32))
    a, b = _tensor(first), _tensor(second)
    similarities = _dense(a, b, name)
    if name != "cosine" or not (a[:, :1] == a[:, :1].round()).all():  # hardly a model's first number is whole
        return similarities
    kept = _with_ties(a.cpu().double().numpy(), b.cpu().double().numpy(), similarities.cpu().numpy(), name)
    return torch.from_numpy(kept).to(similarities)


def _dense(a: Tensor, b: Tensor, name: str) -> Tensor:
    import torch

    if name in ("euclidean", "manhattan"):
        return -torch.cdist(a, b, p=2.0 if name == "euclidean" else 1.0)
    if name == "cosine":
        a, b = torch.nn.functional.normalize(a, dim=1), torch.nn.functional.normalize(b, dim=1)
    return a @ b.T


def _with_ties(a: Any, b: Any, similarities: Any, name: str) -> Any:
    """(n, m) similarities; cosines of vectors of whole numbers from exact products."""
    if name != "cosine" or not (whole_rows(a).all() and whole_rows(b).all()):
        return similarities
    return whole_cosines(a @ b.T, (a * a).sum(axis=1)[:, None], (b * b).sum(axis=1)[None], similarities)


def pair_similarities(first: Any, second: Any, name: str) -> Tensor:
    """float32 (n,): row i of `first` with row i of `second`, both (n, d); computed in float64."""
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
    """float32 (n, d) of a tensor, an array or a list of either."""
    import torch

    if isinstance(vectors, list | tuple) and len(vectors) and isinstance(vectors[0], torch.Tensor):
        vectors = torch.stack(list(vectors))
    tensor = vectors if isinstance(vectors, torch.Tensor) else torch.from_numpy(np.array(vectors, dtype=np.float32))
    return tensor.detach().float().unsqueeze(0) if tensor.ndim == 1 else tensor.detach().float()


def _widened(first: Any, second: Any) -> tuple[csr_matrix, csr_matrix]:
    """Both as CSR of one width: the vocabulary of a lexical encoder grows from call to call."""
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
