"""Projectors, in training only: two linear layers, with batch normalisation or GELU."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from stsbench.errors import StsbenchError


class BatchNormProjector(nn.Module):
    """BN'(W2 relu(BN(W1 x))): d -> 2d -> out, no biases; BN learns a scale and a shift, BN' learns nothing.

    W1, W2 from N(0, std^2), by torch's global generator; BatchNorm with momentum 0.1 and epsilon 1e-5. Statistics are over
    all rows of one call, and of this process alone: hand in all views at once. In eval mode: the running ones. All of it is
    computed in the weights' own type, also under autocast: bfloat16 has 8 bits for a difference from the mean.
    Source: Chuang et al. (2022), DiffCSE; the sizes and the last norm without a scale are those of the authors' code.
    """

    def __init__(self, width: int, out: int, std: float) -> None:
        super().__init__()
        self.inner = nn.Linear(width, 2 * width, bias=False)
        self.inner_norm = nn.BatchNorm1d(2 * width)
        self.outer = nn.Linear(2 * width, out, bias=False)
        self.outer_norm = nn.BatchNorm1d(out, affine=False)
        for linear in (self.inner, self.outer):
            nn.init.normal_(linear.weight, std=std)

    def forward(self, vectors: Tensor) -> Tensor:
        """(m, width) -> (m, out). Raises StsbenchError in train mode for m < 2, which have no variance."""
        if self.training and len(vectors) < 2:
            raise StsbenchError(
                f"batch normalisation needs 2 vectors at least in a process, and there is {len(vectors)}: "
                "raise training.batch_size"
            )
        with torch.autocast(vectors.device.type, enabled=False):
            vectors = self.inner_norm(self.inner(vectors.to(self.inner.weight.dtype)))
            projected: Tensor = self.outer_norm(self.outer(vectors.relu()))
        return projected


class GELUProjector(nn.Module):
    """gelu(W2 gelu(W1 x + b1) + b2): width -> inner -> inner, any number of leading dimensions.

    W1, W2 from N(0, std^2), by torch's global generator; b1, b2 = 0. GELU is by the error function.
    Source: Kim et al. (2021), SG-OPT, and loss.py of its code.
    """

    def __init__(self, width: int, inner: int, std: float) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(width, inner), nn.Linear(inner, inner)
        for linear in (self.inner, self.outer):
            nn.init.normal_(linear.weight, std=std)
            nn.init.zeros_(linear.bias)

    def forward(self, vectors: Tensor) -> Tensor:
        """(..., width) -> (..., inner)."""
        return functional.gelu(self.outer(functional.gelu(self.inner(vectors))))
