"""How vectors of two widths are compared: the teachers' principal components, or a linear map of the student's."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stsbench.errors import StsbenchError

from .options import DistilOptions


class _Sized(nn.Module):
    """Weights and buffers that have the stored shapes when they are read: the teachers' width is not known before."""

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *more: Any) -> None:
        for name, value in [*self.named_parameters(recurse=False), *self.named_buffers(recurse=False)]:
            stored = state_dict.get(f"{prefix}{name}")
            if stored is not None and stored.shape != value.shape:
                new = value.new_empty(stored.shape)
                setattr(self, name, nn.Parameter(new) if isinstance(value, nn.Parameter) else new)
        super()._load_from_state_dict(state_dict, prefix, *more)


class PCA(_Sized):
    """The first k principal components of the teachers' vectors. It is stored in checkpoints, and not exported."""

    mean: Tensor  # (D,)
    components: Tensor  # (k, D), rows of length 1 by falling variance

    def __init__(self, center: bool) -> None:
        """center: subtract the mean of the vectors that it was fitted on."""
        super().__init__()
        self.center = center
        self.register_buffer("mean", torch.zeros(0))
        self.register_buffer("components", torch.zeros(0, 0))

    def fit(self, vectors: NDArray[np.float32], k: int) -> None:
        """vectors: (n, D), of which the components are. Raises StsbenchError, one line, for fewer than k."""
        if len(vectors) < k:
            raise StsbenchError(
                f"options.projection pca: {k} components need as many texts at least, and there are {len(vectors)}: set it "
                "to linear, or train on more text"
            )
        mean, components = principal_components(vectors, k)
        like = self.mean
        self.mean = torch.from_numpy(mean).to(like)
        self.components = torch.from_numpy(components).to(like)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return (n, D) -> (n, k)."""
        vectors = vectors.to(self.components.dtype)
        product: Tensor = ((vectors - self.mean) if self.center else vectors) @ self.components.T
        return product


class LinearProjection(_Sized):
    """W x + b, the student's vectors at the teachers' width: trained with it, stored in checkpoints, and not exported."""

    def __init__(self, width: int) -> None:
        """width: the student's."""
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(0, width))
        self.bias = nn.Parameter(torch.zeros(0))

    def start(self, width: int) -> None:
        """Random weights for this width of the teachers, as torch draws those of nn.Linear, by its global generator."""
        linear = nn.Linear(self.weight.shape[1], width)  # on the CPU: the same numbers on every device
        self.weight = nn.Parameter(linear.weight.detach().to(self.weight))
        self.bias = nn.Parameter(linear.bias.detach().to(self.bias))

    def forward(self, vectors: Tensor) -> Tensor:
        """Return (n, d) -> (n, D)."""
        return nn.functional.linear(vectors.to(self.weight.dtype), self.weight, self.bias)


def choose_projection(options: DistilOptions, student: int, teachers: int) -> str:
    """Return pca, linear or none for vectors of these widths. Raises StsbenchError, one line, where they do not fit."""
    kind = options.projection
    if kind == "auto" and teachers >= student:
        kind = "pca" if teachers > student else "none"
    if kind == "linear" or (kind == "pca" and teachers >= student) or (kind == "none" and teachers == student):
        return kind
    advice = "pca or linear" if teachers > student else "linear"
    raise StsbenchError(
        f"options.projection {options.projection}: the teachers have {teachers} numbers and the student {student}; "
        f"set it to {advice}"
    )


def principal_components(vectors: NDArray[Any], k: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return float64 (D,) the mean of (n, D) vectors, and (k, D) their first k principal components, k <= n, D.

    By the eigenvectors of the covariance, in float64. The number of a component that is greatest in size is positive, as
    in scikit-learn's PCA.
    """
    mean = vectors.mean(0, dtype=np.float64)
    covariance = np.zeros((vectors.shape[1], vectors.shape[1]))
    for start in range(0, len(vectors), 4096):  # so that no second copy of all vectors is made
        part = vectors[start : start + 4096] - mean
        covariance += part.T @ part
    _, eigenvectors = np.linalg.eigh(covariance)
    components = eigenvectors.T[::-1][:k]
    largest = components[np.arange(k), np.abs(components).argmax(1)]
    return mean, components * np.where(largest < 0, -1.0, 1.0)[:, None]
