"""Stages of a training, ready to run: which stages of a method run, their batches, batches of held-out rows, and the steps
of their learning-rate schedules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from stsbench.data.text.examples import TextRows
from stsbench.errors import DataError, StsbenchError
from stsbench.registry import calling, did_you_mean
from stsbench.training.api.batch import Batch, Examples, Shares, Views
from stsbench.training.api.checks import check_views
from stsbench.training.api.method import Method
from stsbench.training.engine.objective import Objective
from stsbench.training.engine.optimiser import averaged_steps, shortened_warmup, warmup_steps
from stsbench.training.recipes.method_plan import MethodPlan
from stsbench.training.recipes.recipe import Recipe
from stsbench.training.recipes.sections import LabelledSettings, TrainingSettings
from stsbench.training.rows.batches import Batches, TokenBatches, stream, to_batch
from stsbench.training.rows.files import LABELLED
from stsbench.training.rows.stage_rows import StageData
from stsbench.wording import counted


@dataclass
class LabelledBatches:
    """Batches of labelled rows, one for each forward pass of a stage, for as many epochs as the stage's steps need."""

    batches: Batches
    rows: Callable[[Any], TextRows]


@dataclass
class Stage:
    """A stage, ready to run.

    key: replaces the stage's number in seeds of random numbers (MethodPlan.stream_number); labelled_only: whether its rows
    are labelled rows; labelled: batches of labelled rows that accompany its own batches.
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
    group: int = 1  # rows that the method takes together, which a batch does not split
    schedule: int | None = None  # number of steps of the learning rate's schedule; None: that of the stage


def stage_views(
    objective: Objective, method: Method, rows: Examples, rng: np.random.Generator, labelled: bool = False
) -> Views:
    """Return the checked views of a batch of the data, or of labelled rows."""
    name = "labelled_views" if labelled else "views"
    make: Callable[[Examples, np.random.Generator], Views] = objective.labelled_views if labelled else objective.views
    views = calling(type(method), name, partial(make, rows, rng))
    return check_views(method, views, rows.rows, name)


def held_out_batches(
    objective: Objective, method: Method, rows: Callable[[Any], TextRows], held_out: np.ndarray, pad: int, size: int,
    seed: int, device: torch.device, labelled_only: bool = False, group: int = 1,
) -> Callable[[], Iterator[Batch]]:
    """Return a function that yields the held-out rows in batches of `size`, with the same random choices at each call.

    Left out are last rows that do not fill a `group`, and a batch of one row if the loss needs negatives. size: a multiple
    of `group`; labelled_only: whether the rows are labelled.
    """

    def batches() -> Iterator[Batch]:
        for start in range(0, len(held_out), size):
            part = held_out[start : start + size]
            part = part[: len(part) - len(part) % group]
            if not len(part):
                continue
            if method.needs(method.options).contrasts(labelled_only) and len(part) < 2:
                continue  # a batch of one row has no negatives
            views = stage_views(objective, method, rows(part), stream(seed, "held-out views", 0, start), labelled_only)
            batch = to_batch(views, Shares((len(views.tokens[0]),)), pad, device)
            batch.labelled_only = labelled_only
            yield batch

    return batches


def stage_name(plan: MethodPlan, stage: str | int | None) -> str | None:
    """Return the name of a stage given as a number from 1 or by name; None, all stages, for None. Raises StsbenchError."""
    stages = plan.stages
    if stage is None or stage in stages:
        return None if stage is None else str(stage)
    if str(stage).isdecimal():
        if 1 <= int(stage) <= len(stages):
            return stages[int(stage) - 1]
        raise StsbenchError(f"--stage {stage}: {plan.name} has {len(stages)} of them: {', '.join(stages)}")
    raise StsbenchError(f"--stage {stage}: {plan.name} has no such stage{did_you_mean(str(stage), stages)}")


def counted_stages(recipe: Recipe, plan: MethodPlan, running: Sequence[str]) -> list[str]:
    """Return the stages by whose steps the running stages' schedules run (training.schedule_of). Raises StsbenchError for
    unknown stages."""
    for name in plan.stages:
        other = recipe.stage_training(name).schedule_of
        if other is not None and other not in plan.stages:
            hint = did_you_mean(other, plan.stages)
            raise StsbenchError(f"training.schedule_of {other} of stage {name}: {plan.name} has no such stage{hint}")
    return [other for name in running if (other := recipe.stage_training(name).schedule_of) is not None]


def set_schedules(stages: Mapping[str, Stage], running: Sequence[str]) -> None:
    """Set the schedules of running stages with training.schedule_of to the steps of the stages named there. Raises
    StsbenchError if a stage would have steps with a learning rate of 0."""
    for name in running:
        stage = stages[name]
        other = stage.settings.schedule_of
        if other is None:
            continue
        steps, stage.schedule = stage.batches.steps, stages[other].batches.steps
        if stage.settings.schedule == "linear" and steps > stage.schedule:
            raise StsbenchError(
                f"training.schedule_of {other}: the learning rate of stage {name} is 0 after the {stage.schedule} steps of "
                f"stage {other}, and it has {steps}: set stages.{name}.training.max_steps={stage.schedule}, or less"
            )


def dropped(stage: Stage) -> list[str]:
    """Return lines for the log on rows that are in no batch."""
    counts = [(stage.batches.dropped, "rows")]
    if stage.labelled:
        counts.append((stage.labelled.batches.dropped, "labelled rows"))
    return [f"the last {count} {rows} of each epoch do not fill a batch and are left out" for count, rows in counts if count]


def scheduled(stage: Stage, recipe: Recipe) -> list[str]:
    """Return lines for the log: a warm-up or milestones that differ from the recipe, and which steps' weights are
    averaged."""
    settings, steps, lines = stage.settings, stage.batches.steps, []
    asked, warmup = recipe.stage_training(stage.name).warmup, warmup_steps(stage.schedule or steps, settings)
    if settings.warmup != asked:
        lines.append(f"the warm-up of {asked:g} steps is shortened as the run is: {settings.warmup:g} of {steps} steps")
    if warmup >= steps:
        rate = f"the rate of stage {stage.name} does not come to training.learning_rate {settings.learning_rate:g}"
        lines.append(f"warning: {rate}: its warm-up is {counted(int(warmup), 'step')}, and it has {steps}")
    if settings.average is not None:
        averaged = averaged_steps(settings.average, steps)
        lines.append(f"scored and exported: the mean of the weights after {len(averaged)} steps, from {averaged[0]} on")
    if late := [step for step in settings.milestones if step >= steps]:
        late_ones = ", ".join(map(str, late))
        lines.append(f"training.milestones {late_ones} are not reached: stage {stage.name} has {steps} steps")
    return lines


def make_stage(
    name: str, recipe: Recipe, plan: MethodPlan, data: Mapping[str, StageData], pad: int | None, processes: int
) -> Stage:
    """Return a stage, with batches from the `data` of `open_rows`. pad: the tokenizer's padding token.

    Raises StsbenchError if a batch would have no negatives where the loss needs them, or a process no rows.
    """
    settings, use, key = recipe.stage_training(name), plan.labelled(name), plan.stream_number(name)
    rows = data[LABELLED if use == "only" else name]
    group = 1 if use == "only" else _group(plan, settings)
    contrasts = plan.needs.contrasts(labelled_only=use == "only")
    least = _least_batch(settings, contrasts, processes)
    meta = rows.store.meta
    if contrasts and meta.rows - meta.left_out - meta.duplicates < 2:
        raise DataError(f"{rows.store.path}: there are not two different rows, and the negatives of one are the others")
    lengths = _lengths(settings, rows)
    kind = Batches if lengths is None or settings.batch_tokens is None else TokenBatches
    batches = kind(
        rows.trained, settings, recipe.seed, key, least=least, processes=processes, group=group, lengths=lengths
    )
    warmup = shortened_warmup(settings, batches.steps, batches.steps_of_epochs)
    settings = settings.model_copy(update={"warmup": warmup})
    if settings.average is not None:
        averaged_steps(settings.average, batches.steps)  # raises here, before the first stage, if too few are averaged
    labelled = _labelled_batches(recipe, settings, data[LABELLED], key, processes) if use == "with" else None
    return Stage(
        plan.stages.index(name), name, settings, batches, rows.rows, pad if pad is not None else 0, key=key,
        labelled_only=use == "only", labelled=labelled, group=group,
    )


def _group(plan: MethodPlan, settings: TrainingSettings) -> int:
    """Return how many rows the method takes together. Raises StsbenchError if training.batch_size is not a multiple."""
    group = plan.needs.group_size
    if size := settings.batch_size % group:
        sizes = [multiple for multiple in (settings.batch_size - size, settings.batch_size - size + group) if multiple]
        raise StsbenchError(
            f"training.batch_size {settings.batch_size}: {plan.name} takes {group} rows together by these options, so a "
            f"multiple: {' or '.join(map(str, sizes))}"
        )
    return group


def _least_batch(settings: TrainingSettings, contrasts: bool, processes: int) -> int:
    """Return the least number of examples of a batch. Raises StsbenchError if training.batch_size is less."""
    if contrasts and settings.batch_size < 2:
        raise StsbenchError(
            f"training.batch_size {settings.batch_size}: the other examples of a batch are the negatives, so 2 at least"
        )
    if settings.batch_size < processes:
        raise StsbenchError(f"training.batch_size {settings.batch_size} is less than the {processes} processes")
    # without gathering, only the rows of the same process are negatives
    least = (2 * processes if settings.gather == "local" else 2) if contrasts else 1
    if settings.batch_size < least:
        raise StsbenchError(
            f"training.batch_size {settings.batch_size} with training.gather local leaves a process one example and so no "
            f"negative: {least} at least"
        )
    return least


def _labelled_batches(
    recipe: Recipe, settings: TrainingSettings, data: StageData, key: int, processes: int
) -> LabelledBatches:
    """Return the batches of labelled rows that accompany a stage's own batches, with the same settings."""
    size = (recipe.labelled or LabelledSettings()).batch_size
    if size < processes:
        raise StsbenchError(f"labelled.batch_size {size} is less than the {processes} processes")
    batches = Batches(
        data.trained, settings.model_copy(update={"batch_size": size, "accumulate": 1}), recipe.seed, key,
        processes=processes, lengths=_lengths(settings, data), use="labelled order", name="labelled.batch_size",
    )
    return LabelledBatches(batches, data.rows)


def _lengths(settings: TrainingSettings, data: StageData) -> NDArray[np.int64] | None:
    """Return (rows,), the number of tokens of all texts of each row, None unless batches depend on them."""
    if settings.order != "length" and settings.batch_tokens is None:
        return None
    lengths: NDArray[np.int64] = np.sum([data.tokens.lengths(role) for role in data.tokens.roles], axis=0)
    return lengths
