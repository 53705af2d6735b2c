"""A training run: from a recipe to a run folder with the log, checkpoints, the best encoder and a summary."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate.utils import DistributedDataParallelKwargs, GradientAccumulationPlugin, InitProcessGroupKwargs

from stsbench.errors import StsbenchError
from stsbench.evaluation.plan import plan
from stsbench.files import atomic_write
from stsbench.processes import StopRequest
from stsbench.registry import calling
from stsbench.torch_random import Generators, drawing
from stsbench.torch_state import fresh_torch
from stsbench.training.api.checks import check_rates
from stsbench.training.engine.callbacks import Callbacks, RunLog, TrainingCallback, flat_config, trackers
from stsbench.training.engine.checkpoint import Best, Position
from stsbench.training.engine.loop import Loop
from stsbench.training.engine.optimiser import Average, make_optimiser
from stsbench.training.engine.passes import draw_repeatedly
from stsbench.training.engine.shards import Whole, inner_method, set_sharding, sharded_copy, sharding
from stsbench.training.engine.stage import Stage, dropped, scheduled, stage_name
from stsbench.training.modules.backbone import method_backbones, set_chunk
from stsbench.training.modules.lora import freeze_adapted
from stsbench.training.recipes.method_plan import load_plan
from stsbench.training.recipes.methods import method_file
from stsbench.training.recipes.recipes import lacks_fp16
from stsbench.training.rows.files import LABELLED
from stsbench.training.rows.overlap import overlap_lines, training_overlap
from stsbench.training.runs.finish import described_data, export_best, summarise, tested
from stsbench.training.runs.options import TrainOptions
from stsbench.training.runs.prepare import Log, PreparedRun, prepare_method, prepare_run, user_tests
from stsbench.training.runs.report import read_summary
from stsbench.training.runs.run_folder import check_folder, check_output, claim, open_manifest, run_lock
from stsbench.training.runs.warm_start import WarmStart, check_start
from stsbench.wording import counted

_MIXED = {"float32": "no", "bf16": "bf16", "fp16": "fp16"}


def train(options: TrainOptions, log: Log = print, callback: TrainingCallback | None = None) -> dict[str, Any]:
    """Train, export the best encoder to RUN/best and test it if asked. Return what RUN/train.json holds, and test failures.

    Raises StsbenchError, one line, for bad options or data, and for a loss that is NaN or infinite. `resume` continues a
    killed run, with the same result bit for bit on one CPU process.
    """
    with fresh_torch(gradients=True), drawing(Generators(options.recipe.seed)) as generators, own_accelerate():
        return _trained(options, generators, log, callback)


def _trained(
    options: TrainOptions, generators: Generators, log: Log, callback: TrainingCallback | None
) -> dict[str, Any]:
    """Train as `train` says, where no setting, generator or state of the calling process has an effect."""
    recipe, folder = options.recipe, options.output
    if options.evaluate:
        plan(options.evaluate, None, {})  # fail on a misspelt protocol now, not after the training
    method_plan = load_plan(recipe)
    stage = stage_name(method_plan, options.stage)
    accelerator = make_accelerator(recipe.precision, options.device, trackers(options.trackers), folder)
    main = accelerator.is_main_process
    main_log = log if main else (lambda line: None)
    check_output(folder, resume=True)
    was_there = folder.is_dir() and any(folder.iterdir())
    with run_lock(folder) if main else nullcontext():
        if main:
            check_folder(folder, recipe, options.resume, was_there)
        accelerator.wait_for_everyone()
        manifest = open_manifest(
            folder, options.resume, sample=options.sample, data_dir=options.data_dir, command=options.command, stage=stage,
            start_from=options.start_from, method_file=method_file(recipe.method).get("method file"),
        )
        check_start(method_plan, manifest.stage, manifest.start_from)
        data_dir = Path(manifest.data_dir) if manifest.data_dir else None
        options = replace(options, sample=manifest.sample, data_dir=data_dir)
        if options.resume and (summary := read_summary(folder)) is not None:
            main_log(f"{folder} is finished: nothing to resume")
            return tested(options, summary, accelerator, main_log)
        run = prepare_run(options, method_plan, manifest, accelerator, generators, main_log)
        accelerator.wait_for_everyone()
        manifest.data = described_data(run.plan, run.names, run.data)
        if main:
            claim(folder, recipe, manifest)
        accelerator.wait_for_everyone()
        position = _train_stages(run, Callbacks([callback]) if main and callback else None)
        summary = _finish(run, position)
        return tested(options, summary, accelerator, main_log)


def _train_stages(run: PreparedRun, callback: TrainingCallback | None) -> Position:
    """Train all stages, or those left of a resumed run. Return the position at the end."""
    options, accelerator = run.options, run.accelerator
    first = run.stages[0]
    position = replace(run.resumed[0], processes=accelerator.num_processes) if run.resumed else _start(run, first)
    run_log = RunLog(options.output / "log.jsonl", keep=position.log, silent=not accelerator.is_main_process)
    if options.trackers:
        accelerator.init_trackers("stsbench", config=flat_config(run.recipe.model_dump()))
    try:
        if run.warm_start:
            position.best = _take_over(run, run.warm_start)
        before = sum(stage.batches.steps for stage in run.stages if stage.number < position.number)
        with StopRequest().hold() as stop:
            for stage in [stage for stage in run.stages if stage.number >= position.number]:
                if stage.number != position.number:
                    position = replace(
                        _start(run, stage), log=position.log,
                        best=position.best if run.recipe.selection.over == "all" else None,
                        seconds_before=position.seconds_before + position.seconds,
                    )
                position = _train_stage(run, stage, position, run_log, callback, before, stop)
                before += stage.batches.steps
    finally:
        run_log.close()
        if options.trackers:
            accelerator.end_training()
    return position


def _train_stage(
    run: PreparedRun, stage: Stage, position: Position, run_log: RunLog, callback: TrainingCallback | None, before: int,
    stop: StopRequest,
) -> Position:
    """Train one stage from `position` on. Return the position at its end. before: number of steps in the stages before."""
    method, objective, accelerator = run.method, run.objective, run.accelerator
    method.gather_mode = stage.settings.gather
    set_chunk(method, stage.settings.chunk)
    calling(type(method), "start_stage", lambda: objective.start_stage(stage.name))
    if run.recipe.backbone.lora is not None:
        for backbone in method_backbones(method):
            freeze_adapted(backbone.model)
    draw_repeatedly(method, run.recipe.backbone.gradient_checkpointing == "offload")
    resumed = run.resumed if run.resumed and run.resumed[0].number == stage.number else None
    if resumed:
        run.checkpoints.load_weights(resumed[1], method)
    settings, lora = stage.settings, run.recipe.backbone.lora
    unsharded = {"training.average": settings.average is not None, "backbone.lora.base": lora and lora.base != "whole"}
    if accelerator.is_fsdp2 and any(unsharded.values()):
        setting = next(name for name, value in unsharded.items() if value)
        raise StsbenchError(f"FSDP does not go with {setting}: leave it out, or train without FSDP")
    trained = sharded_copy(objective, accelerator)
    optimiser = make_optimiser(inner_method(trained), settings, check_rates(method))
    wrapped, prepared = accelerator.prepare(trained, optimiser)
    average = None if settings.average is None else Average(method, settings.average, stage.batches.steps)
    unlogged: dict[str, Any] = {}
    if resumed:
        unlogged = run.checkpoints.load(*resumed, prepared, average)
        run.log(f"resumed at step {position.step} of {stage.batches.steps}, stage {stage.name}")
    _announce(run, stage)
    whole = Whole(objective, trained, accelerator)
    loop = Loop(
        run.recipe, stage, trained, whole, wrapped, prepared, accelerator, run_log=run_log, checkpoints=run.checkpoints,
        selection=run.selections.get(stage.name), callback=callback, tracked_from=before if run.options.trackers else None,
        log=run.log, stop=stop, average=average,
    )
    position = loop.run(position, unlogged)
    whole.take()
    if average is not None:
        average.swap()
    accelerator.unwrap_model(wrapped, keep_fp32_wrapper=False)
    accelerator.free_memory()
    return position


def _announce(run: PreparedRun, stage: Stage) -> None:
    """Log the stage's length, batches and device, and warnings about its settings, before it starts."""
    settings, batches, chosen = stage.settings, stage.batches, run.recipe.selection
    if batches.steps < (settings.max_steps or 0):
        epochs = f"training.epochs {settings.epochs:g} end at step {batches.steps}"
        run.log(f"{epochs}, before training.max_steps {settings.max_steps}")
    if run.selections.get(stage.name) and batches.steps < chosen.every and not chosen.at_end:
        every = f"selection.every is {chosen.every}, and stage {stage.name} has {counted(batches.steps, 'step')}"
        run.log(f"warning: the last weights will be kept, whatever their development score: {every}")
    for line in [*scheduled(stage, run.recipe), *dropped(stage)]:
        run.log(line)
    if run.recipe.backbone.lora is not None:
        weights = list(run.method.backbone.model.parameters())
        trained = sum(weight.numel() for weight in weights if weight.requires_grad)
        every = sum(weight.numel() * (2 if weight.dtype == torch.uint8 else 1) for weight in weights)  # 4 bits: two a byte
        run.log(f"LoRA: {trained:,} weights are trained in the place of {every - trained:,}")
    where = f"{run.accelerator.device} x {run.accelerator.num_processes}"
    where += ", weights in parts (FSDP2)" if run.accelerator.is_fsdp2 else ""
    size = f"{settings.batch_size} of {counted(len(batches.rows), 'row')}"
    if settings.batch_tokens is not None:
        size = f"up to {size}, {counted(settings.batch_tokens, 'token')} at most,"
    run.log(f"stage {stage.name}: {counted(batches.steps, 'step')} of {size} on {where}")


