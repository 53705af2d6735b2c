"""What a run needs before its first step: the accelerator, the backbone's folder, the batches of each stage."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate.utils import DistributedDataParallelKwargs, GradientAccumulationPlugin, InitProcessGroupKwargs
from numpy.typing import NDArray

from stsbench.encoders.transformer.trainable import backbone_folder as backbone_folder
from stsbench.errors import DataError, StsbenchError
from stsbench.registry import calling
from stsbench.training.api.method import Method
from stsbench.training.engine.optimiser import shortened_warmup, warmup_steps
from stsbench.training.engine.ranked import Objective
from stsbench.training.engine.stage import LabelledBatches, Stage
from stsbench.training.recipes.method_plan import MethodPlan
from stsbench.training.recipes.precision import lacks_fp16
from stsbench.training.recipes.recipe import LabelledSettings, Recipe, TrainingSettings
from stsbench.training.rows.batches import Batches, TokenBatches
from stsbench.training.rows.files import LABELLED
from stsbench.training.rows.stage_rows import StageData
from stsbench.wording import counted

_MIXED = {"float32": "no", "bf16": "bf16", "fp16": "fp16"}


class _SharedState:
    """What accelerate keeps once for the process: the training's in a thread that trains, elsewhere the process's."""

    def __init__(self, of_process: dict[str, Any]) -> None:
        self.of_process, self.of_thread = of_process, threading.local()

    def __get__(self, instance: Any, kind: type) -> dict[str, Any]:
        state: dict[str, Any] = getattr(self.of_thread, "state", self.of_process)
        return state


@contextmanager
def own_accelerate() -> Iterator[None]:
    """Within, accelerate's state is this training's: a trainer of the caller's, or another training in another thread, may
    have another precision or device, or be between two steps that it accumulates gradients in."""
    kinds: list[Any] = [AcceleratorState, GradientState]
    if not torch.distributed.is_initialized():  # or else the processes know one another by it
        kinds.append(PartialState)
    for kind in kinds:
        if not isinstance(vars(kind)["_shared_state"], _SharedState):
            kind._shared_state = _SharedState(kind._shared_state)
    threads = [vars(kind)["_shared_state"].of_thread for kind in kinds]
    before = [getattr(thread, "state", None) for thread in threads]
    for thread in threads:
        thread.state = {}
    try:
        yield
    finally:
        for thread, state in zip(threads, before, strict=True):
            if state is None:
                del thread.state
            else:
                thread.state = state


def make_accelerator(
    precision: str, device: str | None, trackers: Sequence[str] = (), folder: Path | None = None
) -> Accelerator:
    """accelerate's view of this process and its device. Raises StsbenchError for a device or precision that is not there."""
    if device not in (None, "cpu", "cuda", "mps"):
        raise StsbenchError(f"--device {device}: write cpu, cuda or mps; CUDA_VISIBLE_DEVICES=1 chooses among several GPUs")
    if (device == "cuda" and not torch.cuda.is_available()) or (device == "mps" and not torch.backends.mps.is_available()):
        raise StsbenchError(f"--device {device} is not available on this machine")
    if precision == "fp16" and lacks_fp16(device):
        raise StsbenchError("precision fp16 needs a CUDA device: use --dtype bf16 or --dtype float32 here")
    accelerator = Accelerator(
        # said outright: on a machine without accelerator accelerate would make every process of torchrun one alone
        cpu=device == "cpu" or not (torch.cuda.is_available() or torch.backends.mps.is_available()),
        mixed_precision=_MIXED[precision], log_with=list(trackers) or None, project_dir=folder,
        # by a plugin: the number would yield to a variable of accelerate's, which divides the gradient unseen
        gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=1),
        kwargs_handlers=[
            DistributedDataParallelKwargs(gradient_as_bucket_view=True),
            InitProcessGroupKwargs(timeout=timedelta(hours=6)),  # the others wait while one scores or tokenises
        ],
    )
    if accelerator.distributed_type not in ("NO", "MULTI_GPU", "MULTI_CPU"):
        raise StsbenchError(f"accelerate's {accelerator.distributed_type} is not supported: use plain data parallelism")
    return accelerator


def prepare(
    method: Method, objective: Objective, plan: MethodPlan, data: Mapping[str, StageData], running: Sequence[str]
) -> None:
    """Let the method learn from the rows of the first of its own stages, if that runs, and from the labelled ones."""
    prepare_method(method, plan, data, running)
    if LABELLED in data:
        rows = data[LABELLED].rows(data[LABELLED].trained)
        calling(type(method), "prepare_labelled", lambda: objective.prepare_labelled(rows))


