"""Batches of a training: a method's views of a global batch, one process's share of them as tensors, the terms of a loss,
and `gather`, which collects the vectors of all processes, with gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from stsbench.training.modules.edits import IGNORED as IGNORED

Ragged = Sequence["Sequence[int] | np.ndarray"]
"""`[example]` -> token ids."""

Gathering = Literal["exact", "simcse", "local"]
"""How the vectors of several processes are gathered, and with which gradients: see `gather`."""


class Examples(Protocol):
    """The rows of one batch that `Method.views` is called with (implemented by stsbench.data.text.examples.Rows)."""

    rows: Sequence[int]  # row numbers in the data set
    roles: tuple[str, ...]  # the roles that `Needs.roles` chose, without "label" and "score"

    def ids(self, role: str) -> list[np.ndarray]:
        """Return the token ids of a role's texts, one array a row, cut at max_length, special tokens included."""

    def texts(self, role: str) -> list[str]:
        """Return the texts of a role, one a row."""

    def labels(self) -> list[int]:
        """Return the label of each row, as a class number."""

    def scores(self) -> list[float]:
        """Return the score of each row, a finite number within `Needs.score_range`."""


@dataclass
class Views:
    """A global batch of n examples before padding.

    tokens: `[view][example]` -> token ids, each view of n examples; extra: name -> `[view][example]` -> integers aligned
    with those tokens (masked copies, MLM labels); it may hold fewer views than tokens do. labels: `[example]` class
    numbers; scores: `[example]` numbers. one_length: every process pads to the longest row of the whole batch, for losses
    that depend on padding. by_row: name -> `[view]` -> (n, ...) numbers, of the same shape for each row. of_rows: whether
    each view is made from its row's own texts, which a guide and teachers read; not so a view of the following sentence.
    """

    tokens: list[Ragged]
    extra: dict[str, list[Ragged]] = field(default_factory=dict)
    labels: Sequence[int] | None = None
    one_length: bool = False
    scores: Sequence[float] | None = None
    by_row: dict[str, list[np.ndarray]] = field(default_factory=dict)
    of_rows: bool = True


@dataclass(frozen=True)
class Shares:
    """The split of a global batch over processes: rank r holds sizes[r] examples, in the order of the ranks."""

    sizes: tuple[int, ...]
    rank: int = 0

    @property
    def start(self) -> int:
        return sum(self.sizes[: self.rank])

    @property
    def total(self) -> int:
        return sum(self.sizes)


@dataclass
class Batch:
    """One process's share of a batch: n examples with v views each, padded to L tokens.

    ids, mask: (v * n, L), all of view 0, then all of view 1, ...; mask is 1 on real tokens; extra: name -> (v * n, L),
    padded with IGNORED where the name ends in "labels", else with the padding token; labels: (n,) or None; scores: (n,)
    floating point or None. labelled: this process's share of the batch of labelled rows that accompanies this batch if the
    method needs one (`Needs.labelled`), else None. by_row: name -> (v * n, ...).
    """

    ids: Tensor
    mask: Tensor
    views: int
    shares: Shares
    extra: dict[str, Tensor] = field(default_factory=dict)
    labels: Tensor | None = None
    labelled: Batch | None = None
    scores: Tensor | None = None
    labelled_only: bool = False  # whether the batch holds labelled rows, in a stage without other data
    by_row: dict[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids) // self.views


@dataclass
class Term:
    """One term of a loss: `value` is its mean over `count` items of this process. The loss is the sum over terms of `weight`
    times the mean over the items of all processes."""

    value: Tensor
    count: int
    weight: float = 1.0


def gather(vectors: Tensor, shares: Shares, mode: Gathering = "exact") -> Tensor:
    """Return the (N, d) vectors of the global batch, in the order of the ranks; every process must call this with its (n,
    d).

    "exact": a row's gradient is summed over all processes. If each process computes the loss of its own rows, DDP's mean
    over processes and the loop's scaling by count give R processes of B rows the gradient of one process with R * B rows.
    "simcse": the rows of other processes carry no gradient, as in the code of Gao, Yao and Chen (2021). If every process
    computes the loss of all rows (queries gathered, too), DDP's mean gives 1/R of the gradient of one process.
    "local": this process's vectors, unchanged, which every mode gives with a single process.
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


def gather_columns(similarities: Tensor, shares: Shares, mode: Gathering) -> Tensor:
    """Return the similarities that a loss needs: of own rows to all columns (exact), to own (local), of all rows (simcse).

    similarities: (n, k N), of this process's n rows to k columns for each of the N rows of the global batch.
    """
    if mode == "local":
        blocks = similarities.unflatten(1, (-1, shares.total))
        local: Tensor = blocks[:, :, shares.start : shares.start + len(similarities)].flatten(1)
        return local
    return gather(similarities, shares, mode) if mode == "simcse" else similarities


def apply_to_all_rows(module: nn.Module, vectors: Tensor, shares: Shares, mode: Gathering = "exact") -> Tensor:
    """Return the (v * n, d') outputs of `module` for this process's (v * n, d) vectors, view after view. For modules whose
    outputs depend on all rows, such as batch normalisation. In train mode every process must call this.

    "exact": each process applies the module to the rows of all, in the order that a single process has them in, and keeps
    the outputs of its own rows. In other modes, and in eval mode, it is applied to the process's own rows.
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
    """Return how rows are shared, this process having `count` of them. Every process must call this."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return Shares((count,))
    here = torch.tensor([count], device=device)
    counts = [torch.empty_like(here) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, here)
    return Shares(tuple(int(size) for size in counts), dist.get_rank())


class _Gather(torch.autograd.Function):
    """Concatenation over processes; its backward pass sums the gradient over processes and keeps the own rows."""

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
    """Return each rank's rows. Shares are padded to the largest for the collective, which requires equal shapes."""
    if dist.get_world_size() != len(shares.sizes):
        raise ValueError(f"a batch split over {len(shares.sizes)} processes, but there are {dist.get_world_size()}")
    padded = vectors.new_zeros(max(shares.sizes), *vectors.shape[1:])
    padded[: len(vectors)] = vectors
    received = [torch.empty_like(padded) for _ in shares.sizes]
    dist.all_gather(received, padded)
    return [rows[:size] for rows, size in zip(received, shares.sizes, strict=True)]
