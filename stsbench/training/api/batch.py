"""What a method makes of a batch of rows, and what the loop makes of that: tensors of one process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

IGNORED = -100
"""A label at a position without a loss."""

Ragged = Sequence["Sequence[int] | np.ndarray"]
"""`[example]` -> token ids."""


class Examples(Protocol):
    """The rows of one batch, as `Method.views` sees them (stsbench.data.text.examples.Rows gives it)."""

    rows: Sequence[int]  # places in the data set
    roles: tuple[str, ...]  # those that `Needs.roles` chose, but for "label" and "score"

    def ids(self, role: str) -> list[np.ndarray]:
        """Token ids, special tokens included, cut at max_length, of a role's text, one array a row."""

    def texts(self, role: str) -> list[str]:
        """The role's text, one a row."""

    def labels(self) -> list[int]:
        """The label of each row, as a class number."""

    def scores(self) -> list[float]:
        """The score of each row, a finite number within `Needs.score_range`."""


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
