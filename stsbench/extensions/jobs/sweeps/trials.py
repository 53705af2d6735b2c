"""`stsbench.sweep`: a method's settings, searched by development score, as a function that gives the trials."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from stsbench.data.text.cache import built_folder
from stsbench.display.table import Document, Table
from stsbench.display.tabular import RowsInFolder
from stsbench.errors import warning_log
from stsbench.experiments.train import FilePath, Rows, asked, check_counts, listed
from stsbench.extensions.jobs.expand import words_of
from stsbench.extensions.jobs.plan_run import make_pool, refuse_missing
from stsbench.extensions.jobs.sweeps.search import search_of
from stsbench.extensions.jobs.sweeps.sweep import BEST, TrialResult
from stsbench.extensions.jobs.sweeps.sweep import sweep as sweeping
from stsbench.files import training_cache
from stsbench.notebook import working_line
from stsbench.training.api.options import Options
from stsbench.training.recipes.recipe import Recipe, resolved_yaml
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.runs.report import shown_sd, spread
from stsbench.wording import counted


@dataclass(repr=False)
class Trials(RowsInFolder):
    """What a sweep found. folder: of its output, which the same sweep goes on in; results: every trial, the best first."""

    folder: Path
    method: str
    results: list[TrialResult]

    @cached_property
    def best(self) -> Recipe:
        """The recipe of the best trial, which says what it was chosen among. (In the folder as best.yaml.)"""
        return load_recipe(self.method, str(self.folder / BEST))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row a trial, the best first: trial, its values, the development score (mean over seeds), sd, seeds, state."""
        rows = []
        for result in self.results:
            over = spread(result.scores) if result.scores else {"mean": None, "sd": None, "n": 0}
            rows.append({"trial": result.trial.number, **result.trial.values, "score": over["mean"], "sd": over["sd"],
                         "seeds": over["n"], "state": result.trial.state})
        return rows

    def plot(self) -> Sequence[Any]:
        """The development scores over the values, as `stsbench plot sweep` draws them: matplotlib's axes."""
        from stsbench.display.style import shown_in_notebook, style
        from stsbench.extensions.jobs.sweeps.picture import figure

        with style():
            drawing = figure([self.folder])
        return list(shown_in_notebook(drawing).axes)

    def __repr__(self) -> str:
        best = self.results[0].trial if self.results else None
        values = ", ".join(f"{key} {value}" for key, value in best.values.items()) if best else ""
        score = f", the best {best.score:.2f} ({values})" if best is not None and best.score is not None else ""
        return f"<Trials of {self.method}: {len(self.results)}{score} in {self.folder}>"

    def document(self) -> Document:
        """Return a row a trial, the best first."""
        by = next((result.by for result in self.results if result.by), "score")
        keys = list(dict.fromkeys(key for result in self.results for key in result.trial.values))
        lines = []
        for row, result in zip(self.rows, self.results, strict=True):
            values = [str(row.get(key, "")) for key in keys]
            score, sd = ("-", "-") if row["score"] is None else (f"{row['score']:.2f}", shown_sd(row, 2))
            state = ": ".join(filter(None, (row["state"], result.reason)))
            lines.append([row["trial"], *values, score, sd, row["seeds"], state])
        title = f"{self.method}: {counted(len(self.results), 'trial')}; the best as a recipe: {self.folder / BEST}"
        return Document([Table.of(title, ["trial", *keys, by, "sd", "seeds", "state"], lines)])


def sweep(
    method: str | Options | Recipe, *, space: FilePath | Mapping[str, Any] | None = None,
    grid: str | Sequence[str] | Mapping[str, Sequence[Any]] = (), sampler: str | None = None, trials: int | None = None,
    seeds: int = 1, seed: int = 42, prune: bool = False, storage: str | None = None, workers: int | None = None,
    ray: str | None = None, output: str | Path | None = None, recipe: FilePath | Recipe | None = None,
    backbone: FilePath | None = None, data: Rows | None = None, labelled: Rows | None = None, dev: Rows | None = None,
    max_steps: int | None = None, settings: Mapping[str, Any] | None = None, device: str | None = None,
    dtype: str | None = None, data_dir: str | Path | None = None, sample: bool = False, offline: bool = False,
) -> Trials:
    """Train a method with many settings, as `stsbench sweep` does; the best by development score becomes a recipe.

    grid: what is searched: dotted key -> values, {"training.learning_rate": [1e-5, 3e-5]}, or KEY=VALUE,VALUE; space:
        instead of it a YAML file, a space that the method brings by name, or key -> values or {"low", "high", "log"}.
    sampler: grid, random or tpe (default: grid, or tpe where the space has ranges); trials: how many, for random and tpe.
    seeds: trainings of a trial, counted up from seed; prune: give up trials that fall behind; storage: where optuna keeps
        the trials, a URL. workers: trainings at once, each a process; ray: on a Ray cluster, by its address, or "local".
    output: the folder, in which the same sweep goes on. None: runs/sweep-METHOD-DIGEST, the same for the same search.
    method and all others: as in `train`, of every trial. Test data are not read.

    Nothing is printed; a trial that failed is a StsbenchWarning. Needs optuna (pip install stsbench[jobs]). Raises
    StsbenchError, one line, and where no trial is complete.

    >>> import stsbench
    >>> grid = {"training.learning_rate": [1e-5, 1e-4]}
    >>> try:
    ...     stsbench.sweep("simcse", grid=grid, space="lr.yaml", sample=True)
    ... except stsbench.errors.StsbenchError as error:
    ...     print(error)
    say what is searched: either --space FILE, or --grid KEY=VALUE,VALUE
    """
    log = warning_log()
    check_counts(seeds=seeds, trials=trials, workers=workers, max_steps=max_steps)
    words = asked(method, recipe, settings, backbone=backbone, data=data, labelled=labelled, dev=dev)
    options = {
        "recipe": _recipe_file(words.recipe) if isinstance(words.recipe, Recipe) else words.recipe,
        "backbone": words.backbone, "data": words.data, "labelled": words.labelled, "max_steps": max_steps,
        "sets": words_of({"set": {**words.values, **({"selection.by": words.dev} if words.dev else {})}})[1::2],
        "device": device, "dtype": dtype, "data_dir": None if data_dir is None else str(data_dir), "sample": sample,
        "offline": offline,
    }
    search = search_of(
        words.method, fspath(space) if isinstance(space, PathLike) else space,
        grid if isinstance(grid, Mapping) else listed(grid, "grid"), sampler, trials, seeds, seed, prune, options,
    )
    folder = (Path("runs") / f"sweep-{search.name}").absolute() if output is None else Path(output)
    search = replace(search, output=folder)
    with words.in_users_words(), working_line("sweep") as working:
        refuse_missing(search.samples(), "sweep", {}, search.defaults)
        pool = make_pool(folder, workers, ray, [device], log)
        results = sweeping(search, pool, storage, ["stsbench.sweep", words.method], log, working)
    for result in results:
        if result.trial.state == "fail":
            why = f": {result.reason}" if result.reason else ""
            log(f"warning: failed: trial {result.trial.number}{why}; see the logs in {folder}")
    return Trials(folder, words.method, results)

def _recipe_file(recipe: Recipe) -> str:
    """A file with this recipe, in the cache, for processes that are told a path."""
    text = resolved_yaml(recipe)
    key = hashlib.sha256(text.encode()).hexdigest()[:16]
    name = f"{recipe.name.replace('/', '-')}.yaml"

    def build(folder: Path) -> None:
        (folder / name).write_text(text, "utf-8")

    return str(built_folder(training_cache() / "recipes", key, build) / name)
