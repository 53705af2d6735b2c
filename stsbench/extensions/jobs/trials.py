"""`stsbench.sweep`: search a method's settings by development score; the result with its trials and their plot."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike, fspath
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, get_args

import numpy as np
from pydantic import BaseModel, Field, model_validator

from stsbench.config import parse_yaml, shorten, validate
from stsbench.data.own.source import in_users_words
from stsbench.data.text.cache import built_folder
from stsbench.display.style import COLOURS, COLUMN, GREY, PAGE, new_figure
from stsbench.display.table import Document, Table
from stsbench.display.tabular import RowsInFolder
from stsbench.errors import StsbenchError, UsageError, warning_log
from stsbench.extensions.jobs.expand import command_words
from stsbench.extensions.jobs.plan import make_pool, refuse_missing, working_line
from stsbench.extensions.jobs.plan_file import Defaults, TrainGroup
from stsbench.extensions.jobs.space import LARGEST, Sampler, Space, read_space, space_of_grid
from stsbench.extensions.jobs.sweep import BEST, TRIALS, Sweep, TrialResult
from stsbench.extensions.jobs.sweep import sweep as sweeping
from stsbench.files import training_cache
from stsbench.options import SetOptions
from stsbench.parsing import read_json_object
from stsbench.training.api.options import Options
from stsbench.training.recipes.recipe import Recipe, resolved_yaml
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.runs.options import KEYS
from stsbench.training.runs.report import shown_sd, spread
from stsbench.training.runs.trained import FilePath, Rows, as_tuple, check_counts, check_request
from stsbench.wording import counted

_NAMED = {name: key for name, key in KEYS.items() if name != "seed"}
Grid = Sequence[str] | Mapping[str, Sequence[Any]]
_Number = Annotated[int, Field(ge=-LARGEST, le=LARGEST)] | float
_MOST = 12  # values per key up to which a grid is drawn as a heat map
_DECADES = 30  # largest over least value from which an axis is logarithmic


def plan_search(
    method: str, space: str | Mapping[str, Any] | None, grid: Grid, sampler: str | None, trials: int | None, seeds: int,
    seed: int, prune: bool, options: Mapping[str, Any],
) -> Sweep:
    """Return the search that the options describe; its output folder is still to be set.

    space: a file, a name, or key -> values or a range; grid: KEY=VALUE,VALUE words, or key -> values; options: those of the
    trainings. Raises UsageError for options that exclude each other, StsbenchError for an invalid value.
    """
    if bool(space) == bool(grid):
        raise UsageError("say what is searched: either --space FILE, or --grid KEY=VALUE,VALUE")
    SetOptions(data_dir=options["data_dir"], sample=options["sample"])
    searched = _space(method, space, grid)
    kind: Any = sampler or ("grid" if searched.finite else "tpe")
    if kind not in get_args(Sampler):
        raise UsageError(f"--sampler {shorten(kind)}: it is one of {', '.join(get_args(Sampler))}")
    if kind == "grid" and not searched.finite:
        raise UsageError("--sampler grid needs lists of values: the space has ranges")
    if (kind == "grid") == (trials is not None):
        raise UsageError("--trials goes with --sampler random or tpe, which need it; a grid is tried as a whole")
    if twice := [option for option, key in _NAMED.items() if key in searched.space and options[option] is not None]:
        raise UsageError(f"--{twice[0].replace('_', '-')}: {_NAMED[twice[0]]} is searched")
    group = {
        **{key: options[key] for key in (*_NAMED, "recipe", "device") if options[key] not in (None, "")}, "method": method,
        "set": _sets(options["sets"], searched), "seeds": list(range(seed, seed + seeds)),
    }
    defaults = {key: options[key] for key in ("data_dir", "sample", "offline")}
    return Sweep(validate(TrainGroup, group, "sweep"), validate(Defaults, defaults, "sweep"), searched, kind, trials, prune,
                 Path())


def _space(method: str, space: str | Mapping[str, Any] | None, grid: Grid) -> Space:
    if isinstance(space, Mapping):
        return validate(Space, {"space": space}, "space")
    if space:
        return read_space(method, space)
    if isinstance(grid, Mapping):
        if unordered := [key for key, values in grid.items() if isinstance(values, Set)]:
            raise UsageError(f"grid: {unordered[0]} has a set, whose order changes with each process: give a list")
        listed = {key: list(values) if isinstance(values, Iterable) and not isinstance(values, str) else values
                  for key, values in grid.items()}
        return validate(Space, {"space": listed}, "grid")
    return space_of_grid(grid)


def _sets(words: Sequence[str], searched: Space) -> dict[str, Any]:
    sets: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"--set {word}: write it as key.sub=value")
        if key in searched.space:
            raise UsageError(f"--set {word}: {key} is searched")
        sets[key] = parse_yaml(value, f"--set {word}")
    return sets


@dataclass(repr=False)
class Trials(RowsInFolder):
    """The result of a sweep. folder: its output, in which the same sweep goes on; results: every trial, the best first."""

    folder: Path
    method: str
    results: list[TrialResult]

    @cached_property
    def best(self) -> Recipe:
        """Return the recipe of the best trial, best.yaml in the folder, which states the search that chose it."""
        return load_recipe(self.method, str(self.folder / BEST))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Return one row per trial, the best first: trial, its values, the development score (mean over seeds), sd, seeds,
        state."""
        rows = []
        for result in self.results:
            over = spread(result.scores) if result.scores else {"mean": None, "sd": None, "n": 0}
            rows.append({"trial": result.trial.number, **result.trial.values, "score": over["mean"], "sd": over["sd"],
                         "seeds": over["n"], "state": result.trial.state})
        return rows

    def plot(self) -> Sequence[Any]:
        """Return the development scores over the values, as `stsbench plot sweep` draws them: matplotlib's axes."""
        from stsbench.display.style import shown_in_notebook, style

        with style():
            drawing = figure([self.folder])
        return list(shown_in_notebook(drawing).axes)

    def __repr__(self) -> str:
        best = self.results[0].trial if self.results else None
        values = ", ".join(f"{key} {value}" for key, value in best.values.items()) if best else ""
        score = f", the best {best.score:.2f} ({values})" if best is not None and best.score is not None else ""
        return f"<Trials of {self.method}: {len(self.results)}{score} in {self.folder}>"

    def document(self) -> Document:
        """Return a table with one row per trial, the best first."""
        by = next((result.by for result in self.results if result.by), "score")
        keys = list(dict.fromkeys(key for result in self.results for key in result.trial.values))
        lines = []
        for row, result in zip(self.rows, self.results, strict=True):
            values = [str(row.get(key, "")) for key in keys]
            score, sd = ("-", "-") if row["score"] is None else (f"{row['score']:.2f}", shown_sd(row, 2))
            state = ": ".join(filter(None, (row["state"], result.reason)))
            lines.append([row["trial"], *values, score, sd, row["seeds"], state])
        title = f"{self.method}: {counted(len(self.results), 'trial')}; the best as a recipe: {self.folder / BEST}"
        return Document([Table.from_rows(title, ["trial", *keys, by, "sd", "seeds", "state"], lines)])


