"""A stage that is ready to run: where its batches come from, and those of rows held out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from stsbench.data.text.examples import TextRows
from stsbench.registry import calling
from stsbench.training.api.batch import Batch, Examples, Shares, Views
from stsbench.training.api.checks import check_views
from stsbench.training.api.method import Method
from stsbench.training.engine.ranked import Objective
from stsbench.training.recipes.recipe import TrainingSettings
from stsbench.training.rows.batches import Batches, stream, to_batch


@dataclass
class LabelledBatches:
    """Batches of labelled rows, one for each forward pass of a stage, epoch after epoch while the stage lasts."""

    batches: Batches
    rows: Callable[[Any], TextRows]


@dataclass
class Stage:
    """One stage, ready to run.

    key: in the place of its number wherever random numbers are drawn (MethodPlan.stream_of); labelled_only: its rows are the
    labelled ones; labelled: batches of labelled rows that go with its own.
    """

    number: int
    name: str
    settings: TrainingSettings
    batches: Batches
    rows: Callable[[Any], TextRows]  # row numbers -> their texts and tokens
    tokens_pad: int
    key: int = 0
    labelled_only: bool = False
    labelled: LabelledBatches | None = None
    group: int = 1  # rows that go together in a batch
    schedule: int | None = None  # steps that the learning rate's schedule counts; None: the stage's own


def stage_views(
    objective: Objective, method: Method, rows: Examples, rng: np.random.Generator, labelled: bool = False
) -> Views:
    """The views of a batch of the data, or of labelled rows."""
    name = "labelled_views" if labelled else "views"
    make: Callable[[Examples, np.random.Generator], Views] = objective.labelled_views if labelled else objective.views
    views = calling(type(method), name, partial(make, rows, rng))
    return check_views(method, views, rows.rows, name)


def held_out_batches(
    objective: Objective, method: Method, rows: Callable[[Any], TextRows], held_out: np.ndarray, pad: int, size: int,
    seed: int, device: torch.device, labelled_only: bool = False, group: int = 1,
) -> Callable[[], Iterator[Batch]]:
    """The same batches of held-out rows, with the same random choices, every time. labelled_only: they are labelled rows;
    group: rows that go together, of which `size` is a multiple."""

    def batches() -> Iterator[Batch]:
        for start in range(0, len(held_out), size):
            part = held_out[start : start + size]
            part = part[: len(part) - len(part) % group]
            if not len(part):
                continue
            if method.needs(method.options).contrasts(labelled_only) and len(part) < 2:
                continue  # nothing to contrast with
            views = stage_views(objective, method, rows(part), stream(seed, "held-out views", 0, start), labelled_only)
            batch = to_batch(views, Shares((len(views.tokens[0]),)), pad, device)
            batch.labelled_only = labelled_only
            yield batch

    return batches
