"""The same recipe with several seeds: one run a seed, in folders side by side, and what they have in common."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from stsbench.errors import StsbenchError
from stsbench.files import atomic_write
from stsbench.training.engine.loop import Watcher
from stsbench.training.runs.options import TrainOptions
from stsbench.training.runs.run import train
from stsbench.training.runs.run_folder import stored_begun
from stsbench.training.runs.seeds import summarise_seeds
from stsbench.training.runs.stages import earlier_run


def train_seeds(options: TrainOptions, seeds: int, say: Callable[[str], None], watcher: Watcher | None) -> dict[str, Any]:
    """Train OUTPUT/seed-S for `seeds` seeds counted up from the recipe's; returns what OUTPUT/seeds.json holds.

    With `resume`, finished seeds are kept and the others go on or begin. Of a later stage each seed goes on from the run of
    its own seed, or all from the one that is given. Raises StsbenchError as `train` does.
    """
    folder = options.output
    if folder.exists() and not folder.is_dir():
        raise StsbenchError(f"--output {folder} is a file: name a folder")
    first = os.environ.get("RANK", "0") == "0"  # of several processes: the others may come when the first has begun
    if first and not options.resume and folder.exists() and any(folder.iterdir()):
        raise StsbenchError(f"{folder} is already there: --resume continues it, or choose another --output")
    if options.resume:
        options = as_begun(options)
    numbers = range(options.recipe.seed, options.recipe.seed + seeds)
    if options.start_from is not None:
        for seed in numbers:
            earlier_run(options.start_from, seed)  # one that lacks is not to be noticed after the others' training
    failures: dict[str, str] = {}
    runs = []
    for seed in numbers:
        run = folder / f"seed-{seed}"
        say(f"seed {seed}: {run}")
        begun = (run / "recipe.yaml").is_file()
        found = train(
            replace(options, recipe=options.recipe.model_copy(update={"seed": seed}), output=run,
                    resume=options.resume and begun), say, watcher,
        )  # fmt: skip
        failures |= {f"seed {seed} {task}": why for task, why in found.get("failures", {}).items()}
        runs.append(run)
    summary = summarise_seeds(runs)
    with atomic_write(folder / "seeds.json") as stream:  # every process writes the same bytes; a rename is whole
        stream.write(json.dumps(summary, indent=1) + "\n")
    return {**summary, "failures": failures}


def as_begun(options: TrainOptions, runs: str = "seed-*") -> TrainOptions:
    """Runs that have not begun yet train the stage, and go on from the run, that the others did. runs: where, in OUTPUT."""
    begun = next((path.parent for path in sorted(options.output.glob(f"{runs}/begun.json"))), None)
    if begun is None:
        return options
    stored = stored_begun(begun)
    given = None if stored.start_from is None else Path(stored.start_from)
    if given is not None and begun.parent != options.output and given.name == begun.parent.name:
        given = given.parent  # each subset goes on from its own
    return replace(options, stage=options.stage or stored.stage, start_from=options.start_from or given)
