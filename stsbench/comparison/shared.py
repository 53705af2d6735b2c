"""Measurements that runs of several encoders share: records that are scored again, the rows that all have, and bootstrap
draws of these over the same resamples of the items."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from typing import Protocol as Kind

import numpy as np
from numpy.typing import NDArray

from stsbench.comparison.comparability import Measured, Setting, measured
from stsbench.data.sets.sentences import SENTENCES
from stsbench.encoders.probe import has_identity
from stsbench.errors import ScoreError, StsbenchError
from stsbench.evaluation.measure import RowKey, row_key
from stsbench.evaluation.plan import plan
from stsbench.evaluation.protocol import Drawn as Drawing
from stsbench.evaluation.protocol import Influences, Observations, Protocol, load_protocol
from stsbench.evaluation.records import Record, ScoreRow
from stsbench.evaluation.rescore import encoder_key, refuse_doubles, rescored, several_encoders
from stsbench.evaluation.run_file import load_records
from stsbench.evaluation.schema import ITEM
from stsbench.metrics.shared_sentences import TOO_FEW_SENTENCES, mean_influence, stretched_pair

RESAMPLES = 5000
_BLOCK = 1000  # resamples in a block, as the counts of every item in every resample must fit into memory
_SEEDS = 1_000_000  # block b of a comparison with seed s has seed s * _SEEDS + b, so that no two share one
Floats = NDArray[np.float64]
Key = tuple[object, ...]  # protocol, version, settings, text version, set and digest, equal in comparable records
Sides = Sequence[Sequence[Measured]]  # each encoder's runs of one task
Reasons = list[tuple[str, str, str]]  # (protocol's label, task, reason)


class Notes(Kind):
    """Interface of a result that collects tasks that could not be compared, and tasks that could not be scored."""

    left_out: Reasons
    failures: Reasons


def loaded(folder: Path) -> list[tuple[Path, Record]]:
    """Return a run's records with their paths. Raises StsbenchError where they are of several encoders."""
    stored = load_records(folder)
    if several_encoders([record for _, record in stored]):
        raise StsbenchError(f"{folder} holds records of several encoders: compare runs of one encoder each")
    return stored


def check_seeds(folders: Sequence[Path], records: Sequence[Record]) -> None:
    """Raise StsbenchError unless the runs of a side are of one encoder, trained with different seeds."""
    holders: dict[str, Path] = {}
    for folder, record in zip(folders, records, strict=True):
        if len(records) > 1 and not has_identity(record.encoder.spec):
            raise StsbenchError(f"{folder} is of an encoder without an identity, so that nobody knows whether it is another "
                                "seed: measure it again with a fingerprint of its own (fingerprint=)")
        if _trained_as(record) != _trained_as(records[0]):
            raise StsbenchError(f"{folders[0]} and {folder} differ in more than their seed: their scores have no mean")
        if (other := holders.setdefault(record.encoder.fingerprint, folder)) is not folder:
            raise StsbenchError(f"{other} and {folder} are of the same encoder: one run does not count twice")


def _trained_as(record: Record) -> list[Any]:
    """Return the spec and training settings that runs of one encoder with different seeds share."""
    spec = {key: value for key, value in json.loads(encoder_key(record)).items() if key not in ("name", "weights")}
    return [spec, *(record.provenance.get(key) for key in ("recipe", "settings", "stage"))]


def chooser(names: Sequence[str] | None) -> Callable[[Measured], Protocol | None]:
    """Return a function from a record to the requested protocol that it belongs to, whose settings say what is reported
    first, or None. names: as --protocol takes them; None: every protocol. Raises StsbenchError for an unknown name."""
    if names is None or list(names) == ["all"]:
        return lambda item: load_protocol(item.protocol.name)({})
    parts, _ = plan(names, None, {})

    def chosen(item: Measured) -> Protocol | None:
        for part in parts:
            same = part.protocol.name == item.protocol.name and kept_settings(part.protocol) == kept_settings(item.protocol)
            by_name = part.protocol.user_path is not None  # a file's content is compared later, by its digest
            if same and (item.task in part.tasks if by_name else item.set_id in part.tasks.values()):
                return part.protocol
        return None

    return chosen


def kept_settings(protocol: Protocol) -> str:
    """Return canonical JSON of a protocol's settings that change a score."""
    kept = {key: value for key, value in protocol.settings.items() if key not in protocol.cosmetic}
    return json.dumps(kept, sort_keys=True)