def _start(run: PreparedRun, stage: Stage) -> Position:
    return Position(
        stage.number, stage.name, steps=stage.batches.steps, processes=run.accelerator.num_processes, inputs=run.inputs
    )


def _take_over(run: PreparedRun, warm_start: WarmStart) -> Best | None:
    """Take over the earlier run's random states if seed and number of processes are the same. Return its best, which is
    copied, where selection.over is all, else None."""
    position, checkpoints = warm_start.position, run.checkpoints
    here, there = (run.recipe.seed, run.accelerator.num_processes), (warm_start.recipe.seed, position.processes)
    run.log(f"starts with the weights of {warm_start.run}: stage {position.stage}, step {position.step:,}")
    prepare_method(run.method, run.plan, run.data, run.names)  # has an effect where earlier stages were not the method's
    if here == there:
        checkpoints.load_randomness(warm_start.folder)
    else:
        states = ["seed {}, {} process(es)".format(*state) for state in (there, here)]
        run.log(f"its random states are not taken over: {states[0]} there, {states[1]} here")
    if run.recipe.selection.over != "all" or position.best is None or run.selection is None:
        return None
    checkpoints.adopt(warm_start.folder.parent, position.best)
    return position.best


def _finish(run: PreparedRun, position: Position) -> dict[str, Any]:
    """Export the best weights and write RUN/train.json. Return its content."""
    folder, accelerator = run.options.output, run.accelerator
    if position.best:
        run.checkpoints.load_best(position.best, run.method)
    summary = summarise(run, position, _overlap(run) if accelerator.is_main_process else {})
    if accelerator.is_main_process:
        export_best(run, summary)
        with atomic_write(folder / "train.json") as stream:
            stream.write(json.dumps(summary, indent=1) + "\n")
    accelerator.wait_for_everyone()
    return summary


