"""What a method makes of a batch of rows, what the loop makes of that (tensors of one process), and the vectors of every
process in one tensor, with the gradient that each way of gathering has."""

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
"""How the vectors of several processes come together: see `gather`."""


class Examples(Protocol):
    """The rows of one batch, as `Method.views` sees them (stsbench.data.text.examples.Rows gives it)."""

    rows: Sequence[int]  # places in the data set
    roles: tuple[str, ...]  # those that `Needs.roles` chose, but for "label" and "score"

    def ids(self, role: str) -> list[np.ndarray]:
        """Return token ids, special tokens included, cut at max_length, of a role's text, one array a row."""

    def texts(self, role: str) -> list[str]:
        """Return the role's text, one a row."""

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
    that padding is part of. by_row: name -> `[view]` -> (n, ...) numbers of each row, as many whatever its length. of_rows:
    whether each view is of its row's own texts, as a guide and teachers read them: not where it is of a following sentence.
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
    """How a global batch is split over processes: rank r holds sizes[r] examples, in the order of the ranks."""

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
    """One process's share of a batch: n examples, v views, L the longest of them in tokens.

    ids, mask: (v * n, L), all of view 0, then all of view 1, ...; mask is 1 on real tokens; extra: name -> (v * n, L),
    padded with IGNORED where the name ends in "labels", else with the padding token; labels: (n,) or None; scores: (n,)
    floating point or None. labelled: the share of a batch of labelled rows that goes with this one, where the method asks
    for it (`Needs.labelled`). by_row: name -> (v * n, ...).
    """

    ids: Tensor
    mask: Tensor
    views: int
    shares: Shares
    extra: dict[str, Tensor] = field(default_factory=dict)
    labels: Tensor | None = None
    labelled: Batch | None = None
    scores: Tensor | None = None
    labelled_only: bool = False  # its rows are labelled ones, in a stage without other data
    by_row: dict[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids) // self.views


@dataclass
class Term:
    """One term of a loss: `value` is a mean over `count` items of this process; the loss is the sum of weight * mean over
    the items of all processes."""

    value: Tensor
    count: int
    weight: float = 1.0


def gather(vectors: Tensor, shares: Shares, mode: Gathering = "exact") -> Tensor:
    """Return (N, d) vectors of the global batch, in the order of the ranks, from this process's (n, d); every process must
    call.

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


def gather_columns(similarities: Tensor, shares: Shares, mode: Gathering) -> Tensor:
    """Return the similarities of the rows that a loss is of, by `gather`, to the columns that it compares them with.

    similarities: (n, k N) of this process's n rows to k columns for each of the batch's N; mode: how vectors are gathered.
    """
    if mode == "local":
        blocks = similarities.unflatten(1, (-1, shares.total))
        local: Tensor = blocks[:, :, shares.start : shares.start + len(similarities)].flatten(1)
        return local
    return gather(similarities, shares, mode) if mode == "simcse" else similarities


def apply_to_all_rows(module: nn.Module, vectors: Tensor, shares: Shares, mode: Gathering = "exact") -> Tensor:
    """Return (v * n, d') what `module` gives for this process's (v * n, d) vectors, view after view, where it looks at all
    rows of a call, as batch normalisation does. In train mode every process must call.

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
    """Return the shares of rows of which this process has `count`, whatever the others have; every process must call."""
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
    """Return [rank] -> its rows; shares are padded to the largest, as the collective wants equal shapes."""
    if dist.get_world_size() != len(shares.sizes):
        raise ValueError(f"a batch split over {len(shares.sizes)} processes, but there are {dist.get_world_size()}")
    padded = vectors.new_zeros(max(shares.sizes), *vectors.shape[1:])
    padded[: len(vectors)] = vectors
    received = [torch.empty_like(padded) for _ in shares.sizes]
    dist.all_gather(received, padded)
    return [rows[:size] for rows, size in zip(received, shares.sizes, strict=True)]
