"""Runs measured here (training runs, runs of `stsbench eval`, entries of a board), and which of them reproduce a row.

Measured means over seeds and printed figures are never mixed.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from stsbench.config import flatten
from stsbench.data.sets.catalog import entry
from stsbench.encoders.forward.identity import folder_digest
from stsbench.encoders.options import CHANGING, spelled
from stsbench.errors import StsbenchError
from stsbench.evaluation.protocol import Protocol, load_protocol
from stsbench.evaluation.records import Record
from stsbench.evaluation.rescore import rescored, several_encoders
from stsbench.evaluation.run_file import load_records, runs_below
from stsbench.leaderboard.records.admission import proven
from stsbench.leaderboard.records.entries import DESCRIPTION, Prompts, read_entry
from stsbench.leaderboard.records.publications import PublishedRow
from stsbench.training.recipes.methods import short_name
from stsbench.training.recipes.recipe import FREE, Recipe, changes
from stsbench.training.recipes.recipes import shipped_recipe, stored_recipe
from stsbench.training.runs.report import read_summary

from .commands import known_data
from .ways import Way

Key = tuple[str, str | None, str, str]  # protocol, aggregation, metric, task
DEV = "sts-b dev"
_SAID = {"name", "description", "source", "published", *FREE}  # fields of a recipe that do not change the training
AVERAGE = "Avg"
_SWITCHES = {"--full-stop", "--no-full-stop", "--normalize", "--no-normalize"}
# Options of `stsbench eval` that change the encoder: a run counts for a row only if all of them agree.
_ENCODER = {"--model", "--post", "--fit-on", *map(spelled, CHANGING)} - {*_SWITCHES, "--trust-remote-code"}


@dataclass(frozen=True)
class Run:
    """A measured encoder, or the model of a training that was not tested.

    group: the name shown, which the seeds of one training share; recipe: the METHOD/NAME that trained it, None for none;
    changed: differences from that recipe, () for none; command: the command that measured it; scores: recomputed from the
    observations, at a protocol's defaults on the catalog's data, {} for a changed recipe, which never counts; tested: the
    digests of model and tokenizer in its records, None without records; exported: the folder of a training's model.
    """

    group: str
    recipe: str | None = None
    changed: tuple[str, ...] = ()
    seed: int | None = None
    command: tuple[str, ...] = ()
    scores: Mapping[Key, float] = field(default_factory=dict)
    tested: tuple[str, str] | None = None
    exported: Path | None = None

    @cached_property
    def weights(self) -> tuple[str, str] | None:
        """Return the digests of model and tokenizer, which identify a model whatever its name; None for no model."""
        if self.tested is None and self.exported is not None and self.exported.is_dir():
            return folder_digest(self.exported), ""
        return self.tested


def local_runs(folder: Path, protocols: Collection[str]) -> list[Run]:
    """Return every finished training run and every run of `stsbench eval` below `folder`; [] where it does not exist.

    protocols: the names of the protocols whose scores are read.

    Raises StsbenchError, naming the file, for edited records of runs whose scores count.
    """
    if not folder.is_dir():
        return []
    runs: list[Run] = []
    trained = [path.parent for path in sorted(folder.rglob("train.json")) if (path.parent / "recipe.yaml").is_file()]
    for run in trained:
        runs += _trained(folder, run, protocols)
    tests = {run / "eval" for run in trained}
    for run in runs_below(folder, "**"):
        if run not in tests:
            records, scores = _scored(run, protocols)
            runs.append(Run(str(run), command=_command(records), scores=scores, tested=_tested(records)))
    return runs


def board_runs(
    folder: Path, resolved: Collection[Way], protocols: Collection[str], local: Collection[Run] = ()
) -> list[Run]:
    """Return the runs of a board's entries that may reproduce a row: those trained by a recipe of `resolved` or a change of
    it, those of a model that `resolved` names, and those with the weights of either. Runs of entries of prompts are left
    out. folder: the board's measured/; local: runs whose weights count, too. Raises as `local_runs`."""
    recipes, models = {name for way in resolved for name in way.recipes}, {way.model for way in resolved if way.model}
    tested = {name for way in resolved if way.eval is not None for name in way.recipes}
    of_prompts = {path.parent for path in folder.glob(f"*/{DESCRIPTION}") if isinstance(read_entry(path), Prompts)}
    first = {run: load_records(run)[0][1] for run in runs_below(folder, "*/*") if run.parent not in of_prompts}
    wanted = {run for run, record in first.items()
              if _base(record) in recipes or models.intersection(record.provenance.get("command") or ())}
    known: set[tuple[str, str] | None] = {
        _weights(first[run]) for run in wanted
        if not _changed_on_board(first[run]) or models.intersection(first[run].provenance.get("command") or ())
    }
    known |= {run.weights for run in local if run.recipe in tested or models.intersection(run.command)}
    runs = []
    for run, record in first.items():
        if run not in wanted and _weights(record) not in known:
            continue
        changed = _changed_on_board(record)
        records, scores = _scored(run, protocols if not changed else ())
        group, seed = f"{run.parent.name} on the board", record.provenance.get("seed")
        runs.append(Run(group, _base(record), changed, seed, _command(records), scores, _tested(records)))
    return runs


