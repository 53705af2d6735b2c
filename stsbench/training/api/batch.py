"""What a method makes of a batch of rows, what the loop makes of that (tensors of one process), and the vectors of every
process in one tensor, with the gradient that each way of gathering has; the texts of a row that a contrastive method uses,
and texts in which some sub-words or words stand twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from stsbench.encoders.forward.model import position_limit
from stsbench.errors import StsbenchError
from stsbench.training.api.options import Repetition
from stsbench.training.modules.backbone import Backbone

if TYPE_CHECKING:
    from stsbench.training.api.method import Method

IGNORED = -100
"""A label at a position without a loss."""

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


PAIRS = ("anchor", "positive", "negative", "negative2")
SCORED = ("sentence1", "sentence2", "score")
_MOST = 10  # the released code repeats fewer than so many


def pairs_or_sentence(
    roles: tuple[str, ...], method: str, view: str, *, unsupervised: str | None = None, supervised: str | None = None
) -> tuple[str, ...]:
    """Return ("sentence",) for plain text, else those of PAIRS among `roles`, in their order.

    method: its name, for messages; view: its options.view: "given" takes the positive from the data, anything else makes it
    of a plain sentence.
    unsupervised, supervised: recipes that an error recommends, if any. Raises StsbenchError, one line, for roles that lack
    or do not go with the view.
    """
    pairs = tuple(role for role in PAIRS if role in roles)
    if "sentence" in roles and pairs:
        raise StsbenchError(f"the data give both sentence and {pairs[0]}: name one or the other in data.columns")
    if not pairs:
        if "sentence" not in roles:
            raise StsbenchError(
                f"{method} needs the column sentence, or anchor and positive (the data give "
                f"{', '.join(roles) or 'no column'}): name them in data.columns"
            )
        if view == "given":
            raise StsbenchError(
                "options.view given takes anchor and positive from the data, and these give plain sentences: "
                f"{_take('an unsupervised', unsupervised)}set options.view dropout"
            )
        return ("sentence",)
    missing = next((role for role in ("anchor", "positive") if role not in pairs), None)
    if missing is not None:
        raise StsbenchError(f"{method} needs the column {missing} beside {pairs[0]}: name it in data.columns")
    if "negative2" in pairs and "negative" not in pairs:
        raise StsbenchError("data.columns names negative2 without negative: call a single hard negative negative")
    if view != "given":
        raise StsbenchError(
            f"options.view {view} makes positives of plain sentences, and the data give {', '.join(pairs)}: "
            f"{_take('a supervised', supervised)}set options.view given"
        )
    return pairs


def scored_pairs(roles: tuple[str, ...], method: str) -> tuple[str, ...]:
    """Return SCORED. method: the method, for the message. Raises StsbenchError, one line, for roles that lack one of them,
    as plain text does."""
    if not set(SCORED) <= set(roles):
        raise StsbenchError(
            f"{method} learns from pairs with scores, the columns sentence1, sentence2 and score (the data give "
            f"{', '.join(roles) or 'no column'}): name them in data.columns; for classes give --labelled and set "
            "options.format labelled"
        )
    return SCORED


def role_views(method: Method, rows: Examples) -> Views:
    """Return the sentence twice, or a view for each role in the rows' order, every text as `Method.read` gives it."""
    if rows.roles == ("sentence",):
        return Views([method.read(rows, "sentence")] * 2)
    return Views([method.read(rows, role) for role in rows.roles])


def _take(kind: str, recipe: str | None) -> str:
    return f"take {kind} recipe, e.g. {recipe}, or " if recipe is not None else ""


class Repeater:
    """The token ids of a role's texts with repetitions, drawn anew for each batch: a view of the same meaning and another
    length. Source: Wu et al. (2022), ESimCSE, and train.py of the authors' code (caskcsg/sentemb)."""

    def __init__(self, backbone: Backbone, options: Repetition) -> None:
        """Raise StsbenchError, one line, where repeated texts can be longer than the model has positions."""
        self.backbone, self.options = backbone, options
        limit, longest = position_limit(backbone.model, backbone.tokenizer), backbone.max_length
        if options.unit == "subword":
            longest += most_repeated(longest, options)
        if limit is not None and longest > limit:
            raise StsbenchError(
                f"options.repeat makes texts of up to {longest} tokens of backbone.max_length {backbone.max_length}, and "
                f"{backbone.name} has {limit} positions: lower backbone.max_length"
            )

    def __call__(self, rows: Examples, role: str, rng: np.random.Generator) -> Ragged:
        """Return `[row]` -> token ids. Sub-words are repeated in what is cut at max_length and not cut again; words
        before that."""
        if self.options.unit == "subword":
            return [self._repeat(np.asarray(ids), rng) for ids in rows.ids(role)]
        split = [np.array(text.split(" "), object) for text in rows.texts(role)]
        return self.backbone.tokenise([" ".join(self._repeat(words, rng)) for words in split])

    def _repeat(self, items: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
        indices = repeated(len(items), self.options, rng)
        return np.insert(items, indices, items[indices])


def most_repeated(count: int, options: Repetition) -> int:
    """Of a text of `count` items (tokens, special ones included, or words) the most that `repeated` repeats."""
    if options.count == "paper":
        candidates = max(count - 2, 0) if options.unit == "subword" else count
        return min(max(2, int(options.rate * candidates)), candidates)
    share = int(options.rate * count)
    bound = min(_MOST, share) if options.unit == "subword" else min(_MOST, count, max(2, share))
    return max(bound - 1, 0)


def repeated(count: int, options: Repetition, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return which of `count` items are repeated, in increasing order: k of the candidates without replacement, k uniform
    from 0.

    Candidates are the tokens but the first and the last, which are special. Of N tokens, those two included, the released
    code repeats min(10, int(rate N)) - 1 at most; of n words min(10, n, max(2, int(rate n))) - 1 and never the last word.
    The paper: max(2, int(rate n)) of all n, here without the special tokens.
    """
    first, last = (1, count - 1) if options.unit == "subword" else (0, count - (options.count == "released"))
    drawn = int(rng.integers(most_repeated(count, options) + 1))
    return np.sort(first + rng.choice(max(last - first, 0), drawn, replace=False)) if drawn else np.zeros(0, np.int64)
