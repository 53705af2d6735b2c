"""What was measured here, by recipe or by command: training runs, runs of `stsbench eval`, a board's entries."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from stsbench.config import flatten
from stsbench.data.sets.catalog import entry
from stsbench.encoders.forward.identity import folder_digest
from stsbench.errors import StsbenchError
from stsbench.evaluation.protocol import Protocol, load_protocol
from stsbench.evaluation.records import Record
from stsbench.evaluation.rescore import rescored, several_encoders
from stsbench.evaluation.run_file import load_records, runs_below
from stsbench.leaderboard.records.admission import proven
from stsbench.leaderboard.records.entries import DESCRIPTION, Prompts, read_entry
from stsbench.training.recipes.methods import short_name
from stsbench.training.recipes.recipe import FREE, Recipe, changes
from stsbench.training.recipes.recipes import shipped_recipe, stored_recipe
from stsbench.training.runs.report import read_summary

from .commands import known_data
from .ways import Way

Key = tuple[str, str | None, str, str]  # protocol, aggregation, metric, task
DEV = "sts-b dev"
_SAID = {"name", "description", "source", "published", *FREE}  # what leaves a recipe what it is


@dataclass(frozen=True)
class Run:
    """One encoder that was measured.

    group: what seeds of one training share, the name that is shown; recipe: METHOD/NAME it was trained by, None for none;
    changed: what differs from that recipe, () for nothing; command: by which it was measured; scores: at a protocol's
    defaults on the catalog's data, recomputed from the observations, none for a changed recipe, which counts nowhere;
    tested: the digests of model and tokenizer in its records, None without records; exported: the model of a training that
    was not tested.
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
        """The digests of model and tokenizer, by which a model is known whatever it is called; None for no model."""
        if self.tested is None and self.exported is not None and self.exported.is_dir():
            return folder_digest(self.exported), ""
        return self.tested


def local_runs(folder: Path, protocols: Collection[str]) -> list[Run]:
    """Every finished training run and every run of `stsbench eval` below `folder`; [] where there is no such folder.

    protocols: those whose records are read.

    Raises StsbenchError, naming the file, for records that were edited, of runs whose scores count.
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
    """The runs of a board's entries (`folder`: its measured/) that were trained by a recipe of `resolved`, or one changed
    from it, or that measured a model of theirs: of the name in the command, or with the weights of such a run here, in
    `local` or of such a training by the very recipe; not those of prompts. Errors as of `local_runs`."""
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
    """The recipe that a record's model was trained by, or changed from."""
    recipe = record.provenance.get("recipe")
    return recipe.removesuffix("-changed") if isinstance(recipe, str) else None


def _weights(record: Record) -> tuple[str, str]:
    spec = record.encoder.spec
    return str(spec.get("weights")), str(spec.get("tokenizer") or "")


def _tested(records: list[Record]) -> tuple[str, str] | None:
    """The digests of the model and the tokenizer that records are of."""
    return _weights(records[0]) if records else None


def _trained(root: Path, run: Path, protocols: Collection[str]) -> Iterator[Run]:
    """The training run, with its test where it has one; nothing for a run whose method or recipe is not there."""
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
    """The keys in which two recipes differ, beside seeds, the folders of files and what is only said of them."""
    trained, as_shipped = (flatten(settings.model_dump(mode="json", exclude=_SAID)) for settings in (recipe, shipped))

    def value(values: Mapping[str, Any], key: str) -> Any:
        setting = values.get(key)
        return Path(setting).name if key.endswith(".file") and setting and not known_data(setting) else setting

    return sorted(key for key in {**trained, **as_shipped}
                  if value(trained, key) != value(as_shipped, key) and not key.endswith(".sample_seed"))


def _changed_on_board(record: Record) -> tuple[str, ...]:
    """What a record says of its recipe: () where it has none, or was trained by the recipe as it is shipped now."""
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
    """The STS-B dev score of the weights that a run kept; None where it has none on the catalog's data."""
    known = entry("stsb/dev").digest
    if summary.get("selected_by") != DEV or summary.get("dev_data", {}).get("stsb/dev") != known:
        return None
    best = summary.get("best")
    score = best["score"] if best else summary.get("after")
    return None if score is None else float(score)


def _scored(folder: Path, protocols: Collection[str]) -> tuple[list[Record], dict[Key, float]]:
    """The records of a run, and the scores of those under `protocols` at the defaults on the catalog's data, averages, too.

    What counts is recomputed from its observations first.
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
    """Whether a record is at its protocol's defaults, on the catalog's data in SentEval's text."""
    kind = load_protocol(record.protocol.name)
    kept, default = ({key: value for key, value in settings.items() if key not in kind.cosmetic}
                     for settings in (record.protocol.settings, kind({}).settings))
    return kept == default and record.data.text_version == "senteval" and proven(record)


def _command(records: list[Record]) -> tuple[str, ...]:
    return tuple(map(str, records[0].provenance.get("command") or ())) if records else ()
