"""Batches of training rows. A batch and its random numbers depend on the seed and the step alone, so that a run can be
resumed at any step."""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from stsbench.errors import StsbenchError
from stsbench.training.api.batch import IGNORED, Batch, Ragged, Shares, Views
from stsbench.training.recipes.sections import TrainingSettings
from stsbench.wording import counted

# numpy treats a short seed sequence as equal to one padded with zeros, so all sequences in `stream` have the same length.
_USES = {
    "order": 1, "views": 2, "held-out rows": 3, "sample": 4, "held-out views": 5, "labelled order": 6, "labelled views": 7,
    "share": 8,
}
Use = Literal[
    "order", "views", "held-out rows", "sample", "held-out views", "labelled order", "labelled views", "share"
]
RowNumbers = NDArray[np.int64]
_NEIGHBOURHOOD = 50  # batches sorted by length at a time: long enough to save padding, short enough to stay random


def stream(seed: int, use: Use, stage: int = 0, first: int = 0, second: int = 0) -> np.random.Generator:
    """Return the random generator for `use`. first, second: the epoch, the step and forward pass, or a batch's index."""
    return np.random.default_rng((seed, _USES[use], stage, first, second))


class Batches:
    """The batches of one stage, step by step.

    rows: row numbers to draw from; seed, stage: together with the epoch they decide the order; least, processes: a batch of
    fewer rows than either is left out (`dropped` counts such rows, an epoch). group: rows that stay together: the batch size
    is a multiple of it, and an epoch's last batch ends with a whole group. use: the random stream of the order; name: of the
    setting that holds the batch size, for messages.
    """

    def __init__(
        self, rows: RowNumbers, settings: TrainingSettings, seed: int, stage: int = 0, *, least: int = 1, processes: int = 1,
        group: int = 1, lengths: NDArray[np.int64] | None = None, use: Use = "order", name: str = "training.batch_size",
    ) -> None:
        self.rows, self.size, self.accumulate = rows, settings.batch_size, settings.accumulate
        self.seed, self.stage, self.use = seed, stage, use
        self.lengths = lengths if settings.order == "length" else None
        self.used = len(rows) - len(rows) % group  # rows of an epoch that are used, in their order
        count, rest = divmod(self.used, self.size)
        self.whole = rest == 0 or settings.drop_last or rest < max(least, processes)
        self.dropped = len(rows) - self.used + (rest if self.whole else 0)
        self.batches = count + (0 if self.whole else 1)  # in each epoch
        if not self.batches:
            raise StsbenchError(
                f"the data do not fill one batch: {counted(len(rows), 'row')} for {name} {self.size}"
                + (", and smaller ones are dropped (training.drop_last)" if settings.drop_last else "")
            )
        self.steps_an_epoch = math.ceil(self.batches / self.accumulate)
        self.steps_of_epochs = math.ceil(settings.epochs * self.steps_an_epoch)
        self.steps = self.steps_of_epochs if settings.max_steps is None else min(self.steps_of_epochs, settings.max_steps)
        self._epoch, self._order = -1, rows[:0]

    def epoch(self, step: int) -> float:
        """Return the number of epochs before step `step` (from 0), with its fraction."""
        return step / self.steps_an_epoch

    def step(self, step: int) -> list[RowNumbers]:
        """Return the row numbers of each forward pass of a step: `accumulate` arrays, fewer at an epoch's end."""
        epoch, within = divmod(step, self.steps_an_epoch)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, self._ordered(epoch)
        first = within * self.accumulate
        last = min(first + self.accumulate, self.batches)
        return [self._order[i * self.size : min((i + 1) * self.size, self.used)] for i in range(first, last)]

    def forward_pass(self, step: int, number: int) -> int:
        """Return the index, from 0 over the whole stage, of forward pass `number` (from 0) of a step."""
        epoch, within = divmod(step, self.steps_an_epoch)
        return epoch * self.batches + within * self.accumulate + number

    def _ordered(self, epoch: int) -> RowNumbers:
        rng = stream(self.seed, self.use, self.stage, epoch)
        order = rng.permutation(self.rows)
        if self.lengths is None:
            return order
        order = _sorted_nearby(order[: self.batches * self.size] if self.whole else order, self.lengths, self.size)
        full = len(order) // self.size
        batches = [order[i * self.size : (i + 1) * self.size] for i in rng.permutation(full)]
        return np.concatenate([*batches, order[full * self.size :]])


