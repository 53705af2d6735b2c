"""What was measured here of a published row: means over seeds, beside the figures that were printed, never among them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev

from stsbench.encoders.options import CHANGING, spelled
from stsbench.evaluation.protocol import load_protocol
from stsbench.leaderboard.publications.model import PublishedRow

from .runs import DEV, Key, Run
from .ways import Way

AVERAGE = "Avg"
_SWITCHES = {"--full-stop", "--no-full-stop", "--normalize", "--no-normalize"}
# Options of `stsbench eval` that make another encoder; one that only the command has, or only the way, is a difference.
_ENCODER = {"--model", "--post", "--fit-on", *map(spelled, CHANGING)} - {*_SWITCHES, "--trust-remote-code"}


@dataclass(frozen=True)
class Mean:
    """A score over seeds: mean, standard deviation (n - 1; None for one) and number."""

    mean: float
    sd: float | None
    n: int


@dataclass(frozen=True)
class Reproduction:
    """One training, or one measurement, of a row. name: where it lies; figures: column ("Avg" for the average) -> mean."""

    name: str
    figures: dict[str, Mean]


def reproductions(row: PublishedRow, way: Way, runs: Sequence[Run]) -> list[Reproduction]:
    """Those of `runs` that are by the row's very recipe or command, and under its table's protocol and metric.

    Each model counts once, however often it was tested.
    """
    by_group: dict[str, dict[str, dict[object, float]]] = {}
    for column in columns_of(row):
        for run in _runs_of(way, column, runs):
            if (score := _score(row, column, run)) is not None:
                model = run.weights if way.recipe is not None and way.eval is not None else id(run)
                by_group.setdefault(run.group, {}).setdefault(column, {}).setdefault(model, score)
    return [Reproduction(name, {column: _mean(list(scores.values())) for column, scores in figures.items()})
            for name, figures in by_group.items()]


def changed(way: Way, runs: Sequence[Run]) -> list[str]:
    """"runs/x: simcse/unsup-bert-base with other training.batch_size": runs that are no reproductions, and why."""
    by_recipe = [run for run in runs if run.recipe is not None and run.recipe in way.recipes]
    lines = [f"{run.group}: {run.recipe}, {', '.join(run.changed)}" for run in by_recipe if run.changed]
    if way.eval is not None:
        done = {run.weights for run in _tests_of(way.eval, runs)}
        lines += [f"{run.group}: {run.recipe}, not tested with {way.eval}" for run in by_recipe
                  if not run.changed and run.weights not in done]
    return list(dict.fromkeys(lines))


def columns_of(row: PublishedRow) -> tuple[str, ...]:
    """The table's columns, and its average where it prints one or is one of the seven tasks of STS."""
    return (*row.heading.columns, *([AVERAGE] if row.heading.average or row.recomputed is not None else []))


def printed(row: PublishedRow, column: str) -> float | None:
    """The figure of a column as printed."""
    return row.average if column not in row.heading.columns else row.scores[row.heading.columns.index(column)]


def _runs_of(way: Way, column: str, runs: Sequence[Run]) -> Iterator[Run]:
    recipe = way.recipe_of(column)
    trained = [run for run in runs if run.recipe == recipe is not None and not run.changed]
    if way.eval is None:
        yield from trained
    elif recipe is None:
        yield from _tests_of(way.eval, runs)
    else:
        groups = {run.weights: run.group for run in trained if run.weights is not None}
        yield from (replace(run, group=groups[run.weights]) for run in _tests_of(way.eval, runs) if run.weights in groups)
    if way.checkpoint is not None:
        yield from _tests_of(way.checkpoint, runs)


def _tests_of(command: str, runs: Sequence[Run]) -> list[Run]:
    """Runs of `stsbench eval` by the options of `command`: of the model that it names, whatever the command calls it, and of
    any model where a recipe trains it."""
    wanted = _options(shlex.split(command))
    named = wanted.pop("--model", None)
    tests = []
    for run in runs:
        options = _options(run.command)
        model = options.pop("--model", None)
        if run.recipe is None and options == wanted:
            tests.append((model, run))
    if named is None:
        return [run for _, run in tests]
    known = {run.weights for run in runs if _options(run.command).get("--model") == named} - {None}
    return [run for model, run in tests if model == named or run.weights in known]


def _options(command: Sequence[str]) -> dict[str, str]:
    """The options of a command that name its encoder. A file counts by its name, wherever it lies."""
    options = {word: "" for word in command if word in _SWITCHES}
    for word, value in zip(command, [*command, ""][1:], strict=True):
        name, equals, inner = word.partition("=")
        if name in _ENCODER:
            setting = inner if equals else value
            options[name] = Path(setting).name if name == "--fit-on" else setting
    return options


def _score(row: PublishedRow, column: str, run: Run) -> float | None:
    heading = row.heading
    if heading.protocol == "dev":
        if heading.task != "transfer":
            return run.scores.get((DEV, None, "spearman", "STS-B"))
        scores = [run.scores.get(("transfer", None, "dev accuracy", task)) for task in load_protocol("transfer").averaged]
        known = [score for score in scores if score is not None]
        return fmean(known) if len(known) == len(scores) else None
    return run.scores.get(_key(row, column))


def _key(row: PublishedRow, column: str) -> Key:
    heading = row.heading
    if heading.protocol == "retrieval":
        return "retrieval", None, column, heading.task or column
    if heading.protocol == "few-labels" or (heading.protocol == "sts" and heading.task):
        return "sts", heading.aggregation, heading.metric, AVERAGE
    aggregation = "all" if heading.protocol == "sts" and heading.aggregation is None else heading.aggregation
    return heading.protocol, aggregation, heading.metric, column


def _mean(scores: Sequence[float]) -> Mean:
    return Mean(fmean(scores), stdev(scores) if len(scores) > 1 else None, len(scores))
