"""Which rows make up which batch: a function of the seed and the step alone, so that a run resumes anywhere."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from stsbench.errors import StsbenchError
from stsbench.training.api.batch import IGNORED, Batch, Ragged, Shares, Views
from stsbench.training.recipes.recipe import TrainingSettings
from stsbench.training.rows.streams import Use, stream
from stsbench.wording import counted

RowNumbers = NDArray[np.int64]
_NEIGHBOURHOOD = 50  # batches sorted by length at a time: long enough to save padding, short enough to stay random


class Batches:
    """The batches of one stage, step by step.

    rows: those that may be drawn; seed, stage: with the epoch they decide the order; processes: a batch of fewer rows than
    these, or than `least`, is left out (`dropped` counts the rows of an epoch that are). group: rows that go together: the
    batch size is a multiple, and an epoch's last batch ends with a whole group. use: whose random stream; name: of the
    setting that holds the batch size, for messages.
    """

    def __init__(
        self, rows: RowNumbers, settings: TrainingSettings, seed: int, stage: int = 0, *, least: int = 1, processes: int = 1,
        group: int = 1, lengths: NDArray[np.int64] | None = None, use: Use = "order", name: str = "training.batch_size",
    ) -> None:
        self.rows, self.size, self.accumulate = rows, settings.batch_size, settings.accumulate
        self.seed, self.stage, self.use = seed, stage, use
        self.lengths = lengths if settings.order == "length" else None
        self.used = len(rows) - len(rows) % group  # of an epoch's rows, in their order
        count, rest = divmod(self.used, self.size)
        self.whole = rest == 0 or settings.drop_last or rest < max(least, processes)
        self.dropped = len(rows) - self.used + (rest if self.whole else 0)
        self.batches = count + (0 if self.whole else 1)  # an epoch
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
        """Epochs done before step `step` (from 0), as a fraction."""
        return step / self.steps_an_epoch

    def step(self, step: int) -> list[RowNumbers]:
        """The rows of each forward pass of a step: `accumulate` of them, fewer at an epoch's end."""
        epoch, within = divmod(step, self.steps_an_epoch)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, self._ordered(epoch)
        first = within * self.accumulate
        last = min(first + self.accumulate, self.batches)
        return [self._order[i * self.size : min((i + 1) * self.size, self.used)] for i in range(first, last)]

    def forward_pass(self, step: int, number: int) -> int:
        """The place, from 0, of a step's `number`-th forward pass among all of the stage."""
        epoch, within = divmod(step, self.steps_an_epoch)
        return epoch * self.batches + within * self.accumulate + number

    def _ordered(self, epoch: int) -> RowNumbers:
        rng = stream(self.seed, self.use, self.stage, epoch)
        order = rng.permutation(self.rows)
        if self.lengths is None:
            return order
        order = order[: self.batches * self.size] if self.whole else order
        span = _NEIGHBOURHOOD * self.size
        parts = [order[start : start + span] for start in range(0, len(order), span)]
        sorted_parts = [part[np.argsort(self.lengths[part], kind="stable")] for part in parts]
        order = np.concatenate(sorted_parts)
        full = len(order) // self.size
        batches = [order[i * self.size : (i + 1) * self.size] for i in rng.permutation(full)]
        return np.concatenate([*batches, order[full * self.size :]])


def shares_of(count: int, processes: int, rank: int) -> Shares:
    """`count` examples over `processes`: sizes that differ by one at most."""
    size, more = divmod(count, processes)
    return Shares(tuple(size + (1 if r < more else 0) for r in range(processes)), rank)


def to_batch(views: Views, shares: Shares, pad: int, device: torch.device) -> Batch:
    """This process's share of `views`, padded to the longest row in it (views.one_length: in the whole batch)."""
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
    real = torch.float32 if device.type == "mps" else torch.float64  # which MPS lacks
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
