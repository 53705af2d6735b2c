"""The same recipe on several subsets of its rows, with several seeds each: a folder a subset, in it a run a seed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from stsbench.errors import StsbenchError
from stsbench.files import atomic_write
from stsbench.training.loop import Watcher
from stsbench.training.run import TrainOptions
from stsbench.training.seed_runs import train_seeds
from stsbench.training.subsets import first_subset, summarise_subsets, with_subset


def train_subsets(
    options: TrainOptions, subsets: int, seeds: int, say: Callable[[str], None], watcher: Watcher | None
) -> dict[str, Any]:
    """Train OUTPUT/subset-K/seed-S for `subsets` subsets, counted up from the recipe's sample_seed (or 0), and `seeds`.

    Returns what OUTPUT/subsets.json holds. With `resume`, finished runs are kept and the others go on or begin. A later
    stage goes on from the same subset of the run that is given, where that has several. Raises StsbenchError as `train`
    does, and where the recipe samples nothing.
    """
    first, folder = first_subset(options.recipe), options.output
    if folder.exists() and not folder.is_dir():
        raise StsbenchError(f"--output {folder} is a file: name a folder")
    if os.environ.get("RANK", "0") == "0" and not options.resume and folder.exists() and any(folder.iterdir()):
        raise StsbenchError(f"{folder} is already there: --resume continues it, or choose another --output")
    failures: dict[str, str] = {}
    runs = {}
    for number in range(first, first + subsets):
        name = f"subset-{number}"
        given = options.start_from
        if given is not None and (given / name).is_dir():
            given = given / name
        say(f"subset {number}: {folder / name}")
        chosen = replace(options, recipe=with_subset(options.recipe, number), output=folder / name, start_from=given)
        found = train_seeds(chosen, seeds, say, watcher)
        failures |= {f"subset {number} {what}": why for what, why in found["failures"].items()}
        runs[number] = [folder / name / f"seed-{seed}" for seed in found["seeds"]]
    summary = summarise_subsets(runs)
    with atomic_write(folder / "subsets.json") as stream:  # every process writes the same bytes; a rename is whole
        stream.write(json.dumps(summary, indent=1) + "\n")
    return {**summary, "failures": failures}
