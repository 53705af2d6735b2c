"""A recipe once, with several seeds, or on several subsets of its rows with several seeds each: a folder a subset, in it a
run a seed."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from stsbench.errors import StsbenchError
from stsbench.files import atomic_write, clear_leftovers
from stsbench.training.engine.callbacks import TrainingCallback
from stsbench.training.engine.loop import LossError
from stsbench.training.recipes.recipe import Recipe
from stsbench.training.recipes.sections import DataSettings, LabelledSettings
from stsbench.training.runs.options import TrainOptions
from stsbench.training.runs.report import summarise_seeds, summarise_subsets
from stsbench.training.runs.run import train
from stsbench.training.runs.run_folder import check_output, read_manifest
from stsbench.training.runs.warm_start import earlier_run, earlier_subsets


def train_runs(
    options: TrainOptions, seeds: int | None, subsets: int | None, log: Callable[[str], None],
    callback: TrainingCallback | None = None,
) -> dict[str, Any]:
    """Train once, with so many seeds, or on so many subsets with each of the seeds; returns what train.json, seeds.json or
    subsets.json of the folder holds. Raises StsbenchError, one line."""
    if subsets:
        return train_subsets(options, subsets, seeds or 1, log, callback)
    return train_seeds(options, seeds, log, callback) if seeds else train(options, log, callback)


def train_seeds(
    options: TrainOptions, seeds: int, log: Callable[[str], None], callback: TrainingCallback | None
) -> dict[str, Any]:
    """Train OUTPUT/seed-S for `seeds` seeds counted up from the recipe's; returns what OUTPUT/seeds.json holds.

    With `resume`, finished seeds are kept and the others go on or begin. Of a later stage each seed goes on from the run of
    its own seed, or all from the one that --from names. A seed whose loss is NaN or infinite is among the failures, and the
    others go on. Raises StsbenchError as `train` does, and that LossError where no seed was trained.
    """
    folder = options.output
    first = os.environ.get("RANK", "0") == "0"  # other processes may come when the first has begun
    check_output(folder, options.resume or not first)
    if first:
        clear_leftovers(folder)  # those of seeds.json
    if options.resume:
        options = as_started(options)
    numbers = range(options.recipe.seed, options.recipe.seed + seeds)
    if options.start_from is not None:
        for seed in numbers:
            earlier_run(options.start_from, seed)  # one that lacks is not to be noticed after the others' training
    failures: dict[str, str] = {}
    failed: LossError | None = None
    runs = []
    told = _once(log)
    seconds: list[float] = []  # for the seeds trained here from their first step on
    for seed in numbers:
        run = folder / f"seed-{seed}"
        log(f"seed {seed}: {run}{_left(seconds, numbers.stop - seed)}")
        began = time.monotonic()
        started = (run / "recipe.yaml").is_file()
        recipe = options.recipe.model_copy(update={"seed": seed})
        of_seed = replace(options, recipe=recipe, output=run, resume=options.resume and started)
        try:
            summary = train(of_seed, told, callback and _OfSeed(callback, seed))
        except LossError as error:
            failures[f"seed {seed}"], failed = str(error), error
            log(f"warning: seed {seed} failed: {error}")
            continue
        failures |= {f"seed {seed} {task}": why for task, why in summary.get("failures", {}).items()}
        runs.append(run)
        if not started:
            seconds.append(time.monotonic() - began)
    if failed is not None and not runs:
        raise failed
    over_seeds = summarise_seeds(runs)
    with atomic_write(folder / "seeds.json") as stream:  # every process writes the same bytes; a rename is whole
        stream.write(json.dumps(over_seeds, indent=1) + "\n")
    return {**over_seeds, "failures": failures}


def _once(log: Callable[[str], None]) -> Callable[[str], None]:
    """Return a log that leaves out a line that it has had: what one seed's run says is true of the next one's, too."""
    lines = set[str]()

    def tell(line: str) -> None:
        if line not in lines:
            lines.add(line)
            log(line)

    return tell


class _OfSeed:
    """A callback that is told whose steps they are."""

    def __init__(self, callback: TrainingCallback, seed: int) -> None:
        self._callback, self._seed = callback, seed
        self.doing, self.step, self.dev = callback.doing, callback.step, callback.dev

    def stage(self, name: str, steps: int, start: int) -> None:
        self._callback.stage(f"{name}, seed {self._seed}", steps, start)


def _left(seconds: list[float], seeds: int) -> str:
    """Return "; about 0:20:00 for this and 3 more, ...", by the seeds before; "" where none was trained before."""
    if not seconds:
        return ""
    left = timedelta(seconds=round(seeds * sum(seconds) / len(seconds)))
    more = f" and {seeds - 1} more" if seeds > 1 else ""
    return f"; about {left} for this{more}, by the seeds before"


def as_started(options: TrainOptions, runs: str = "seed-*") -> TrainOptions:
    """Return runs that have not started yet train the stage, and go on from the run, that the others did. runs: where
    they are."""
    started = next((path.parent for path in sorted(options.output.glob(f"{runs}/begun.json"))), None)
    if started is None:
        return options
    manifest = read_manifest(started)
    earlier = None if manifest.start_from is None else Path(manifest.start_from)
    if earlier is not None and started.parent != options.output and earlier.name == started.parent.name:
        earlier = earlier.parent  # each subset goes on from its own
    return replace(options, stage=options.stage or manifest.stage, start_from=options.start_from or earlier)


def train_subsets(
    options: TrainOptions, subsets: int, seeds: int, log: Callable[[str], None], callback: TrainingCallback | None
) -> dict[str, Any]:
    """Train OUTPUT/subset-K/seed-S for `subsets` subsets, counted up from the recipe's sample_seed (or 0), and `seeds`.

    Returns what OUTPUT/subsets.json holds. With `resume`, finished runs are kept and the others go on or begin. A later
    stage goes on from the same subset of the run that --from names, where that has several. Losses that are NaN or infinite
    as for `train_seeds`. Raises StsbenchError as `train` does, and where the recipe samples nothing.
    """
    if options.resume:
        options = as_started(options, "subset-*/seed-*")
    first, folder = first_subset(options.recipe), options.output
    check_output(folder, options.resume or os.environ.get("RANK", "0") != "0")
    names = {number: f"subset-{number}" for number in range(first, first + subsets)}
    earlier = _earlier_runs(options, names, seeds)
    failures: dict[str, str] = {}
    failed: LossError | None = None
    runs = {}
    for number, name in names.items():
        log(f"subset {number}: {folder / name}")
        recipe = with_subset(options.recipe, number)
        chosen = replace(options, recipe=recipe, output=folder / name, start_from=earlier[number])
        try:
            trained = train_seeds(chosen, seeds, log, callback)
        except LossError as error:
            failures[f"subset {number}"], failed = str(error), error
            continue
        failures |= {f"subset {number} {what}": why for what, why in trained["failures"].items()}
        runs[number] = [folder / name / f"seed-{seed}" for seed in trained["seeds"]]
    if failed is not None and not runs:
        raise failed
    summary = summarise_subsets(runs)
    with atomic_write(folder / "subsets.json") as stream:  # every process writes the same bytes; a rename is whole
        stream.write(json.dumps(summary, indent=1) + "\n")
    return {**summary, "failures": failures}


def _earlier_runs(options: TrainOptions, names: Mapping[int, str], seeds: int) -> dict[int, Path | None]:
    """Return what each subset goes on from. One that lacks is not to be noticed after the others' training:
    StsbenchError."""
    folder = options.start_from
    if folder is None:
        return dict.fromkeys(names)
    there = [path.name for path in earlier_subsets(folder)]
    if folder.resolve() in earlier_subsets(folder.resolve().parent):
        raise StsbenchError(f"--from {folder} is one subset of several: name {folder.resolve().parent}, or a single run")
    if not there:
        return dict.fromkeys(names, folder)
    for name in names.values():
        if name not in there:
            raise StsbenchError(
                f"--from {folder} holds no {name}, but {', '.join(there)}: set sample_seed to the first of them, and no "
                "more --subsets than there are"
            )
        for seed in range(options.recipe.seed, options.recipe.seed + seeds):
            earlier_run(folder / name, seed)
    return {number: folder / name for number, name in names.items()}


def samples(settings: DataSettings | None) -> bool:
    """Return whether these rows are drawn from more."""
    return settings is not None and (settings.share < 1 or settings.sample is not None)


def first_subset(recipe: Recipe) -> int:
    """Return the sample_seed of the first subset: that of the rows that are sampled, or 0. StsbenchError where none are."""
    return _varied(recipe).sample_seed or 0


def with_subset(recipe: Recipe, number: int) -> Recipe:
    """Return the recipe with the subset `number`: the sample_seed of the labelled rows, if they are sampled, else of the
    data.

    Another section that samples the same file, however it is spelt, gets the same sample_seed. Other files keep theirs,
    but for stages that take it over from `data`. Raises StsbenchError where nothing is sampled, or one file by two seeds.
    """
    file, update = _file(_varied(recipe)), {"sample_seed": number}

    def drawn(settings: DataSettings | None) -> bool:
        return settings is not None and samples(settings) and _file(settings) == file

    stages = {
        name: {**parts, "data": {**parts["data"], **update}}
        if "data" in parts and drawn(recipe.stage_data(name)) else parts
        for name, parts in recipe.stages.items()
    }
    data: DataSettings = recipe.data.model_copy(update=update) if drawn(recipe.data) else recipe.data
    labelled: LabelledSettings | None = recipe.labelled
    if labelled is not None and drawn(labelled):
        labelled = labelled.model_copy(update=update)
    return recipe.model_copy(update={"data": data, "labelled": labelled, "stages": stages})


def _varied(recipe: Recipe) -> DataSettings:
    """Return the settings whose sample is drawn anew for each subset."""
    sections: dict[str, DataSettings | None] = {"labelled": recipe.labelled, "data": recipe.data}
    sections |= {f"stages.{name}.data": recipe.stage_data(name) for name, parts in recipe.stages.items() if "data" in parts}
    sampled = {name: settings for name, settings in sections.items() if settings is not None and samples(settings)}
    if not sampled:
        raise StsbenchError(
            "--subsets: nothing is sampled, so every subset would be the whole: set labelled.share or data.share (0.01: "
            "1 %), or labelled.sample or data.sample"
        )
    first, varied = next(iter(sampled.items()))
    for name, settings in sampled.items():
        seeds = varied.sample_seed, settings.sample_seed
        if _file(settings) == _file(varied) and None not in seeds and seeds[0] != seeds[1]:
            raise StsbenchError(
                f"--subsets: {first}.sample_seed is {seeds[0]} and {name}.sample_seed {seeds[1]}, both of {varied.file}: "
                "set both to the first subset's"
            )
    return varied


def _file(settings: DataSettings) -> Path | None:
    """Return where the file is, whichever way it is spelt."""
    return None if settings.file is None else Path(settings.file).expanduser().resolve()