def _base(record: Record) -> str | None:
    """Return the recipe that trained a record's model, without the mark of a changed one; None for none."""
    recipe = record.provenance.get("recipe")
    return recipe.removesuffix("-changed") if isinstance(recipe, str) else None


def _weights(record: Record) -> tuple[str, str]:
    spec = record.encoder.spec
    return str(spec.get("weights")), str(spec.get("tokenizer") or "")


def _tested(records: list[Record]) -> tuple[str, str] | None:
    """Return the digests of the model and the tokenizer of a run's records; None without records."""
    return _weights(records[0]) if records else None


def _trained(root: Path, run: Path, protocols: Collection[str]) -> Iterator[Run]:
    """Yield the training run, with the scores of its test if any; nothing if its method or recipe does not exist here."""
    try:
        recipe = stored_recipe(run)
        base, keys = changes(recipe) or (recipe.name, [])
        name = f"{recipe.method}/{base}"
        keys = keys or _differing(recipe, shipped_recipe(name))
    except StsbenchError:
        return
    summary = read_summary(run) or {}
    if summary.get("stage"):
        keys = [*keys, "a stage alone"]
    counted = protocols if not keys else ()
    records, scores = _scored(run / "eval", counted) if (run / "eval").is_dir() else ([], {})
    if any(record.provenance.get("recipe") != f"{short_name(recipe.method)}/{recipe.name}" for record in records):
        keys = [*keys, "eval/ is not the test of this training"]
    if (dev := _dev(summary)) is not None:
        scores = {**scores, (DEV, None, "spearman", "STS-B"): dev}
    group = run
    while group.parent != root and (group.name.startswith(("seed-", "subset-"))):
        group = group.parent
    yield Run(str(group), name, tuple(keys), recipe.seed, _command(records), scores, _tested(records), run / "best")


def _differing(recipe: Recipe, shipped: Recipe) -> list[str]:
    """Return the keys in which two recipes differ, apart from seeds, the folders of files and descriptive fields."""
    trained, as_shipped = (flatten(settings.model_dump(mode="json", exclude=_SAID)) for settings in (recipe, shipped))

    def value(values: Mapping[str, Any], key: str) -> Any:
        setting = values.get(key)
        return Path(setting).name if key.endswith(".file") and setting and not known_data(setting) else setting

    return sorted(key for key in {**trained, **as_shipped}
                  if value(trained, key) != value(as_shipped, key) and not key.endswith(".sample_seed"))


def _changed_on_board(record: Record) -> tuple[str, ...]:
    """Return how a record's training differs from its recipe as it is now; () for no difference, or no recipe."""
    name, about = _base(record), record.provenance
    if name is None:
        return ()
    if about["recipe"] != name or about.get("stage"):
        return ("changed",)
    try:
        recipe = shipped_recipe(name)
    except StsbenchError:
        return ("the recipe is not there",)
    from stsbench.training.runs.finish import trained_as

    return () if about.get("settings") == trained_as(recipe)["settings"] else ("other settings than the recipe has now",)


def _dev(summary: Mapping[str, Any]) -> float | None:
    """Return the STS-B dev score of the weights that a training kept; None if it has none on the catalog's data."""
    known = entry("stsb/dev").digest
    if summary.get("selected_by") != DEV or summary.get("dev_data", {}).get("stsb/dev") != known:
        return None
    best = summary.get("best")
    score = best["score"] if best else summary.get("after")
    return None if score is None else float(score)


def _scored(folder: Path, protocols: Collection[str]) -> tuple[list[Record], dict[Key, float]]:
    """Return the records of a run, and the scores, with averages, of those under `protocols` with the default settings on
    the catalog's data.

    Scores are recomputed from the observations. Raises StsbenchError for edited records, or records of several encoders.
    """
    records = load_records(folder)
    if several_encoders([record for _, record in records]):
        raise StsbenchError(f"{folder} holds records of several encoders: a run is of one")
    groups: dict[str, tuple[Protocol, list[Record]]] = {}
    for path, record in records:
        if record.protocol.name in protocols and _plain(record):
            protocol, record.scores = rescored(path, record, intervals=False)
            groups.setdefault(record.protocol.model_dump_json(), (protocol, []))[1].append(record)
    scores = {}
    for protocol, of_protocol in groups.values():
        for row in [*(row for record in of_protocol for row in record.scores), *protocol.summarise(of_protocol)]:
            if row.subset is None:
                scores[protocol.name, row.aggregation, row.metric, row.task] = row.value
    return [record for _, record in records], scores


