"""The vectors of every process in one tensor, with the gradient that each way of gathering has."""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from stsbench.training.api.batch import Shares

Gathering = Literal["exact", "simcse", "local"]
"""How the vectors of several processes come together: see `gather`."""


def gather(vectors: Tensor, shares: Shares, mode: Gathering = "exact") -> Tensor:
    """(N, d) vectors of the global batch, in the order of the ranks, from this process's (n, d); every process must call.

    "exact": a row's gradient is summed over all processes. With the loss of the own rows on each, a mean over processes
    (DDP) and the loop's scaling by count, R processes of B rows have the gradient of one process with R * B.
    "simcse": the rows of others carry no gradient, as in the code of Gao, Yao and Chen (2021). With the loss of all rows
    on every process (queries gathered, too) and DDP's mean, the gradient is 1/R of that of one process.
    "local": the vectors as they are. With a single process every mode gives just that.
    """
    if mode not in ("exact", "simcse", "local"):
        raise ValueError(f"gather {mode!r} is unknown (there are exact, simcse, local)")
    if len(vectors) != shares.sizes[shares.rank]:
        raise ValueError(f"{len(vectors)} vectors for a share of {shares.sizes[shares.rank]} (rank {shares.rank})")
    if mode == "local" or len(shares.sizes) == 1:
        return vectors
    if mode == "exact":
        gathered: Tensor = _Gather.apply(vectors, shares)  # type: ignore[no-untyped-call]
        return gathered
    rows = _collect(vectors.detach(), shares)
    rows[shares.rank] = vectors
    return torch.cat(rows)


def apply_to_all_rows(module: nn.Module, vectors: Tensor, shares: Shares, mode: Gathering = "exact") -> Tensor:
    """(v * n, d') what `module` gives for this process's (v * n, d) vectors, view after view, where it looks at all rows of
    a call, as batch normalisation does. In train mode every process must call.

    "exact": at the rows of all processes, in the order that one process has them in, so that several processes equal one;
    each computes all and keeps its own. Else, and in eval mode, at its own alone.
    """
    if len(shares.sizes) == 1 or mode != "exact" or not module.training:
        alone: Tensor = module(vectors)
        return alone
    n = shares.sizes[shares.rank]
    rows = gather(vectors.unflatten(0, (-1, n)).transpose(0, 1).flatten(1), shares, "exact")  # (N, v * d)
    every = rows.unflatten(1, (-1, vectors.shape[1])).transpose(0, 1)  # (v, N, d)
    projected: Tensor = module(every.flatten(0, 1)).unflatten(0, every.shape[:2])
    return projected[:, shares.start : shares.start + n].flatten(0, 1)


def counted(count: int, device: torch.device) -> Shares:
    """The shares of rows of which this process has `count`, whatever the others have; every process must call."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return Shares((count,))
    here = torch.tensor([count], device=device)
    counts = [torch.empty_like(here) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, here)
    return Shares(tuple(int(size) for size in counts), dist.get_rank())


class _Gather(torch.autograd.Function):
    """Forward: concatenate over processes. Backward: sum over processes, and of that the own rows."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, shares: Shares) -> Tensor:
        ctx.shares = shares
        return torch.cat(_collect(vectors, shares))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        shares: Shares = ctx.shares
        total = gradient.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total[shares.start : shares.start + shares.sizes[shares.rank]], None


def _collect(vectors: Tensor, shares: Shares) -> list[Tensor]:
    """[rank] -> its rows; shares are padded to the largest, as the collective wants equal shapes."""
    if dist.get_world_size() != len(shares.sizes):
        raise ValueError(f"a batch split over {len(shares.sizes)} processes, but there are {dist.get_world_size()}")
    padded = vectors.new_zeros(max(shares.sizes), *vectors.shape[1:])
    padded[: len(vectors)] = vectors
    received = [torch.empty_like(padded) for _ in shares.sizes]
    dist.all_gather(received, padded)
    return [rows[:size] for rows, size in zip(received, shares.sizes, strict=True)]
