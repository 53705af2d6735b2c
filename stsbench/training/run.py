"""A training run: from a recipe to a run folder that holds the log, checkpoints, the exported best and what it is."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from stsbench.encoders.checkpoint import tokenizer_digest
from stsbench.encoders.exported import encoder_digest, read_exported, text_cnn_folder
from stsbench.errors import StsbenchError
from stsbench.files import atomic_write
from stsbench.modules.backbone import Backbone, load_backbone
from stsbench.plan import plan
from stsbench.provenance import provenance
from stsbench.registry import resolve
from stsbench.training.checkpoint import Checkpoints, Position
from stsbench.training.export import export_model
from stsbench.training.lock import held
from stsbench.training.log import Log
from stsbench.training.loop import Loop, Watcher, held_out_batches
from stsbench.training.method import GROUP, Method
from stsbench.training.optimiser import make_optimiser
from stsbench.training.recipe import Recipe
from stsbench.training.run_folder import Begun, begun, check, claim
from stsbench.training.selection import Selection
from stsbench.training.setup import StageData, backbone_folder, make_accelerator, make_stage, open_data
from stsbench.training.trackers import flat_config, trackers

Say = Callable[[str], None]


@dataclass
class TrainOptions:
    """How a recipe is run. Of these only where the development data lie has a say in which weights are kept."""

    recipe: Recipe
    output: Path
    resume: bool = False
    device: str | None = None
    data_dir: Path | None = None
    sample: bool = False
    offline: bool = False
    trackers: Sequence[str] = ()
    evaluate: Sequence[str] = ()  # protocols of the final test
    command: Sequence[str] = field(default_factory=list)


def train(options: TrainOptions, say: Say = print, watcher: Watcher | None = None) -> dict[str, Any]:
    """Train, keep the best, export it to RUN/best, test it if asked; returns what RUN/train.json holds.

    Raises StsbenchError, one line, for bad options, data, or a loss that is no number. A killed run is continued with
    `resume`, on one CPU process to the very bit.
    """
    recipe, folder = options.recipe, options.output
    if options.evaluate:
        plan(options.evaluate, None, {})  # a misspelt protocol is not to be noticed after the training
    accelerator = make_accelerator(recipe.precision, options.device, trackers(options.trackers), folder)
    main = accelerator.is_main_process
    said = say if main else (lambda line: None)
    if folder.exists() and not folder.is_dir():
        raise StsbenchError(f"--output {folder} is a file: name a folder")
    with held(folder) if main else nullcontext():
        if main:
            check(folder, recipe, options.resume)
        accelerator.wait_for_everyone()
        start = begun(folder, options.resume, options.sample, options.data_dir, options.command)
        options = replace(options, sample=start.sample, data_dir=Path(start.data_dir) if start.data_dir else None)
        if options.resume and (folder / "train.json").is_file():
            said(f"{folder} is finished: nothing to resume")
            return _tested(options, json.loads((folder / "train.json").read_text("utf-8")), accelerator, said)
        run = _Run(options, start, accelerator, said)
        accelerator.wait_for_everyone()
        if main:
            claim(folder, recipe, start)
        accelerator.wait_for_everyone()
        summary = run.train(watcher if main else None)
        return _tested(options, summary, accelerator, said)


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


class _Run:
    """One run in one process: everything is built, and so checked, before the folder is touched."""

    def __init__(self, options: TrainOptions, begun: Begun, accelerator: Accelerator, say: Say) -> None:
        self.options, self.begun, self.accelerator, self.say = options, begun, accelerator, say
        self.recipe = recipe = options.recipe
        self.kind: type[Method] = resolve(GROUP, recipe.method)
        if stray := [name for name in recipe.stages if name not in self.kind.stages]:
            raise StsbenchError(f"{recipe.method} has no stage '{stray[0]}'; it has {', '.join(self.kind.stages)}")
        chosen = self.kind.Options(**recipe.options)
        torch.manual_seed(recipe.seed)
        backbone = make_backbone(recipe, options.offline)
        self.source = backbone.folder
        self.data: dict[str, StageData] = {}
        for name in self.kind.stages:
            with accelerator.main_process_first():
                self.data[name] = open_data(recipe.stage_data(name), recipe, self.kind, chosen, backbone, self.source, say)
        self.method = self.kind(backbone, chosen)
        first = self.data[self.kind.stages[0]]
        with accelerator.main_process_first():  # who comes later finds it in the cache
            self.method.prepare(first.rows(first.trained))
        self.stages = [
            make_stage(number, name, recipe, self.data[name], self.kind, backbone, accelerator.num_processes)
            for number, name in enumerate(self.kind.stages)
        ]
        # From here on each process draws its own dropout masks.
        torch.manual_seed((recipe.seed * 1_000_003 + accelerator.process_index) % 2**63)
        self.method.to(accelerator.device)
        for line in [*self._left_behind(), *self.method.notes()]:
            say(line)
        self.selection = self._selection()
        for line in self.selection.warnings if self.selection else ():
            say(f"warning: {line}")
        self.inputs = self._inputs()
        self.checkpoints = Checkpoints(options.output / "checkpoints", accelerator)
        self.found = self.checkpoints.newest() if options.resume else None
        known = self.found[0].inputs if self.found else {}
        if changed := next((name for name, sha in known.items() if self.inputs.get(name) != sha), None):
            raise StsbenchError(
                f"--resume: the {changed} is not what {options.output} began with: put it back or start another run"
            )

    def _left_behind(self) -> list[str]:
        """A dense layer or TextCNN that the backbone is tested with as an encoder, and that training starts without."""
        start = self.recipe.backbone
        if start.pooler != "text_cnn" and text_cnn_folder(self.source) is not None:
            return [f"{start.model} is tested with a TextCNN; as a backbone of pooler {start.pooler} it is used without"]
        found = read_exported(self.source)
        if found is None or found.pooler != "cls+dense":
            return []
        return [f"{start.model} is tested with a dense layer; as a backbone it is used without"]

    def _inputs(self) -> dict[str, str]:
        """What the run reads, by what a user would call it -> sha256."""
        found = backbone_inputs(self.method.backbone)
        for name, data in self.data.items():
            both = f"{data.store.digest} {data.tokens.digest} {data.store.label_names}"
            found[f"data of stage {name}"] = hashlib.sha256(both.encode()).hexdigest()
        if self.selection:
            found["dev data"] = hashlib.sha256(f"{self.selection.name} {self.selection.digests}".encode()).hexdigest()
        return {**found, **self.method.inputs()}

    def train(self, watcher: Watcher | None) -> dict[str, Any]:
        """All stages, then the export. Returns the summary."""
        folder, accelerator = self.options.output, self.accelerator
        checkpoints, found = self.checkpoints, self.found
        start = {"processes": accelerator.num_processes, "inputs": self.inputs}
        position = found[0] if found else Position(0, self.stages[0].name, **start)
        log = Log(folder / "log.jsonl", keep=position.log, silent=not accelerator.is_main_process)
        if self.options.trackers:
            accelerator.init_trackers("stsbench", config=flat_config(self.recipe.model_dump()))
        try:
            seconds, before = 0.0, sum(stage.batches.steps for stage in self.stages[: position.number])
            for stage in self.stages[position.number :]:
                self.method.gather_mode = stage.settings.gather
                self.method.start_stage(stage.name)
                optimiser = make_optimiser(self.method, stage.settings, self.method.rates())
                wrapped, prepared = accelerator.prepare(self.method, optimiser)
                if position.number != stage.number:
                    position = Position(stage.number, stage.name, log=position.log, **start)
                elif found:
                    checkpoints.load(found[1], self.method, prepared)
                    self.say(f"resumed at step {position.step} of {stage.batches.steps}, stage {stage.name}")
                if stage.batches.steps < (stage.settings.max_steps or 0):
                    epochs = f"training.epochs {stage.settings.epochs:g} end at step {stage.batches.steps}"
                    self.say(f"{epochs}, before training.max_steps {stage.settings.max_steps}")
                if self.selection and stage.batches.steps < self.recipe.selection.every and not self.recipe.selection.at_end:
                    every = f"selection.every is {self.recipe.selection.every}"
                    self.say(f"warning: no step is up for selection ({every}): the last weights will be kept")
                if stage.batches.dropped:
                    self.say(f"the last {stage.batches.dropped} rows of each epoch give no batch and are left out")
                where = f"{accelerator.device} x {accelerator.num_processes}"
                size = f"{stage.settings.batch_size} of {len(stage.batches.rows)} rows"
                self.say(f"stage {stage.name}: {stage.batches.steps} steps of {size} on {where}")
                loop = Loop(
                    self.recipe, stage, self.method, wrapped, prepared, accelerator, log=log, checkpoints=checkpoints,
                    selection=self.selection, watcher=watcher, tracked_from=before if self.options.trackers else None,
                )  # fmt: skip
                position = loop.run(position)
                seconds += position.seconds
                before += stage.batches.steps
                accelerator.unwrap_model(wrapped, keep_fp32_wrapper=False)
                accelerator.free_memory()
        finally:
            log.close()
            if self.options.trackers:
                accelerator.end_training()
        if position.best:
            checkpoints.load_best(position.best, self.method)
        summary = self._summary(position, seconds)
        if accelerator.is_main_process:
            self._export(summary)
            with atomic_write(folder / "train.json") as stream:
                stream.write(json.dumps(summary, indent=1) + "\n")
        accelerator.wait_for_everyone()
        return summary

    def _selection(self) -> Selection | None:
        by = self.recipe.selection.by
        if by == "none":
            return None
        last, held_out = self.stages[-1], None
        data = self.data[last.name]
        if by == "held-out" and len(data.held_out):
            held_out = held_out_batches(
                self.method, data.rows, data.held_out, last.tokens_pad, last.settings.batch_size, self.recipe.seed,
                self.accelerator.device,
            )  # fmt: skip
        return Selection(
            by, data_dir=self.options.data_dir, sample=self.options.sample, offline=self.options.offline, held_out=held_out
        )

    def _summary(self, position: Position, seconds: float) -> dict[str, Any]:
        from stsbench.training.report import read_log

        folder = self.options.output
        devs = [line for line in read_log(folder / "log.jsonl") if line["kind"] == "dev"] if self.selection else []
        found = position.best
        name = self.selection.name if self.selection else "none"
        best = {"name": name, "stage": position.stage, "step": found.step, "score": found.score} if found else None
        return {
            "method": self.recipe.method, "recipe": self.recipe.name, "seed": self.recipe.seed,
            "stages": {stage.name: stage.batches.steps for stage in self.stages}, "seconds": round(seconds, 1),
            "selected_by": name,
            "before": devs[0]["score"] if devs else None, "best": best, "after": devs[-1]["score"] if devs else None,
            "exported": f"step {position.best.step}" if position.best else "the last step",
            "processes": self.accelerator.num_processes,
            "engine": self.method.backbone.engine_on(self.accelerator.device.type),
            "sample": self.options.sample and bool(self.selection and self.selection.digests),
            "data": {
                name: {"file": Path(str(self.recipe.stage_data(name).file)).name, "digest": data.store.digest,
                       "rows": len(data.trained), "held_out": len(data.held_out)}
                for name, data in self.data.items()
            },
            "dev_data": self.selection.digests if self.selection else {},
            "truncated": {name: dict(data.tokens.truncated) for name, data in self.data.items()},
            "provenance": provenance(
                command=self.begun.commands[0], resumed_by=self.begun.commands[1:], started=self.begun.started
            ),
        }  # fmt: skip

    def _export(self, summary: dict[str, Any]) -> None:
        from stsbench.training.card import describe, model_card

        self.method.eval()
        inference = self.method.inference()
        files = [{"name": data["file"], "stage": stage, **data} for stage, data in summary["data"].items()]
        said = {
            **summary, **describe(inference), "steps": sum(summary["stages"].values()), "data": files,
            "versions": summary["provenance"]["versions"],
        }  # fmt: skip
        export_model(
            inference, self.options.output / "best", card=model_card(self.recipe, said), method=self.recipe.method,
            recipe=self.recipe.name, replace=True,
        )  # fmt: skip


def _tested(options: TrainOptions, summary: dict[str, Any], accelerator: Accelerator, say: Say) -> dict[str, Any]:
    """The final test of RUN/best under the protocols asked for, in RUN/eval; the main process does it."""
    folder = options.output / "eval"
    if options.evaluate and accelerator.is_main_process:
        from stsbench import api

        if folder.exists():
            shutil.rmtree(folder)
        result = api.run(
            api.Options(
                model=str(options.output / "best"), output=folder, protocols=list(options.evaluate), device=options.device,
                data_dir=options.data_dir, sample=options.sample, offline=options.offline, command=options.command,
                origin={"seed": options.recipe.seed, "recipe": f"{options.recipe.method}/{options.recipe.name}"},
            ),
            say=say,
        )  # fmt: skip
        summary = {**summary, "failures": dict(result.failures)}
    accelerator.wait_for_everyone()
    return summary