def prepare_method(method: Method, plan: MethodPlan, data: Mapping[str, StageData], running: Sequence[str]) -> None:
    """`prepare` without the labelled rows: what a run of a later stage goes on from has learnt from the first stage's."""
    first = plan.method_stages[0]
    if first in running:
        rows = data[LABELLED if plan.labelled(first) == "only" else first]
        calling(type(method), "prepare", lambda: method.prepare(rows.rows(rows.trained)))


def dropped(stage: Stage) -> list[str]:
    """What to say of rows that are in no batch."""
    counts = [(stage.batches.dropped, "rows")]
    if stage.labelled:
        counts.append((stage.labelled.batches.dropped, "labelled rows"))
    return [f"the last {count} {rows} of each epoch do not fill a batch and are left out" for count, rows in counts if count]


def scheduled(stage: Stage, recipe: Recipe) -> list[str]:
    """What to say of a schedule in steps that the run does not have as the recipe does."""
    settings, steps, lines = stage.settings, stage.batches.steps, []
    asked, warmup = recipe.stage_training(stage.name).warmup, warmup_steps(stage.schedule or steps, settings)
    if settings.warmup != asked:
        lines.append(f"the warm-up of {asked:g} steps is shortened as the run is: {settings.warmup:g} of {steps} steps")
    if warmup >= steps:
        rate = f"the rate of stage {stage.name} does not come to training.learning_rate {settings.learning_rate:g}"
        lines.append(f"warning: {rate}: its warm-up is {counted(int(warmup), 'step')}, and it has {steps}")
    if late := [step for step in settings.milestones if step >= steps]:
        late_ones = ", ".join(map(str, late))
        lines.append(f"training.milestones {late_ones} are not reached: stage {stage.name} has {steps} steps")
    return lines


def make_stage(
    name: str, recipe: Recipe, plan: MethodPlan, data: Mapping[str, StageData], pad: int | None, processes: int
) -> Stage:
    """The batches of a stage, out of the `data` that `open_rows` gave. pad: the tokenizer's padding token.

    Raises StsbenchError where a batch would hold nothing to contrast with, or a process nothing at all.
    """
    settings, use, key = recipe.stage_training(name), plan.labelled(name), plan.stream_of(name)
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
    labelled = _labelled_batches(recipe, settings, data[LABELLED], key, processes) if use == "with" else None
    return Stage(
        plan.stages.index(name), name, settings, batches, rows.rows, pad if pad is not None else 0, key=key,
        labelled_only=use == "only", labelled=labelled, group=group,
    )


def _group(plan: MethodPlan, settings: TrainingSettings) -> int:
    """Rows that the method takes together. Raises StsbenchError where training.batch_size is no multiple of them."""
    group = plan.needs.group_size
    if size := settings.batch_size % group:
        sizes = [multiple for multiple in (settings.batch_size - size, settings.batch_size - size + group) if multiple]
        raise StsbenchError(
            f"training.batch_size {settings.batch_size}: {plan.name} takes {group} rows together by these options, so a "
            f"multiple: {' or '.join(map(str, sizes))}"
        )
    return group


def _least_batch(settings: TrainingSettings, contrasts: bool, processes: int) -> int:
    """Examples that a batch has at least. Raises StsbenchError where training.batch_size is less."""
    if contrasts and settings.batch_size < 2:
        raise StsbenchError(
            f"training.batch_size {settings.batch_size}: the other examples of a batch are the negatives, so 2 at least"
        )
    if settings.batch_size < processes:
        raise StsbenchError(f"training.batch_size {settings.batch_size} is less than the {processes} processes")
    # a process's rows are all the negatives there are where nothing is gathered
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
    """The batches of labelled rows that go with a stage's own, by the same rules."""
    size = (recipe.labelled or LabelledSettings()).batch_size
    if size < processes:
        raise StsbenchError(f"labelled.batch_size {size} is less than the {processes} processes")
    batches = Batches(
        data.trained, settings.model_copy(update={"batch_size": size, "accumulate": 1}), recipe.seed, key,
        processes=processes, lengths=_lengths(settings, data), use="labelled order", name="labelled.batch_size",
    )
    return LabelledBatches(batches, data.rows)


def _lengths(settings: TrainingSettings, data: StageData) -> NDArray[np.int64] | None:
    """(rows,) tokens of all texts of a row, where batches go by length or by tokens."""
    if settings.order != "length" and settings.batch_tokens is None:
        return None
    lengths: NDArray[np.int64] = np.sum([data.tokens.lengths(role) for role in data.tokens.roles], axis=0)
    return lengths
