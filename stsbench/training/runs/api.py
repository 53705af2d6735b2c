"""`stsbench.train`: what the command does, for callers in Python."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from stsbench.errors import StsbenchError, StsbenchWarning
from stsbench.notebook import TrainingBar, in_notebook
from stsbench.registry import did_you_mean
from stsbench.training.recipes.recipe import Recipe


def train(
    method: str, *, output: str | Path, recipe: str | Path | Recipe | None = None, seeds: int | None = None,
    subsets: int | None = None, backbone: str | Path | None = None, settings: Mapping[str, Any] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Train a method by a recipe (name, file or Recipe; None: the method's own) into the folder `output`.

    method: a name, or FILE.py:CLASS; settings: values in the place of the recipe's, by dotted key
    ("training.learning_rate"); without "precision" among them fp16 is float32 where there is no CUDA device; backbone: the
    one of them that is called backbone.model; seeds: so many runs, seeds counted up; subsets: the recipe's sampled rows are
    drawn anew so many times, each trained on with all these seeds; options: those of
    stsbench.training.runs.options.TrainOptions (stage, start_from, ...); sample=True is --sample: model, texts and
    development data from the package, the data alone beside texts of your own. Nothing is printed; in a notebook there is a
    progress bar. What the command line prints as a warning is a StsbenchWarning. Returns what the folder's train.json (or
    seeds.json, subsets.json) holds. Raises StsbenchError, one line.
    """
    from stsbench.training.recipes.precision import load_for_device
    from stsbench.training.recipes.recipes import load_recipe
    from stsbench.training.recipes.sample import WARNING, is_of_sample, of_the_users_own, sample_settings
    from stsbench.training.runs.options import TrainOptions
    from stsbench.training.runs.run import train as run
    from stsbench.training.runs.seed_runs import train_seeds
    from stsbench.training.runs.subset_runs import train_subsets

    caller = sys._getframe(1)

    def log(line: str) -> None:
        if line.startswith("warning: "):  # at once: a training may take hours
            message = line.removeprefix("warning: ")
            warnings.warn_explicit(message, StsbenchWarning, caller.f_code.co_filename, caller.f_lineno)

    known = [each.name for each in fields(TrainOptions)]
    for name in options:
        if name not in known:
            also = "a recipe's settings go into settings={...}, by dotted key (\"training.max_steps\")"
            raise StsbenchError(f"train has no option '{name}'{did_you_mean(name, known)}; {also}")
    if backbone is not None:
        settings = {**(settings or {}), "backbone.model": str(backbone)}
    bar = TrainingBar() if in_notebook() else None
    on_sample = options.get("sample") and not (options.get("start_from") or of_the_users_own(recipe, settings or {}))
    if not isinstance(recipe, Recipe):
        load = partial(load_recipe, method, None if recipe is None else str(recipe), [])
        wanted = dict(settings or {})
        if on_sample:
            wanted |= sample_settings(load(wanted), wanted, log)
        recipe = load_for_device(load, wanted, options.get("device"), log)
        if is_of_sample(recipe):
            log(WARNING)
    chosen = TrainOptions(recipe=recipe, output=Path(output), **options)
    try:
        if subsets:
            return train_subsets(chosen, subsets, seeds or 1, log, bar)
        return train_seeds(chosen, seeds, log, bar) if seeds else run(chosen, log, bar)
    finally:
        if bar is not None:
            bar.close()