def sweep(
    method: str | Options | Recipe, *, space: FilePath | Mapping[str, Any] | None = None,
    grid: str | Sequence[str] | Mapping[str, Sequence[Any]] = (), sampler: str | None = None, trials: int | None = None,
    seeds: int = 1, seed: int = 42, prune: bool = False, storage: str | None = None, workers: int | None = None,
    ray: str | None = None, gpus: float | None = None, output: str | Path | None = None,
    recipe: FilePath | Recipe | None = None, backbone: FilePath | None = None, data: Rows | None = None,
    labelled: Rows | None = None, dev: Rows | None = None,
    max_steps: int | None = None, settings: Mapping[str, Any] | None = None, device: str | None = None,
    dtype: str | None = None, data_dir: str | Path | None = None, sample: bool = False, offline: bool = False,
) -> Trials:
    """Train a method with many settings, as `stsbench sweep` does; the best by development score becomes a recipe.

    grid: the values to try: dotted key -> values, {"training.learning_rate": [1e-5, 3e-5]}, or KEY=VALUE,VALUE; space:
        instead of `grid` a YAML file, the name of a space of the method, or key -> values or {"low", "high", "log"}.
    sampler: grid, random or tpe (default: grid, or tpe where the space has ranges); trials: how many, for random and tpe.
    seeds: trainings per trial, with seeds counted up from `seed`; prune: give up trials that fall behind; storage: URL of
        optuna's storage. workers: trainings at once, each in a process; ray: address of a Ray cluster to train on, or
        "local"; gpus: GPUs per training on Ray, such as .25.
    output: the folder, in which the same sweep goes on. None: runs/sweep-METHOD-DIGEST, the same for the same search.
    method and all other arguments: as in `train`, for every trial. Test data are not read.

    Nothing is printed; a trial that failed is a StsbenchWarning. Needs optuna (pip install stsbench[jobs]). Raises
    StsbenchError, one line, for wrong arguments or inputs, and where no trial is complete.

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
    words = check_request(method, recipe, settings, backbone=backbone, data=data, labelled=labelled, dev=dev)
    options = {
        "recipe": _recipe_file(words.recipe) if isinstance(words.recipe, Recipe) else words.recipe,
        "backbone": words.backbone, "data": words.data, "labelled": words.labelled, "max_steps": max_steps,
        "sets": command_words({"set": {**words.values, **({"selection.by": words.dev} if words.dev else {})}})[1::2],
        "device": device, "dtype": dtype, "data_dir": None if data_dir is None else str(data_dir), "sample": sample,
        "offline": offline,
    }
    search = plan_search(
        words.method, fspath(space) if isinstance(space, PathLike) else space,
        grid if isinstance(grid, Mapping) else as_tuple(grid, "grid"), sampler, trials, seeds, seed, prune, options,
    )
    folder = (Path("runs") / f"sweep-{search.name}").absolute() if output is None else Path(output)
    search = replace(search, output=folder)
    with in_users_words(words.files), working_line("sweep") as working:
        refuse_missing(search.samples(), "sweep", {}, search.defaults)
        pool = make_pool(folder, workers, ray, gpus, [device], log)
        results = sweeping(search, pool, storage, ["stsbench.sweep", words.method], log, working)
    for result in results:
        if result.trial.state == "fail":
            why = f": {result.reason}" if result.reason else ""
            log(f"warning: failed: trial {result.trial.number}{why}; see the logs in {folder}")
    return Trials(folder, words.method, results)


def _recipe_file(recipe: Recipe) -> str:
    """Write this recipe to a file in the cache, and return its path, for processes that take a path."""
    text = resolved_yaml(recipe)
    key = hashlib.sha256(text.encode()).hexdigest()[:16]
    name = f"{recipe.name.replace('/', '-')}.yaml"

    def build(folder: Path) -> None:
        (folder / name).write_text(text, "utf-8")

    return str(built_folder(training_cache() / "recipes", key, build) / name)


class _Trial(BaseModel):
    """The part of a trial that is drawn."""

    values: dict[str, bool | _Number | str | None] = Field(min_length=1)
    score: float | None
    seeds: dict[str, float]


class _Trials(BaseModel):
    """The part of trials.json that is drawn."""

    by: str
    trials: list[_Trial]

    @model_validator(mode="after")
    def _have_the_same_keys(self) -> _Trials:
        if len({tuple(sorted(trial.values)) for trial in self.trials if trial.score is not None}) > 1:
            raise ValueError("trials have values of different keys")
        return self


def figure(folders: Sequence[Path]) -> Any:
    """Return a matplotlib figure of one sweep's folder: for a grid of two keys a heat map with the best cell framed, else
    a scatter plot of scores for each key. The map averages trials with equal values.

    Raises StsbenchError where the folder holds no sweep, or none of its trials has a score.
    """
    if len(folders) > 1:
        raise StsbenchError(f"sweep draws one sweep, not {len(folders)}")
    stored = _stored(folders[0])
    scored = [trial for trial in stored["trials"] if trial["score"] is not None]
    if not scored:
        raise StsbenchError(f"{folders[0] / TRIALS}: no trial has a score yet")
    keys = list(scored[0]["values"])
    among = {key: _ordered({trial["values"][key] for trial in scored}) for key in keys}
    seeds = max(len(trial["seeds"]) for trial in scored)
    note = f"{len(scored)} of {len(stored['trials'])} trials with a score, {seeds} seed{'s' * (seeds > 1)} each"
    grid = len(keys) == 2 and all(1 < len(values) <= _MOST for values in among.values())
    drawing = _map(scored, among, stored["by"]) if grid else _points(scored, among, stored["by"])
    drawing.supxlabel(note, fontsize=6, color=GREY, x=0.99, ha="right")
    return drawing


def _stored(folder: Path) -> dict[str, Any]:
    path = folder / TRIALS
    if not path.is_file():
        raise StsbenchError(f"{folder} holds no finished sweep: there is no {TRIALS}")
    try:
        return validate(_Trials, read_json_object(path), str(path)).model_dump()
    except StsbenchError as error:
        raise StsbenchError(f"{path} is damaged: call the sweep's command again, it is written anew") from error


def _ordered(values: set[Any]) -> list[Any]:
    """Return the values sorted: numbers by size, then all others as text."""
    numbers = [value for value in values if not isinstance(value, str | None)]
    return sorted(numbers) + sorted(values - set(numbers), key=str)


def _map(scored: Sequence[Mapping[str, Any]], among: Mapping[str, list[Any]], by: str) -> Any:
    from matplotlib.patches import Rectangle

    (down, rows), (across, columns) = among.items()
    cells = defaultdict(list)
    for trial in scored:
        cells[rows.index(trial["values"][down]), columns.index(trial["values"][across])].append(trial["score"])
    scores = np.full((len(rows), len(columns)), np.nan)
    for cell, cell_scores in cells.items():
        scores[cell] = fmean(cell_scores)
    drawing = new_figure(COLUMN, max(1.8, 0.9 + 0.3 * len(rows)))
    panel = drawing.subplots()
    image = panel.imshow(scores, cmap="cividis", aspect="auto")
    least, most = np.nanmin(scores), np.nanmax(scores)
    for (row, column), score in np.ndenumerate(scores):
        bright = not np.isnan(score) and score > (least + most) / 2
        panel.text(column, row, "–" if np.isnan(score) else f"{score:.2f}", ha="center", va="center", fontsize=7,
                   color="black" if bright or np.isnan(score) else "white")
    row, column = np.unravel_index(np.nanargmax(scores), scores.shape)
    panel.add_patch(Rectangle((column - 0.48, row - 0.48), 0.96, 0.96, fill=False, edgecolor=COLOURS[1], linewidth=1.5))
    panel.set_xticks(range(len(columns)), [_text(value) for value in columns])
    panel.set_yticks(range(len(rows)), [_text(value) for value in rows])
    panel.set_xlabel(across)
    panel.set_ylabel(down)
    panel.tick_params(length=0)
    panel.spines[:].set_visible(False)
    drawing.colorbar(image, label=by)
    return drawing


def _points(scored: Sequence[Mapping[str, Any]], among: Mapping[str, list[Any]], by: str) -> Any:
    across = min(3, len(among))
    lines = -(-len(among) // across)
    drawing = new_figure(COLUMN if len(among) == 1 else PAGE, 0.3 + 1.9 * lines)
    panels = drawing.subplots(lines, across, squeeze=False, sharey=True).ravel()
    for panel, (key, values) in zip(panels, among.items(), strict=False):
        numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        positions = [trial["values"][key] if numbers else values.index(trial["values"][key]) for trial in scored]
        panel.plot(positions, [trial["score"] for trial in scored], "o", markersize=3, color=COLOURS[0])
        if not numbers:
            panel.set_xticks(range(len(values)), [_text(value) for value in values])
        elif values[0] > 0 and values[-1] / values[0] >= _DECADES:
            panel.set_xscale("log")
        panel.set_xlabel(key)
    for panel in panels[::across]:
        panel.set_ylabel(by)
    for panel in panels[len(among) :]:
        panel.remove()
    return drawing


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else "null" if value is None else str(value)