def _overlap(run: PreparedRun) -> dict[str, dict[str, Any]]:
    """Return the overlap of the training texts with test sets, also those of the user's that the run is tested on, and log
    it. Computed at the end, so that no run waits for it before its first step."""
    names, user_sets = list(run.manifest.data), user_tests(run.options)
    documents = [name for name in names if name != LABELLED] if run.plan.needs.whole_texts else []
    overlap = training_overlap(
        run.data, names, data_dir=run.options.data_dir, sample=run.options.sample, user_sets=user_sets,
        documents=documents,
    )
    for line in overlap_lines(overlap, user_sets):
        run.log(line)
    return overlap


class _SharedState:
    """The state that accelerate shares within the process: a thread that trains has its own, others the process's."""

    def __init__(self, of_process: dict[str, Any]) -> None:
        self.of_process, self.of_thread = of_process, threading.local()

    def __get__(self, instance: Any, kind: type) -> dict[str, Any]:
        state: dict[str, Any] = getattr(self.of_thread, "state", self.of_process)
        return state


@contextmanager
def own_accelerate() -> Iterator[None]:
    """Give the training its own state of accelerate's: a trainer of the caller, or a training in another thread, may use
    another precision or device, or be accumulating gradients."""
    kinds: list[Any] = [AcceleratorState, GradientState]
    if not torch.distributed.is_initialized():  # distributed processes communicate through it
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
    """Return the Accelerator of this process. Raises StsbenchError for an unavailable device or precision, and for
    unsupported parallelism."""
    if device not in (None, "cpu", "cuda", "mps"):
        raise StsbenchError(f"--device {device}: write cpu, cuda or mps; CUDA_VISIBLE_DEVICES=1 chooses among several GPUs")
    if (device == "cuda" and not torch.cuda.is_available()) or (device == "mps" and not torch.backends.mps.is_available()):
        raise StsbenchError(f"--device {device} is not available on this machine")
    plugin = sharding()
    if precision == "fp16" and plugin:
        raise StsbenchError("precision fp16 is not supported with FSDP: use --dtype bf16")
    if precision == "fp16" and lacks_fp16(device):
        raise StsbenchError("precision fp16 needs a CUDA device: use --dtype bf16 or --dtype float32 here")
    accelerator = Accelerator(
        fsdp_plugin=plugin,
        # explicit: without a GPU accelerate would otherwise treat each process of torchrun as a separate training
        cpu=device == "cpu" or not (torch.cuda.is_available() or torch.backends.mps.is_available()),
        mixed_precision=_MIXED[precision], log_with=list(trackers) or None, project_dir=folder,
        # a plugin: an environment variable of accelerate's would override a number and silently divide the gradient
        gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=1),
        kwargs_handlers=[
            DistributedDataParallelKwargs(gradient_as_bucket_view=True),
            InitProcessGroupKwargs(timeout=timedelta(hours=6)),  # processes wait while the first scores or tokenises
        ],
    )
    if plugin:
        set_sharding(accelerator, plugin)
    if (parallel := accelerator.parallelism_config) and parallel.non_data_parallel_size > 1:
        raise StsbenchError("tensor and context parallelism are not supported: use data parallelism or FSDP 2")
    if accelerator.distributed_type not in ("NO", "MULTI_GPU", "MULTI_CPU", "FSDP"):
        raise StsbenchError(f"accelerate's {accelerator.distributed_type} is not supported: use data parallelism or FSDP 2")
    return accelerator
