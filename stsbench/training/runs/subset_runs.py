"""The same recipe on several subsets of its rows, with several seeds each: a folder a subset, in it a run a seed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from stsbench.errors import StsbenchError
from stsbench.files import atomic_write
from stsbench.training.engine.callbacks import TrainingCallback
from stsbench.training.engine.loop import LossError
from stsbench.training.runs.options import TrainOptions
from stsbench.training.runs.run_folder import holds_something
from stsbench.training.runs.seed_runs import as_started, train_seeds
from stsbench.training.runs.subsets import first_subset, summarise_subsets, with_subset
from stsbench.training.runs.warm_start import earlier_run, earlier_subsets


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
    if folder.exists() and not folder.is_dir():
        raise StsbenchError(f"--output {folder} is a file: name a folder")
    if os.environ.get("RANK", "0") == "0" and not options.resume and holds_something(folder):
        raise StsbenchError(f"{folder} is already there: --resume continues it, or choose another --output")
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
    """What each subset goes on from. One that lacks is not to be noticed after the others' training: StsbenchError."""
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