def verified(
    name: str, stored: list[tuple[Path, Record]], chosen: Callable[[Measured], Protocol | None], notes: Notes
) -> dict[Key, Measured]:
    """Return the chosen records, each scored again from its observations, by a key that comparable records share. name: A or
    B. Raises StsbenchError for an edited record, or two different records of one measurement."""
    items: dict[Key, Measured] = {}
    scored: list[tuple[Path, Protocol, Record]] = []
    for path, record in stored:
        try:
            item = measured(path, record)
        except StsbenchError as error:  # the protocol has another version, or its plugin is not installed
            notes.left_out.append((record.protocol.label, record.data.task, str(error)))
            continue
        if chosen(item) is None:
            continue
        try:
            record.scores = rescored(path, record)[1]
        except ScoreError as error:
            reason = str(error).removeprefix(f"{item.task}: ")
            notes.failures.append((record.protocol.label, item.task, f"{name} has no score: {reason}"))
            continue
        scored.append((path, item.protocol, record))
        how = record.protocol
        key = (how.name, how.version, kept_settings(item.protocol), record.data.text_version, item.set_id, item.digest)
        items.setdefault(key, item)  # a paper's preset and the protocol may have measured the same
    refuse_doubles(scored)
    return items


def of_all(runs: Sequence[dict[Key, Measured]], name: str, notes: Notes) -> dict[Key, list[Measured]]:
    """Return, by key, the records of measurements that all runs of a side have. name: A or B."""
    every = {key: item for run in runs for key, item in run.items()}
    for key, item in every.items():
        if (many := sum(key in run for run in runs)) < len(runs):
            reason = f"only {many} of the {len(runs)} runs of {name} have it"
            notes.left_out.append((item.record.protocol.label, item.task, reason))
    return {key: [run[key] for run in runs] for key in every if all(key in run for run in runs)}


def common_rows(sides: Sides, form: Protocol, metric: str | None) -> list[ScoreRow]:
    """Return the first run's rows of one metric and aggregation that all runs have: `metric`, or the first one in the
    settings of `form`. Rows over subsets are returned only where there is none over the whole set."""
    first, *others = (item for side in sides for item in side)
    scored = [{row_key(row) for row in item.record.scores} for item in others]
    rows = [row for row in first.record.scores if all(row_key(row) in keys for keys in scored)]
    whole = {row.metric for row in rows if row.subset is None}
    rows = [row for row in rows if row.subset is None or row.metric not in whole]
    hows, metrics = form.settings.get("aggregations", []), form.settings.get("metrics", [])
    rows = [row for row in rows if metric in (None, row.metric) and (row.aggregation is None or row.aggregation in hows)]
    if not rows:
        return []

    def preference(row: ScoreRow) -> tuple[int, int]:
        return (metrics.index(row.metric) if row.metric in metrics else len(metrics),
                hows.index(row.aggregation) if row.aggregation in hows else 0)

    best = min(rows, key=preference)
    return [row for row in rows if (row.metric, row.aggregation) == (best.metric, best.aggregation)]


def same_row(item: Measured, row: ScoreRow) -> ScoreRow:
    """Return the row of `item` with the metric, aggregation and subset of `row`, which must exist."""
    return next(other for other in item.record.scores if row_key(other) == row_key(row))


def side_scores(runs: Sequence[Measured], row: ScoreRow) -> Floats:
    """Return (n,) the scores of a side's n runs for the metric, aggregation and subset of `row`."""
    return np.array([next(score.value for score in run.record.scores if row_key(score) == row_key(row)) for run in runs])


def draws(sides: Sides, row: ScoreRow, resamples: int, seed: int, *, difference: bool = False) -> list[Floats] | None:
    """Return (resamples,) bootstrap draws of each side's score for `row`, the mean over its runs, over the same resamples;
    None where the protocol has no draws of it, and for a single item. Raises StsbenchError where the runs' items differ.

    Where items are dependent, the deviations of each side's draws are stretched; difference: those of the difference between
    two sides are stretched instead."""
    if row.n < 2:
        return None
    items = [item for side in sides for item in side]
    if len(sizes := {same_row(item, row).n for item in items}) > 1:
        paths, counts = (" and ".join(map(str, of)) for of in ([item.path for item in items], sorted(sizes)))
        raise StsbenchError(f"{paths} are of {counts} items of the same data: records of before count each row, so "
                            "measure again")
    observed = [item.observed() for item in items]
    for name in ("row", "rows", "gold", "pair", ITEM):  # draws are paired by position, so items must be in the same order
        for item, observations in zip(items, observed, strict=True):
            one, other = observed[0].arrays.get(name), observations.arrays.get(name)
            if one is not None and other is not None and not np.array_equal(one, other):
                raise StsbenchError(
                    f"{item.path} and {items[0].path} name the same data, but their items differ ({name} of the "
                    "observations): one was not measured on it"
                )
    protocol, set_id = narrowed(items[0].protocol, row), items[0].set_id
    # Which items share a text depends on the data alone: records of older releases get it from a record that holds it.
    lent = {name: one.arrays[name] for one in observed for name in SENTENCES if name in one.arrays}
    observed = [one if lent.keys() <= one.arrays.keys() else Observations({**lent, **one.arrays}, one.names)
                for one in observed]
    drawn = [lambda many, start, run=run: protocol.draws(run, set_id, many, start) for run in observed]
    runs, key = list(map(len, sides)), row_key(row)
    means = _means(drawn, runs, key, resamples, seed)
    return means and _stretched(means, [protocol.influences(run) for run in observed], runs, key, difference, seed)


