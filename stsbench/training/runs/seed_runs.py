"""The same recipe with several seeds: one run a seed, in folders side by side, and what they have in common."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from stsbench.errors import StsbenchError
from stsbench.files import atomic_write, clear_leftovers
from stsbench.training.engine.callbacks import TrainingCallback
from stsbench.training.engine.loop import LossError
from stsbench.training.runs.options import TrainOptions
from stsbench.training.runs.run import train
from stsbench.training.runs.run_folder import holds_something, read_manifest
from stsbench.training.runs.seeds import summarise_seeds
from stsbench.training.runs.warm_start import earlier_run


def train_seeds(
    options: TrainOptions, seeds: int, log: Callable[[str], None], callback: TrainingCallback | None
) -> dict[str, Any]:
    """Train OUTPUT/seed-S for `seeds` seeds counted up from the recipe's; returns what OUTPUT/seeds.json holds.

    With `resume`, finished seeds are kept and the others go on or begin. Of a later stage each seed goes on from the run of
    its own seed, or all from the one that --from names. A seed whose loss is NaN or infinite is among the failures, and the
    others go on. Raises StsbenchError as `train` does, and that LossError where no seed was trained.
    """
    folder = options.output
    if folder.exists() and not folder.is_dir():
        raise StsbenchError(f"--output {folder} is a file: name a folder")
    first = os.environ.get("RANK", "0") == "0"  # of several processes: the others may come when the first has begun
    if first and not options.resume and holds_something(folder):
        raise StsbenchError(f"{folder} is already there: --resume continues it, or choose another --output")
    if first:
        clear_leftovers(folder)  # of seeds.json
    if options.resume:
        options = as_started(options)
    numbers = range(options.recipe.seed, options.recipe.seed + seeds)
    if options.start_from is not None:
        for seed in numbers:
            earlier_run(options.start_from, seed)  # one that lacks is not to be noticed after the others' training
    failures: dict[str, str] = {}
    failed: LossError | None = None
    runs = []
    seconds: list[float] = []  # of the seeds trained here from their first step on
    for seed in numbers:
        run = folder / f"seed-{seed}"
        log(f"seed {seed}: {run}{_left(seconds, numbers.stop - seed)}")
        began = time.monotonic()
        started = (run / "recipe.yaml").is_file()
        recipe = options.recipe.model_copy(update={"seed": seed})
        of_seed = replace(options, recipe=recipe, output=run, resume=options.resume and started)
        try:
            summary = train(of_seed, log, callback and _OfSeed(callback, seed))
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


class _OfSeed:
    """A callback that is told whose steps they are."""

    def __init__(self, callback: TrainingCallback, seed: int) -> None:
        self._callback, self._seed = callback, seed
        self.doing, self.step, self.dev = callback.doing, callback.step, callback.dev

    def stage(self, name: str, steps: int, start: int) -> None:
        self._callback.stage(f"{name}, seed {self._seed}", steps, start)


def _left(seconds: list[float], seeds: int) -> str:
    """"; about 0:20:00 for this and 3 more, ...", by the seeds before; "" where none was trained before."""
    if not seconds:
        return ""
    left = timedelta(seconds=round(seeds * sum(seconds) / len(seconds)))
    more = f" and {seeds - 1} more" if seeds > 1 else ""
    return f"; about {left} for this{more}, by the seeds before"


def as_started(options: TrainOptions, runs: str = "seed-*") -> TrainOptions:
    """Runs that have not started yet train the stage, and go on from the run, that the others did. runs: where they are."""
    started = next((path.parent for path in sorted(options.output.glob(f"{runs}/begun.json"))), None)
    if started is None:
        return options
    manifest = read_manifest(started)
    earlier = None if manifest.start_from is None else Path(manifest.start_from)
    if earlier is not None and started.parent != options.output and earlier.name == started.parent.name:
        earlier = earlier.parent  # each subset goes on from its own
    return replace(options, stage=options.stage or manifest.stage, start_from=options.start_from or earlier)