class TokenBatches(Batches):
    """Batches of up to `training.batch_size` rows and `training.batch_tokens` tokens, padding to the longest row included.
    A batch has at least `least` rows, a row for each process and a whole group, even if these hold more tokens. Where
    batches end depends on the epoch's order, so that the number of steps differs between epochs.

    lengths: (rows,) the number of tokens in all texts of each row.
    """

    def __init__(
        self, rows: RowNumbers, settings: TrainingSettings, seed: int, stage: int = 0, *,
        lengths: NDArray[np.int64] | None, least: int = 1, processes: int = 1, group: int = 1,
    ) -> None:
        assert lengths is not None
        last = settings.model_copy(update={"drop_last": False})
        super().__init__(rows, last, seed, stage, least=least, processes=processes, group=group, lengths=lengths)
        self.tokens, self.budget, self.group = lengths, settings.batch_tokens or 0, group
        self.fewest = math.ceil(max(least, processes) / group)  # groups in a batch, at least
        self.by_length, self.drop_last = settings.order == "length", settings.drop_last
        self._known: list[tuple[int, int]] = [(0, 0)]  # (steps, forward passes) before each epoch so far
        self._cut: list[RowNumbers] = []
        self.dropped = len(rows) - sum(map(len, self._batches(0)))
        if not self._cut:
            dropped = ", and the last one is dropped (training.drop_last)" if self.drop_last else ""
            raise StsbenchError(f"{counted(len(rows), 'row')} do not fill one batch by training.batch_tokens{dropped}")
        whole, part = divmod(settings.epochs, 1)
        self.steps_of_epochs = self._before(int(whole))[0]
        if part:
            self.steps_of_epochs += math.ceil(part * math.ceil(len(self._batches(int(whole))) / self.accumulate))
        self.steps = self.steps_of_epochs if settings.max_steps is None else min(self.steps_of_epochs, settings.max_steps)

    def epoch(self, step: int) -> float:
        """Return the number of epochs before step `step` (from 0), with its fraction."""
        epoch, within = self._locate(step)
        return epoch + within / math.ceil(len(self._batches(epoch)) / self.accumulate)

    def step(self, step: int) -> list[RowNumbers]:
        """Return the row numbers of each forward pass of a step: `accumulate` arrays, fewer at an epoch's end."""
        epoch, within = self._locate(step)
        return self._batches(epoch)[within * self.accumulate : (within + 1) * self.accumulate]

    def forward_pass(self, step: int, number: int) -> int:
        """Return the index, from 0 over the whole stage, of forward pass `number` (from 0) of a step."""
        epoch, within = self._locate(step)
        return self._before(epoch)[1] + within * self.accumulate + number

    def _locate(self, step: int) -> tuple[int, int]:
        """Return the epoch of a step, and the step's index within that epoch."""
        while self._known[-1][0] <= step:
            self._before(len(self._known))
        epoch = bisect_right(self._known, step, key=lambda before: before[0]) - 1
        return epoch, step - self._known[epoch][0]

    def _before(self, epoch: int) -> tuple[int, int]:
        """Return the numbers of steps and of forward passes before an epoch."""
        while len(self._known) <= epoch:
            steps, passes = self._known[-1]
            count = len(self._batches(len(self._known) - 1))
            self._known.append((steps + math.ceil(count / self.accumulate), passes + count))
        return self._known[epoch]

    def _batches(self, epoch: int) -> list[RowNumbers]:
        if epoch != self._epoch:
            self._epoch, self._cut = epoch, self._cut_up(stream(self.seed, self.use, self.stage, epoch))
        return self._cut

    def _cut_up(self, rng: np.random.Generator) -> list[RowNumbers]:
        order = rng.permutation(self.rows)
        order = (_sorted_nearby(order, self.tokens, self.size) if self.by_length else order)[: self.used]
        longest = self.tokens[order].reshape(-1, self.group).max(1)  # (groups,)
        ends = self._ends(longest.tolist())
        if self.drop_last or len(longest) - (ends[-1] if ends else 0) < self.fewest:
            ends, order = ends[:-1], order[: self.group * ends[-1]] if ends else order[:0]
        parts = np.split(order, [self.group * end for end in ends]) if len(order) else []
        return [parts[i] for i in rng.permutation(len(parts))] if self.by_length else parts

    def _ends(self, longest: list[int]) -> list[int]:
        """Return the index of the group after each batch but the last. longest: tokens of each group's longest row."""
        ends, start, most = [], 0, 0
        for i, length in enumerate(longest):
            count, most = i - start, max(most, length)
            full = count * self.group == self.size or (count + 1) * self.group * most > self.budget
            if full and count >= self.fewest:
                ends.append(i)
                start, most = i, length
        return ends


