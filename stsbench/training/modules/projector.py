"""What stands between the pooled vector and the loss, in training alone: perceptrons with batch normalisation or GELU, and
shuffled group whitening."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from stsbench.errors import StsbenchError

Split = Literal["per_third", "per_view", "whole"]


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
        """Return (m, width) -> (m, out). Raises StsbenchError in train mode for m < 2, which have no variance."""
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
        """Return (..., width) -> (..., inner)."""
        return functional.gelu(self.outer(functional.gelu(self.inner(vectors))))


class GroupWhitening(nn.Module):
    """Whitens the views of a batch by the batch's own statistics, in training and in evaluation. It has no weight.

    groups: G, which divides d; s = d / G features are whitened together. eps is added to the variances. detach_matrix: W is
    a constant for the gradient, which still passes through the mean. split: over which rows mean and covariance are taken,
    and a permutation is shared: per_view, the n rows of one view; whole, all v * n; per_third (released code), each of v
    consecutive parts of the rows when all views of a sentence stand side by side, so that with three views a part holds a
    third of the sentences.
    Source: Zhuo et al. (2023), WhitenedCSE; what its code does where that is another thing is `split`.
    """

    def __init__(
        self, groups: int, *, eps: float = 0.0, detach_matrix: bool = True, split: Split = "per_third"
    ) -> None:
        super().__init__()
        self.groups, self.eps, self.detach_matrix, self.split = groups, eps, detach_matrix, split

    def parts(self, views: int) -> int:
        """Return how many parts are whitened each for itself, and so how many permutations a batch of `views` views
        takes."""
        return 1 if self.split == "whole" else views

    def forward(self, views: Tensor, permutations: Tensor | None = None) -> Tensor:
        """Return (v, n, d) -> (v, n, d) in float32 at least, also under autocast.

        permutations: (parts, d), an order of the features for each part (see `parts`); None: as they are. Raises
        StsbenchError, one line, where a part has too few rows, or equal ones, for a covariance of full rank, and eps is 0.

        >>> import torch
        >>> whitened = GroupWhitening(2, split="per_view")(torch.randn(1, 50, 4, dtype=torch.float64))[0]
        >>> (whitened[:, :2].T @ whitened[:, :2] / 50).abs().round(decimals=6).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
        """
        v, n, d = views.shape
        side_by_side = self.split == "per_third"  # ex0 view0, ex0 view1, ..., ex1 view0, ...
        parts = (views.transpose(0, 1) if side_by_side else views).reshape(self.parts(v), -1, d)
        whitened = whiten_groups(parts, self.groups, permutations, eps=self.eps, detach_matrix=self.detach_matrix)
        return whitened.reshape(n, v, d).transpose(0, 1) if side_by_side else whitened.reshape(v, n, d)


def whiten_groups(
    parts: Tensor, groups: int, permutations: Tensor | None = None, *, eps: float = 0.0, detach_matrix: bool = True
) -> Tensor:
    """Return (p, m, d): of each of p parts y = (x - mean) W, group by group of the permuted features, in their old order.

        C = (x - mean)^T (x - mean) / m,    W = U diag((l + eps)^-1/2) U^T  with  C = U diag(l) U^T

    parts: (p, m, d), m rows each; permutations: (p, d) or None. W is symmetric (ZCA). Computed in float32 at least.
    Raises StsbenchError, one line, for eps 0 where C has not full rank in a group, as with m <= d / groups.
    """
    p, m, d = parts.shape
    size = d // groups
    if eps == 0 and 0 < m <= size:
        raise StsbenchError(
            f"options.split whitens groups of {size} features over {m} rows, which have no covariance of full rank: set "
            "options.eps, e.g. 1e-5, raise training.batch_size or options.groups, or set training.drop_last where it is the "
            "last batch"
        )
    with torch.autocast(parts.device.type, enabled=False):
        wide = parts.to(torch.promote_types(parts.dtype, torch.float32))
        if permutations is not None:
            wide = wide.gather(2, permutations[:, None].expand(p, m, d))
        grouped = wide.reshape(p, m, groups, size).transpose(1, 2)  # (p, G, m, s)
        centred = grouped - grouped.mean(2, keepdim=True)
        covariance = centred.transpose(2, 3) @ centred / max(m, 1)
        covariance = covariance.detach() if detach_matrix else covariance
        matrix = _InverseRoot.apply(covariance, eps)  # type: ignore[no-untyped-call]
        whitened: Tensor = (centred @ matrix).transpose(1, 2).reshape(p, m, d)
        if permutations is not None:
            whitened = whitened.gather(2, permutations.argsort(1)[:, None].expand(p, m, d))
    return whitened


class _InverseRoot(torch.autograd.Function):
    """(C + eps)^-1/2, (..., s, s), by the eigenvectors; StsbenchError where eps is 0 and C is singular. Its derivative is
    written out: that of an eigenvector is infinite where two eigenvalues are equal, and the root's is not."""

    @staticmethod
    def forward(ctx: Any, covariance: Tensor, eps: float) -> Tensor:
        on_cpu = covariance.device.type == "mps"  # which has no eigh
        values, vectors = torch.linalg.eigh(covariance.cpu() if on_cpu else covariance)
        values, vectors = values.to(covariance.device), vectors.to(covariance.device)
        if eps == 0:
            # below that an eigenvalue is rounding; comparing waits for a GPU, which eigh does anyway
            singular = values[..., 0] <= torch.finfo(values.dtype).eps * values[..., -1]
            if bool(singular.any()):
                raise StsbenchError(
                    "options.split whitens rows that span too few dimensions in a group of features (sentences that are "
                    "equal, views without dropout, or a feature that is constant): set options.eps, e.g. 1e-5"
                )
        roots = (values.clamp(min=0) + eps).sqrt()
        ctx.save_for_backward(roots, vectors)
        inverse: Tensor = (vectors / roots.unsqueeze(-2)) @ vectors.mT
        return inverse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        roots, vectors = ctx.saved_tensors
        one, other = roots.unsqueeze(-1), roots.unsqueeze(-2)
        slopes = -1 / (one * other * (one + other))  # (f(a) - f(b)) / (a - b) of f(l) = l^-1/2
        inner = vectors.mT @ ((gradient + gradient.mT) / 2) @ vectors
        return vectors @ (slopes * inner) @ vectors.mT, None