def _plain(record: Record) -> bool:
    """Return whether a record has its protocol's default settings, on the catalog's data in SentEval's text."""
    kind = load_protocol(record.protocol.name)
    kept, default = ({key: value for key, value in settings.items() if key not in kind.cosmetic}
                     for settings in (record.protocol.settings, kind({}).settings))
    return kept == default and record.data.text_version == "senteval" and proven(record)


def _command(records: list[Record]) -> tuple[str, ...]:
    return tuple(map(str, records[0].provenance.get("command") or ())) if records else ()


@dataclass(frozen=True)
class Mean:
    """The mean of a score over n seeds, with the standard deviation (divided by n - 1; None for one seed)."""

    mean: float
    sd: float | None
    n: int

    @classmethod
    def from_scores(cls, scores: Sequence[float]) -> Mean:
        """Return the mean of these scores, one for each seed."""
        return cls(fmean(scores), stdev(scores) if len(scores) > 1 else None, len(scores))


@dataclass(frozen=True)
class Reproduction:
    """A training, or a measurement, that reproduces a row. name: its group; figures: column ("Avg", too) -> mean."""

    name: str
    figures: dict[str, Mean]


def reproductions(row: PublishedRow, way: Way, runs: Sequence[Run]) -> list[Reproduction]:
    """Return the reproductions of a row: those of `runs` by exactly its recipe or command, under its protocol and metric.

    Each model counts once, however often it was tested.
    """
    by_group: dict[str, dict[str, dict[object, float]]] = {}
    for column in table_columns(row):
        for run in _matching_runs(way, column, runs):
            if (score := _score(row, column, run)) is not None:
                model = run.weights if way.recipe is not None and way.eval is not None else id(run)
                by_group.setdefault(run.group, {}).setdefault(column, {}).setdefault(model, score)
    return [Reproduction(name, {column: Mean.from_scores([*scores.values()]) for column, scores in figures.items()})
            for name, figures in by_group.items()]


def changed(way: Way, runs: Sequence[Run]) -> list[str]:
    """Return a line for each training by the way's recipes that is no reproduction, with its name and the reason: what was
    changed, or that it was not tested with the options of `way.eval`."""
    by_recipe = [run for run in runs if run.recipe is not None and run.recipe in way.recipes]
    lines = [f"{run.group}: {run.recipe}, {', '.join(run.changed)}" for run in by_recipe if run.changed]
    if way.eval is not None:
        done = {run.weights for run in _matching_tests(way.eval, runs)}
        lines += [f"{run.group}: {run.recipe}, not tested with {way.eval}" for run in by_recipe
                  if not run.changed and run.weights not in done]
    return list(dict.fromkeys(lines))


def table_columns(row: PublishedRow) -> tuple[str, ...]:
    """Return the table's columns, and Avg if it prints an average or its columns are the seven tasks of STS."""
    return (*row.heading.columns, *([AVERAGE] if row.heading.average or row.recomputed is not None else []))


def printed(row: PublishedRow, column: str) -> float | None:
    """Return the printed figure of a column, or the printed average for any other name; None where it is not printed."""
    return row.average if column not in row.heading.columns else row.scores[row.heading.columns.index(column)]


def _matching_runs(way: Way, column: str, runs: Sequence[Run]) -> Iterator[Run]:
    recipe = way.column_recipe(column)
    trained = [run for run in runs if run.recipe == recipe is not None and not run.changed]
    if way.eval is None:
        yield from trained
    elif recipe is None:
        yield from _matching_tests(way.eval, runs)
    else:
        groups = {run.weights: run.group for run in trained if run.weights is not None}
        tests = _matching_tests(way.eval, runs)
        yield from (replace(run, group=groups[run.weights]) for run in tests if run.weights in groups)
    if way.checkpoint is not None:
        yield from _matching_tests(way.checkpoint, runs)


def _matching_tests(command: str, runs: Sequence[Run]) -> list[Run]:
    """Return the runs of `stsbench eval` with the options of `command`, of the model that it names (the same weights by any
    name), or of any model if it names none, because a recipe trains it."""
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
    """Return the options of a command that determine its encoder, with the --fit-on file's name without its folder."""
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
