"""Training a recipe once, with several seeds, or on several subsets of its rows with several seeds each. A subset has a
folder with one run for each seed."""

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
    """Train once, with `seeds` seeds, or on `subsets` subsets with every seed. Return the content of the folder's
    train.json, seeds.json or subsets.json, with failures. Raises StsbenchError, one line."""
    if subsets:
        return train_subsets(options, subsets, seeds or 1, log, callback)
    return train_seeds(options, seeds, log, callback) if seeds else train(options, log, callback)


def train_seeds(
    options: TrainOptions, seeds: int, log: Callable[[str], None], callback: TrainingCallback | None
) -> dict[str, Any]:
    """Train OUTPUT/seed-S for `seeds` seeds, counted up from the recipe's. Return OUTPUT/seeds.json and the failures.
    With `resume`, finished seeds are kept, and the others are resumed or begun. In a later stage each seed starts from the
    earlier run of the same seed, or all seeds from the single run of --from. A seed whose loss becomes NaN or infinite is
    reported as a failure. Raises StsbenchError as `train` does, and LossError where every seed failed in this way.
    """
    folder = options.output
    first = os.environ.get("RANK", "0") == "0"  # other processes may find files of the first one in the folder
    check_output(folder, options.resume or not first)
    if first:
        clear_leftovers(folder)  # partial files of seeds.json
    if options.resume:
        options = as_started(options)
    numbers = range(options.recipe.seed, options.recipe.seed + seeds)
    if options.start_from is not None:
        for seed in numbers:
            earlier_run(options.start_from, seed)  # fails now, not after other seeds' training
    failures: dict[str, str] = {}
    failed: LossError | None = None
    runs = []
    told = _once(log)
    seconds: list[float] = []  # duration of each seed that was trained here from its first step
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
    with atomic_write(folder / "seeds.json") as stream:  # atomic, and every process writes the same bytes
        stream.write(json.dumps(over_seeds, indent=1) + "\n")
    return {**over_seeds, "failures": failures}


def _once(log: Callable[[str], None]) -> Callable[[str], None]:
    """Return a log that prints equal lines once, as most lines are the same for every seed."""
    lines = set[str]()

    def tell(line: str) -> None:
        if line not in lines:
            lines.add(line)
            log(line)

    return tell


class _OfSeed:
    """A callback whose stage names include the seed."""

    def __init__(self, callback: TrainingCallback, seed: int) -> None:
        self._callback, self._seed = callback, seed
        self.doing, self.step, self.dev = callback.doing, callback.step, callback.dev

    def stage(self, name: str, steps: int, start: int) -> None:
        self._callback.stage(f"{name}, seed {self._seed}", steps, start)


def _left(seconds: list[float], seeds: int) -> str:
    """Return the expected time, "; about 0:20:00 for this and 3 more, ...", from the mean of `seconds`; "" without any."""
    if not seconds:
        return ""
    left = timedelta(seconds=round(seeds * sum(seconds) / len(seconds)))
    more = f" and {seeds - 1} more" if seeds > 1 else ""
    return f"; about {left} for this{more}, by the seeds before"


def as_started(options: TrainOptions, runs: str = "seed-*") -> TrainOptions:
    """Return `options` for a resumed training: stage and earlier run default to those of the runs that have started. runs:
    the pattern of their folders."""
    started = next((path.parent for path in sorted(options.output.glob(f"{runs}/begun.json"))), None)
    if started is None:
        return options
    manifest = read_manifest(started)
    earlier = None if manifest.start_from is None else Path(manifest.start_from)
    if earlier is not None and started.parent != options.output and earlier.name == started.parent.name:
        earlier = earlier.parent  # each subset starts from the same subset of the earlier training
    return replace(options, stage=options.stage or manifest.stage, start_from=options.start_from or earlier)


def train_subsets(
    options: TrainOptions, subsets: int, seeds: int, log: Callable[[str], None], callback: TrainingCallback | None
) -> dict[str, Any]:
    """Train OUTPUT/subset-K/seed-S for `subsets` subsets, counted up from the recipe's sample_seed (or 0), and `seeds`.

    Return the content of OUTPUT/subsets.json, with failures. With `resume`, finished runs are kept, and the others are
    resumed or begun. A later stage starts from the same subset of the earlier training (--from), if it has several. Losses
    that become NaN or infinite are failures, as in `train_seeds`. Raises StsbenchError as `train` does, and without samples.
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
    with atomic_write(folder / "subsets.json") as stream:  # atomic, and every process writes the same bytes
        stream.write(json.dumps(summary, indent=1) + "\n")
    return {**summary, "failures": failures}


def _earlier_runs(options: TrainOptions, names: Mapping[int, str], seeds: int) -> dict[int, Path | None]:
    """Return subset -> the earlier run or subset that it starts from, None without --from. Raises StsbenchError where one
    is missing, before any subset is trained."""
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
    """Return whether the settings draw a sample of the file's rows."""
    return settings is not None and (settings.share < 1 or settings.sample is not None)


def first_subset(recipe: Recipe) -> int:
    """Return the first subset's sample_seed: that of the sampled rows, or 0. Raises StsbenchError where none are sampled."""
    return _varied(recipe).sample_seed or 0


def with_subset(recipe: Recipe, number: int) -> Recipe:
    """Return the recipe with `number` as the sample_seed of the labelled rows, if they are sampled, else of the data.

    Other sections that sample the same file, however its path is written, get this sample_seed, too. Other files keep theirs
    except in stages that inherit it from `data`. Raises StsbenchError where nothing is sampled, or a file with two seeds.
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
    """Return the settings of the section whose sample differs between subsets. Raises StsbenchError as `with_subset`."""
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
    """Return the absolute path of the section's file, None without one."""
    return None if settings.file is None else Path(settings.file).expanduser().resolve()
