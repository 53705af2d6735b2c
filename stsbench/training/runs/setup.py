"""What a run needs before its first step: the accelerator, and what the method learns from its rows."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate.utils import DistributedDataParallelKwargs, GradientAccumulationPlugin, InitProcessGroupKwargs

from stsbench.encoders.transformer.trainable import backbone_folder as backbone_folder
from stsbench.errors import StsbenchError
from stsbench.plugins import calling
from stsbench.registry import calling
from stsbench.training.api.method import Method
from stsbench.training.engine.objective import Objective
from stsbench.training.recipes.method_plan import MethodPlan
from stsbench.training.recipes.precision import lacks_fp16
from stsbench.training.rows.files import LABELLED
from stsbench.training.rows.stage_rows import StageData

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
