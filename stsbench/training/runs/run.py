"""A training run: from a recipe to a run folder that holds the log, checkpoints, the exported best and what it is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from safetensors import SafetensorError

from stsbench.encoders.forward.checkpoint import tokenizer_digest
from stsbench.encoders.forward.text_cnn_files import text_cnn_folder
from stsbench.encoders.transformer.exported import encoder_digest, read_exported
from stsbench.errors import StsbenchError
from stsbench.evaluation.plan import plan
from stsbench.files import atomic_write
from stsbench.training.engine.checkpoint import Best, Checkpoints, Position
from stsbench.training.engine.log import Log
from stsbench.training.engine.loop import Loop, Watcher, held_out_batches
from stsbench.training.engine.optimiser import make_optimiser
from stsbench.training.engine.selection import Selection
from stsbench.training.engine.semi import method_kind
from stsbench.training.engine.trackers import flat_config, trackers
from stsbench.training.modules.backbone import Backbone, load_backbone
from stsbench.training.recipes.recipe import Recipe
from stsbench.training.rows.stage_rows import LABELLED, digests, label_names, open_rows
from stsbench.training.runs.finish import FinishedRun, described_data, export_best, summarise, tested
from stsbench.training.runs.lock import held
from stsbench.training.runs.options import TrainOptions
from stsbench.training.runs.run_folder import Begun, begun, check, claim
from stsbench.training.runs.setup import backbone_folder, dropped, make_accelerator, make_stage, prepare, prepare_own
from stsbench.training.runs.stages import (
    Origin,
    began_with,
    check_best,
    check_given,
    check_inputs,
    check_labels,
    counted_stages,
    describe_origin,
    earlier_run,
    find_origin,
    set_schedules,
    stage_name,
)

Say = Callable[[str], None]


def train(options: TrainOptions, say: Say = print, watcher: Watcher | None = None) -> dict[str, Any]:
    """Train, keep the best, export it to RUN/best, test it if asked; returns what RUN/train.json holds.

    Raises StsbenchError, one line, for bad options, data, or a loss that is no number. A killed run is continued with
    `resume`, on one CPU process to the very bit.
    """
    recipe, folder = options.recipe, options.output
    if options.evaluate:
        plan(options.evaluate, None, {})  # a misspelt protocol is not to be noticed after the training
    kind = method_kind(recipe)
    stage = stage_name(kind, options.stage)
    accelerator = make_accelerator(recipe.precision, options.device, trackers(options.trackers), folder)
    main = accelerator.is_main_process
    said = say if main else (lambda line: None)
    if folder.exists() and not folder.is_dir():
        raise StsbenchError(f"--output {folder} is a file: name a folder")
    with held(folder) if main else nullcontext():
        if main:
            check(folder, recipe, options.resume)
        accelerator.wait_for_everyone()
        start = begun(
            folder, options.resume, sample=options.sample, data_dir=options.data_dir, command=options.command, stage=stage,
            start_from=options.start_from,
        )  # fmt: skip
        check_given(kind, start.stage, start.start_from)
        options = replace(options, sample=start.sample, data_dir=Path(start.data_dir) if start.data_dir else None)
        if options.resume and (folder / "train.json").is_file():
            said(f"{folder} is finished: nothing to resume")
            return tested(options, json.loads((folder / "train.json").read_text("utf-8")), accelerator, said)
        run = Run(options, start, accelerator, said)
        accelerator.wait_for_everyone()
        if main:
            start.data = described_data(run.kind, run.method.options, run.names, run.data)
            claim(folder, recipe, start)
        accelerator.wait_for_everyone()
        summary = run.train(watcher if main else None)
        return tested(options, summary, accelerator, said)


def make_backbone(recipe: Recipe, offline: bool = False) -> Backbone:
    """What the recipe's training starts from; `folder` and `name` say where it was read."""
    start = recipe.backbone
    source = backbone_folder(start.model, offline)
    head = None if start.text_cnn is None else start.text_cnn.model_dump()
    backbone = load_backbone(source, start.model, start.pooler, start.max_length, start.dropout, head)
    backbone.folder, backbone.name, backbone.offline = source, start.model, offline
    return backbone


def backbone_inputs(backbone: Backbone) -> dict[str, str]:
    """The files that `make_backbone` read -> sha256."""
    folder = Path(backbone.folder)
    return {"backbone": encoder_digest(folder, backbone.pooler), "tokenizer": tokenizer_digest(folder)}