def _sorted_nearby(order: RowNumbers, lengths: NDArray[np.int64], size: int) -> RowNumbers:
    """Return `order` with every stretch of _NEIGHBOURHOOD batches of `size` rows sorted by length."""
    span = _NEIGHBOURHOOD * size
    parts = [order[start : start + span] for start in range(0, len(order), span)]
    return np.concatenate([part[np.argsort(lengths[part], kind="stable")] for part in parts])


def split_shares(count: int, processes: int, rank: int) -> Shares:
    """Return the split of `count` examples over `processes`, in parts whose sizes differ by one at most."""
    size, more = divmod(count, processes)
    return Shares(tuple(size + (1 if r < more else 0) for r in range(processes)), rank)


def to_batch(views: Views, shares: Shares, pad: int, device: torch.device) -> Batch:
    """Return this process's share of `views`, padded to its longest text, or with views.one_length the whole batch's."""
    part = slice(shares.start, shares.start + shares.sizes[shares.rank])
    share = [row for view in views.tokens for row in view[part]]
    longest = max(len(row) for view in views.tokens for row in view) if views.one_length else max(map(len, share))
    ids, mask = np.full((len(share), longest), pad, np.int64), np.zeros((len(share), longest), np.int64)
    for i, row in enumerate(share):
        ids[i, : len(row)], mask[i, : len(row)] = row, 1
    extra = {name: _padded(ragged, part, longest, name, pad) for name, ragged in views.extra.items()}
    by_row = {
        name: torch.from_numpy(np.concatenate([np.asarray(numbers)[part] for numbers in parts]))
        for name, parts in views.by_row.items()
    }
    labels = None if views.labels is None else torch.as_tensor(list(views.labels[part]), dtype=torch.long)
    real = torch.float32 if device.type == "mps" else torch.float64  # MPS has no float64
    scores = None if views.scores is None else torch.as_tensor(list(views.scores[part]), dtype=real)
    return Batch(
        _moved(torch.from_numpy(ids), device), _moved(torch.from_numpy(mask), device), len(views.tokens), shares,
        {name: _moved(values, device) for name, values in extra.items()},
        None if labels is None else _moved(labels, device), scores=None if scores is None else _moved(scores, device),
        by_row={name: _moved(values, device) for name, values in by_row.items()},
    )


def _padded(views: list[Ragged], part: slice, longest: int, name: str, pad: int) -> torch.Tensor:
    rows = [row for view in views for row in view[part]]
    filled = np.full((len(rows), longest), IGNORED if name.endswith("labels") else pad, np.int64)
    for i, row in enumerate(rows):
        filled[i, : len(row)] = row
    return torch.from_numpy(filled)


def _moved(values: torch.Tensor, device: torch.device) -> torch.Tensor:
    return values.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else values.to(device)
