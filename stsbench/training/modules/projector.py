"""DiffCSE's projector: two linear layers with batch normalisation, in training only."""

from __future__ import annotations

import torch
from torch import Tensor, nn

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