class Run:
    """One run in one process: everything is built, and so checked, before the folder is touched."""

    def __init__(self, options: TrainOptions, begun: Begun, accelerator: Accelerator, say: Say) -> None:
        self.options, self.begun, self.accelerator, self.say = options, begun, accelerator, say
        self.recipe = recipe = options.recipe
        self.kind = method_kind(recipe)
        if stray := [name for name in recipe.stages if name not in self.kind.stages]:
            raise StsbenchError(f"{recipe.method} has no stage '{stray[0]}'; it has {', '.join(self.kind.stages)}")
        chosen = self.kind.Options(**recipe.options)
        self.names = [begun.stage] if begun.stage else list(self.kind.stages)
        counted = counted_stages(recipe, self.kind, self.names)
        self.checkpoints = Checkpoints(options.output / "checkpoints", accelerator)
        self.found = self.checkpoints.newest() if options.resume else None
        self.origin = self._origin()
        torch.manual_seed(recipe.seed)
        try:
            backbone = make_backbone(recipe, options.offline)
        except StsbenchError as error:
            raise StsbenchError(f"{error}{began_with(self.origin, recipe)}") from error
        self.source = backbone.folder
        if self.origin:
            check_inputs(self.origin, backbone_inputs(backbone), recipe.backbone.model)
        opened = [name for name in self.kind.stages if name in (*self.names, *counted)]
        with accelerator.main_process_first():  # who comes later finds it in the cache
            self.data = open_rows(recipe, self.kind, chosen, backbone, self.source, opened, say)
        self.method = self.kind(backbone, chosen)
        with accelerator.main_process_first():
            prepare(self.method, self.data, self.names)
        stages = {
            name: make_stage(number, name, recipe, self.data, self.kind, chosen, backbone, accelerator.num_processes)
            for number, name in enumerate(self.kind.stages) if name in opened
        }  # fmt: skip
        set_schedules(stages, self.names)
        self.stages = [stages[name] for name in self.names]
        # From here on each process draws its own dropout masks.
        torch.manual_seed((recipe.seed * 1_000_003 + accelerator.process_index) % 2**63)
        self.method.to(accelerator.device)
        for line in [*self._left_behind(), *self.method.notes()]:
            say(line)
        self.selections = self._selections()
        self.selection = self.selections.get(self.names[-1])
        for line in self.selection.warnings if self.selection else ():
            say(f"warning: {line}")
        self.inputs = self._inputs()
        if self.origin:
            check_inputs(self.origin, self.method.inputs(), recipe.backbone.model)
            check_labels(f"--from {self.origin.run}", self.origin.position.inputs, self.inputs)
            if recipe.selection.over == "all" and self.selection:
                check_best(self.origin, self.inputs["dev data"])
        known = self.found[0].inputs if self.found else {}
        check_labels(f"--resume: {options.output}", known, self.inputs)
        if changed := next((name for name, sha in known.items() if self.inputs.get(name) != sha), None):
            raise StsbenchError(
                f"--resume: the {changed} is not what {options.output} began with: put it back or start another run"
            )
        if self.origin:
            self._take_weights(self.origin)

    def _origin(self) -> Origin | None:
        """What a later stage goes on from; None for other runs, and for one that has a checkpoint of its own."""
        begun = self.begun
        if begun.start_from is None or begun.stage is None or self.found:
            return None
        run = earlier_run(Path(begun.start_from), self.recipe.seed)
        found = find_origin(run, self.kind, begun.stage, self.recipe)
        if begun.origin and begun.origin["weights"] != found.weights:
            raise StsbenchError(f"--resume: {run} is not what {self.options.output} began from: start another run")
        begun.origin = describe_origin(found, self.kind, self.recipe)
        return found

    def _left_behind(self) -> list[str]:
        """A dense layer, TextCNN or prompt that the backbone is tested with as an encoder; training starts without."""
        start = self.recipe.backbone
        if start.pooler != "text_cnn" and text_cnn_folder(self.source) is not None:
            return [f"{start.model} is tested with a TextCNN; as a backbone of pooler {start.pooler} it is used without"]
        found = read_exported(self.source)
        own = {"cls+dense": "dense layer", "mask": "prompt"}.get(found.pooler) if found is not None else None
        return [f"{start.model} is tested with a {own}; as a backbone it is used without"] if own else []

    def _inputs(self) -> dict[str, str]:
        """What the run reads, by what a user would call it -> sha256."""
        found = backbone_inputs(self.method.backbone)
        found |= digests(self.data)
        found |= label_names(self.data, self.kind, self.method.options)
        if self.selection:
            found["dev data"] = hashlib.sha256(f"{self.selection.name} {self.selection.digests}".encode()).hexdigest()
        return {**found, **self.method.inputs()}

    def train(self, watcher: Watcher | None) -> dict[str, Any]:
        """All stages, then the export. Returns the summary."""
        folder, accelerator = self.options.output, self.accelerator
        checkpoints, found = self.checkpoints, self.found
        start = {"processes": accelerator.num_processes, "inputs": self.inputs}
        first = self.stages[0]
        position = found[0] if found else Position(first.number, first.name, steps=first.batches.steps, **start)
        log = Log(folder / "log.jsonl", keep=position.log, silent=not accelerator.is_main_process)
        if self.options.trackers:
            accelerator.init_trackers("stsbench", config=flat_config(self.recipe.model_dump()))
        try:
            if self.origin:
                position.best = self._take_over(self.origin)
            before = sum(stage.batches.steps for stage in self.stages if stage.number < position.number)
            for stage in [stage for stage in self.stages if stage.number >= position.number]:
                selection = self.selections.get(stage.name)
                self.method.gather_mode = stage.settings.gather
                self.method.start_stage(stage.name)
                optimiser = make_optimiser(self.method, stage.settings, self.method.rates())
                wrapped, prepared = accelerator.prepare(self.method, optimiser)
                if position.number != stage.number:
                    position = Position(
                        stage.number, stage.name, log=position.log, steps=stage.batches.steps,
                        best=position.best if self.recipe.selection.over == "all" else None,
                        seconds_before=position.seconds_before + position.seconds, **start,
                    )  # fmt: skip
                elif found:
                    checkpoints.load(found[1], self.method, prepared)
                    self.say(f"resumed at step {position.step} of {stage.batches.steps}, stage {stage.name}")
                if stage.batches.steps < (stage.settings.max_steps or 0):
                    epochs = f"training.epochs {stage.settings.epochs:g} end at step {stage.batches.steps}"
                    self.say(f"{epochs}, before training.max_steps {stage.settings.max_steps}")
                if selection and stage.batches.steps < self.recipe.selection.every and not self.recipe.selection.at_end:
                    every = f"selection.every is {self.recipe.selection.every}"
                    self.say(f"warning: no step is up for selection ({every}): the last weights will be kept")
                for line in dropped(stage):
                    self.say(line)
                where = f"{accelerator.device} x {accelerator.num_processes}"
                size = f"{stage.settings.batch_size} of {len(stage.batches.rows)} rows"
                self.say(f"stage {stage.name}: {stage.batches.steps} steps of {size} on {where}")
                loop = Loop(
                    self.recipe, stage, self.method, wrapped, prepared, accelerator, log=log, checkpoints=checkpoints,
                    selection=selection, watcher=watcher, tracked_from=before if self.options.trackers else None,
                )  # fmt: skip
                position = loop.run(position)
                before += stage.batches.steps
                accelerator.unwrap_model(wrapped, keep_fp32_wrapper=False)
                accelerator.free_memory()
        finally:
            log.close()
            if self.options.trackers:
                accelerator.end_training()
        if position.best:
            checkpoints.load_best(position.best, self.method)
        finished = FinishedRun(
            self.recipe, folder, self.begun, self.method, self.stages, self.data, self.selection,
            sample=self.options.sample, processes=accelerator.num_processes,
            engine=self.method.backbone.engine_on(accelerator.device.type),
            described=described_data(self.kind, self.method.options, self.names, self.data),
        )  # fmt: skip
        summary = summarise(finished, position)
        if accelerator.is_main_process:
            export_best(finished, summary)
            with atomic_write(folder / "train.json") as stream:
                stream.write(json.dumps(summary, indent=1) + "\n")
        accelerator.wait_for_everyone()
        return summary

    def _take_weights(self, origin: Origin) -> None:
        """The origin's weights. Raises StsbenchError where they do not fit."""
        try:
            self.checkpoints.load_weights(origin.folder, self.method)
        except (RuntimeError, OSError, SafetensorError) as error:
            first = " ".join(str(error).split())[:300]
            raise StsbenchError(
                f"--from {origin.run}: its weights do not fit what this run trains, by other data or versions: {first}"
            ) from error

    def _take_over(self, origin: Origin) -> Best | None:
        """What goes on beside the origin's weights: its random states where they can; its best where that counts."""
        position, mine = origin.position, (self.recipe.seed, self.accelerator.num_processes)
        theirs = (origin.recipe.seed, position.processes)
        self.say(f"goes on from {origin.run}: stage {position.stage}, step {position.step:,}")
        prepare_own(self.method, self.data, self.names)  # where the stages before were none of the method's own
        if mine == theirs:
            self.checkpoints.load_randomness(origin.folder)
        else:
            told = ["seed {}, {} process(es)".format(*each) for each in (theirs, mine)]
            self.say(f"its random states are not taken over: {told[0]} there, {told[1]} here")
        if self.recipe.selection.over != "all" or position.best is None:
            return None
        self.checkpoints.adopt(origin.folder.parent, position.best)
        return position.best

    def _selections(self) -> dict[str, Selection]:
        """How each stage is scored: by held-out rows, each by its own, and not at all where it holds out none."""
        by, options = self.recipe.selection.by, self.options
        places: dict[str, Any] = {"data_dir": options.data_dir, "sample": options.sample, "offline": options.offline}
        if by == "none":
            return {}
        if by != "held-out":
            return dict.fromkeys(self.names, Selection(by, **places))
        if self.recipe.selection.over == "all" and len(self.kind.stages) > 1:
            raise StsbenchError("selection.over all: the stages' scores on held-out rows do not compare; set it to last")
        found = {}
        for stage in self.stages:
            data = self.data[LABELLED if stage.instead else stage.name]
            if len(data.held_out) or stage is self.stages[-1]:
                batches = held_out_batches(
                    self.method, data.rows, data.held_out, stage.tokens_pad, stage.settings.batch_size, self.recipe.seed,
                    self.accelerator.device, stage.instead,
                )  # fmt: skip
                found[stage.name] = Selection(by, **places, held_out=batches if len(data.held_out) else None)
        return found
