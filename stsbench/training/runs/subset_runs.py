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
from stsbench.training.engine.loop import Watcher
from stsbench.training.runs.options import TrainOptions
from stsbench.training.runs.seed_runs import as_begun, train_seeds
from stsbench.training.runs.stages import earlier_run, earlier_subsets
from stsbench.training.runs.subsets import first_subset, summarise_subsets, with_subset


def train_subsets(
    options: TrainOptions, subsets: int, seeds: int, say: Callable[[str], None], watcher: Watcher | None
) -> dict[str, Any]:
    """Train OUTPUT/subset-K/seed-S for `subsets` subsets, counted up from the recipe's sample_seed (or 0), and `seeds`.

    Returns what OUTPUT/subsets.json holds. With `resume`, finished runs are kept and the others go on or begin. A later
    stage goes on from the same subset of the run that is given, where that has several. Raises StsbenchError as `train`
    does, and where the recipe samples nothing.
    """
    if options.resume:
        options = as_begun(options, "subset-*/seed-*")
    first, folder = first_subset(options.recipe), options.output
    if folder.exists() and not folder.is_dir():
        raise StsbenchError(f"--output {folder} is a file: name a folder")
    if os.environ.get("RANK", "0") == "0" and not options.resume and folder.exists() and any(folder.iterdir()):
        raise StsbenchError(f"{folder} is already there: --resume continues it, or choose another --output")
    names = {number: f"subset-{number}" for number in range(first, first + subsets)}
    origins = _origins(options, names, seeds)
    failures: dict[str, str] = {}
    runs = {}
    for number, name in names.items():
        say(f"subset {number}: {folder / name}")
        recipe = with_subset(options.recipe, number)
        chosen = replace(options, recipe=recipe, output=folder / name, start_from=origins[number])
        found = train_seeds(chosen, seeds, say, watcher)
        failures |= {f"subset {number} {what}": why for what, why in found["failures"].items()}
        runs[number] = [folder / name / f"seed-{seed}" for seed in found["seeds"]]
    summary = summarise_subsets(runs)
    with atomic_write(folder / "subsets.json") as stream:  # every process writes the same bytes; a rename is whole
        stream.write(json.dumps(summary, indent=1) + "\n")
    return {**summary, "failures": failures}


def _origins(options: TrainOptions, names: Mapping[int, str], seeds: int) -> dict[int, Path | None]:
    """What each subset goes on from. One that lacks is not to be noticed after the others' training: StsbenchError."""
    given = options.start_from
    if given is None:
        return dict.fromkeys(names)
    there = [path.name for path in earlier_subsets(given)]
    if given.resolve() in earlier_subsets(given.resolve().parent):
        raise StsbenchError(f"--from {given} is one subset of several: name {given.resolve().parent}, or a single run")
    if not there:
        return dict.fromkeys(names, given)
    for name in names.values():
        if name not in there:
            raise StsbenchError(
                f"--from {given} holds no {name}, but {', '.join(there)}: set sample_seed to the first of them, and no more "
                "--subsets than there are"
            )
        for seed in range(options.recipe.seed, options.recipe.seed + seeds):
            earlier_run(given / name, seed)
    return {number: given / name for number, name in names.items()}