def undrawn_in_words(setting: Setting, item: Measured, row: ScoreRow) -> str:
    """Return the reason why a score has no `draws`, for people."""
    if row.n < 2:
        return "all rows are one item, which every resample holds"
    influence = item.protocol.influences(item.observed()).get(row_key(row))
    if influence is not None and not np.isfinite(influence.stretch):
        return TOO_FEW_SENTENCES
    return f"what {setting.protocol} stores for {setting.metric} cannot be redrawn item by item"


def average_draws(
    items: Sequence[tuple[Sides, ScoreRow]], resamples: int, seed: int, *, difference: bool = False
) -> list[Floats] | None:
    """Return (resamples,) draws of each side's average over these tasks, as their protocol draws it; None where it has no
    such average. difference: as for `draws`."""
    sides, row = items[0]
    protocol = narrowed(sides[0][0].protocol, row)
    runs: list[dict[str, tuple[Observations, str]]] = [
        {of_task[number][i].task: (of_task[number][i].observed(), of_task[number][i].set_id) for of_task, _ in items}
        for number, side in enumerate(sides) for i in range(len(side))
    ]
    drawn = [lambda many, start, run=run: protocol.average_draws(run, many, start) for run in runs]
    counts, key = list(map(len, sides)), (None, row.aggregation, row.metric)
    means = _means(drawn, counts, key, resamples, seed)
    return means and _stretched(means, [protocol.average_influences(run) for run in runs], counts, key, difference, seed)


def _stretched(
    means: list[Floats], influences: Sequence[Influences], sizes: Sequence[int], key: RowKey, difference: bool, seed: int
) -> list[Floats] | None:
    """Return the draws of each side, stretched where items are dependent; None where the factor is infinite. influences: of
    each run, in the order of sides, which have `sizes` runs."""
    if any(key not in of_run for of_run in influences):
        return means
    ends = np.cumsum(sizes).tolist()
    of_sides = [mean_influence([of_run[key] for of_run in influences[end - size : end]])
                for size, end in zip(sizes, ends, strict=True)]
    if difference:
        (of_a, of_b), (a, b) = means, of_sides
        means = [*stretched_pair(of_a, of_b, a, b)]
    else:
        means = [one.joint(drawn, seed) for one, drawn in zip(of_sides, means, strict=True)]
    return None if any(np.isnan(drawn).all() for drawn in means) else means


def _means(
    runs: Sequence[Callable[[int, int], Drawing]], sizes: Sequence[int], key: RowKey, resamples: int, seed: int
) -> list[Floats] | None:
    """Return (resamples,) draws of each side: means of its runs' draws of `key`; None where a run has none. runs: in the
    order of sides, which have `sizes` runs."""
    ends = np.cumsum(sizes).tolist()
    parts = []
    for block, start in enumerate(range(0, resamples, _BLOCK)):
        many = min(_BLOCK, resamples - start)
        drawn = [run(many, seed * _SEEDS + block) for run in runs]
        if any(key not in draws for draws in drawn):
            return None
        values = [draws[key] for draws in drawn]
        parts.append([np.mean(values[end - size : end], axis=0) for size, end in zip(sizes, ends, strict=True)])
    return [np.concatenate([part[i] for part in parts]) for i in range(len(sizes))]


def narrowed(protocol: Protocol, row: ScoreRow) -> Protocol:
    """Return the protocol with only the metric and aggregation of `row`, so that nothing else is drawn."""
    settings = dict(protocol.settings)
    for key, value in (("metrics", row.metric), ("aggregations", row.aggregation)):
        if key in protocol.cosmetic and value in settings.get(key, ()):
            settings[key] = [value]
    return type(protocol)(settings, protocol.label)
