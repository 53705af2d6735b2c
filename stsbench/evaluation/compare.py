"""Two runs against each other: which of their records measured the same thing, and how sure the differences are."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stsbench.errors import ScoreError, StsbenchError
from stsbench.evaluation.comparability import Measured, Setting, measured
from stsbench.evaluation.load import load_protocol
from stsbench.evaluation.plan import plan
from stsbench.evaluation.protocol import Observations, Protocol
from stsbench.evaluation.records import Record, ScoreRow, load_records
from stsbench.evaluation.rescore import refuse_doubles, rescored, several_encoders
from stsbench.metrics.paired import Difference, holm, paired_difference
from stsbench.registry import did_you_mean

RESAMPLES = 5000
_BLOCK = 1000  # resamples at a time: a count of every item in every resample has to fit in the memory
_SEEDS = 1_000_000  # between two users' seeds: one seed a block
Floats = NDArray[np.float64]
Pair = tuple[Measured, Measured]


@dataclass(frozen=True)
class Compared:
    """One task, or their average: the scores a and b, a less b, and p after Holm's correction over the table's tasks."""

    task: str
    subset: str | None
    n: int
    a: float
    b: float
    difference: Difference
    corrected: float | None = None


@dataclass(frozen=True)
class ComparisonTable:
    """One setting. average: where both runs have all the tasks that the protocol averages, else None.

    records: the two runs' first ones, which name it; no_test: why differences stand here without interval and p, or "";
    aside: of tasks that the protocol's average leaves out, which are a table of their own.
    """

    setting: Setting
    records: tuple[Record, Record]
    rows: tuple[Compared, ...]
    average: Compared | None
    no_test: str
    aside: bool
    unknown: tuple[str, ...]  # sets that differ from the catalog


@dataclass
class Comparison:
    """What two runs share. left_out, failures: (protocol's label, task, reason) of what could not be compared."""

    runs: tuple[Record, Record]  # one record of each: the encoders
    tables: list[ComparisonTable] = field(default_factory=list)
    left_out: list[tuple[str, str, str]] = field(default_factory=list)
    failures: list[tuple[str, str, str]] = field(default_factory=list)


def compare(
    a: Path, b: Path, *, protocols: Sequence[str] | None = None, metric: str | None = None, resamples: int = RESAMPLES,
    seed: int = 0,
) -> Comparison:
    """Compare the scores of two run folders that measured the same data in the same way.

    protocols: as `stsbench eval` names them, all by default; each is compared by its first metric and aggregation, or by
    `metric`. Raises StsbenchError for an edited record, a folder of several encoders or of two unlike records of the same
    thing, and unknown names.
    """
    chosen = _chooser(protocols)
    loaded = [load_records(folder) for folder in (a, b)]
    for folder, stored in zip((a, b), loaded, strict=True):
        if several_encoders([record for _, record in stored]):
            raise StsbenchError(f"{folder} holds records of several encoders: compare runs of one encoder each")
    result = Comparison((loaded[0][0][1], loaded[1][0][1]))
    mine, theirs = (_verified(letter, stored, chosen, result) for letter, stored in zip("AB", loaded, strict=True))
    pairs = _matched(mine, theirs, result)
    tables: dict[tuple[Setting, bool], list[tuple[Pair, ScoreRow, ScoreRow]]] = {}
    for pair in pairs:
        form = chosen(pair[0])
        if form is None:
            continue
        rows = _shown(pair, form, metric)
        if not rows and metric is None:
            result.left_out.append((pair[0].record.protocol.label, pair[0].task, "the runs reported different scores of it"))
        averaged = pair[0].protocol.averaged
        for one, other in rows:
            if one.n != other.n:
                label, reason = pair[0].record.protocol.label, f"{one.metric} is of {one.n} items in A and {other.n} in B"
                result.left_out.append((label, pair[0].task, reason))
                continue
            # SICK-R-MTEB holds SICK-R again: it would count twice among the tasks.
            aside = bool(averaged) and pair[0].task not in averaged
            tables.setdefault((pair[0].setting(one), aside), []).append((pair, one, other))
    if metric is not None and pairs and not tables:
        known = {row.metric for pair in pairs for row in pair[0].record.scores}
        raise StsbenchError(f"no score that both runs have is called '{metric}'{did_you_mean(metric, sorted(known))}")
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:  # numpy lets go of the interpreter; each needs 300 MB
        drawing = {
            key: [pool.submit(_draws, pair, row, resamples, seed) for pair, row, _ in items] for key, items in tables.items()
        }
        for (setting, aside), items in tables.items():
            draws = [each.result() for each in drawing[setting, aside]]
            average = _average_draws(items, resamples, seed)
            result.tables.append(_table(setting, aside, items, draws, average))
    return result


def _chooser(names: Sequence[str] | None) -> Callable[[Measured], Protocol | None]:
    """Gives the form of a record's protocol that was asked for, which says what is reported first, or None."""
    if names is None or list(names) == ["all"]:
        return lambda item: load_protocol(item.protocol.name)({})
    parts, _ = plan(names, None, {})

    def chosen(item: Measured) -> Protocol | None:
        for part in parts:
            same = part.protocol.name == item.protocol.name and _kept(part.protocol) == _kept(item.protocol)
            if same and item.set_id in part.tasks.values():
                return part.protocol
        return None

    return chosen


def _kept(protocol: Protocol) -> str:
    kept = {key: value for key, value in protocol.settings.items() if key not in protocol.cosmetic}
    return json.dumps(kept, sort_keys=True)


def _verified(
    letter: str, stored: list[tuple[Path, Record]], chosen: Callable[[Measured], Protocol | None], result: Comparison
) -> dict[tuple[object, ...], Measured]:
    """The chosen records by what makes two of them comparable, each scored again from its observations."""
    items: dict[tuple[object, ...], Measured] = {}
    scored: list[tuple[Path, Protocol, Record]] = []
    for path, record in sorted(stored, key=lambda item: item[1].provenance.get("position", 0)):
        try:
            item = measured(path, record)
        except StsbenchError as error:  # of another version, or of a plugin that is not here
            result.left_out.append((record.protocol.label, record.data.task, str(error)))
            continue
        if chosen(item) is None:
            continue
        try:
            record.scores = rescored(path, record)[1]
        except ScoreError as error:
            reason = str(error).removeprefix(f"{item.task}: ")
            result.failures.append((record.protocol.label, item.task, f"{letter} has no score: {reason}"))
            continue
        scored.append((path, item.protocol, record))
        how = record.protocol
        key = (how.name, how.version, _kept(item.protocol), record.data.text_version, item.set_id, item.digest)
        items.setdefault(key, item)  # a paper's preset may have measured the same as the protocol
    refuse_doubles(scored)
    return items


def _matched(
    mine: dict[tuple[object, ...], Measured], theirs: dict[tuple[object, ...], Measured], result: Comparison
) -> list[Pair]:
    only_b = {key: item for key, item in theirs.items() if key not in mine}
    for key, item in mine.items():
        if key in theirs:
            continue
        alike = [other for other in only_b if (other[0], other[4]) == (key[0], key[4])]
        # Where several forms were run, the one of the same name is what was meant.
        alike.sort(key=lambda other: only_b[other].record.protocol.label != item.record.protocol.label)
        reason = _why(item, only_b.pop(alike[0])) if alike else "only A has it"
        result.left_out.append((item.record.protocol.label, item.task, reason))
    result.left_out += [(item.record.protocol.label, item.task, "only B has it") for item in only_b.values()]
    return [(item, theirs[key]) for key, item in mine.items() if key in theirs]


def _why(a: Measured, b: Measured) -> str:
    """What two records of one protocol on data of one name differ in."""
    reasons = []
    ours, others = a.record.data, b.record.data
    if ours.text_version != others.text_version:
        reasons.append(f"the text version is {ours.text_version} in A and {others.text_version} in B")
    elif ours.digest != others.digest:
        reasons.append(f"the data differ (digest {ours.digest[:12]} in A, {others.digest[:12]} in B)")
    one, other = (json.loads(_kept(item.protocol)) for item in (a, b))
    for key in sorted({*one, *other}):
        if (value := one.get(key)) != (theirs := other.get(key)):
            reasons.append(f"{key} is {json.dumps(value)} in A and {json.dumps(theirs)} in B")
    return "; ".join(reasons[:3] + ["..."] * (len(reasons) > 3))


def _shown(pair: Pair, form: Protocol, metric: str | None) -> list[tuple[ScoreRow, ScoreRow]]:
    """The rows of one metric and aggregation: `metric`, else the first one of `form` that both records have.

    Rows over subsets only where there is none over the whole set.
    """
    other = {(row.subset, row.aggregation, row.metric): row for row in pair[1].record.scores}
    rows = [row for row in pair[0].record.scores if (row.subset, row.aggregation, row.metric) in other]
    whole = {row.metric for row in rows if row.subset is None}
    rows = [row for row in rows if row.subset is None or row.metric not in whole]
    hows, metrics = form.settings.get("aggregations", []), form.settings.get("metrics", [])
    rows = [row for row in rows if metric in (None, row.metric) and (row.aggregation is None or row.aggregation in hows)]
    if not rows:
        return []

    def place(row: ScoreRow) -> tuple[int, int]:
        return (metrics.index(row.metric) if row.metric in metrics else len(metrics),
                hows.index(row.aggregation) if row.aggregation in hows else 0)  # fmt: skip

    first = min(rows, key=place)
    rows = [row for row in rows if (row.metric, row.aggregation) == (first.metric, first.aggregation)]
    return [(row, other[row.subset, row.aggregation, row.metric]) for row in rows]


def _draws(pair: Pair, row: ScoreRow, resamples: int, seed: int) -> tuple[Floats, Floats] | None:
    """(resamples,) of both runs' `row` over the same resamples; None where the protocol draws none of it."""
    seen = [item.observed() for item in pair]
    for name in ("row", "rows", "gold", "pair"):  # equal, as the data's digest promises: the draws are paired by place
        one, other = (each.arrays.get(name) for each in seen)
        if one is not None and other is not None and not np.array_equal(one, other):
            raise StsbenchError(
                f"{pair[1].path} and {pair[0].path} name the same data, but their items differ ({name} of the "
                "observations): one was not measured on it"
            )
    protocol = _narrowed(pair[0].protocol, row)
    key, parts = (row.subset, row.aggregation, row.metric), []
    for block, start in enumerate(range(0, resamples, _BLOCK)):
        many = min(_BLOCK, resamples - start)
        drawn = [protocol.draws(each, pair[0].set_id, many, seed * _SEEDS + block) for each in seen]
        if any(key not in each for each in drawn):
            return None
        parts.append([each[key] for each in drawn])
    a, b = (np.concatenate([part[i] for part in parts]) for i in range(2))
    return a, b


def _average_draws(
    items: Sequence[tuple[Pair, ScoreRow, ScoreRow]], resamples: int, seed: int
) -> tuple[Floats, Floats] | None:
    """(resamples,) of both runs' average, drawn as their protocol draws it; None where there is none."""
    first, row, _ = items[0]
    protocol = _narrowed(first[0].protocol, row)
    sides: list[dict[str, tuple[Observations, str]]] = [
        {pair[side].task: (pair[side].observed(), pair[side].set_id) for pair, _, _ in items} for side in range(2)
    ]
    if any("pair" not in seen.arrays for side in sides for seen, _ in side.values()):
        # One was stored before observations held pair keys: both are drawn the older way, or they would not be paired.
        sides = [{task: (_without_pairs(seen), set_id) for task, (seen, set_id) in side.items()} for side in sides]
    key, parts = (None, row.aggregation, row.metric), []
    for block, start in enumerate(range(0, resamples, _BLOCK)):
        many = min(_BLOCK, resamples - start)
        drawn = [protocol.average_draws(side, many, seed * _SEEDS + block) for side in sides]
        if any(key not in each for each in drawn):
            return None
        parts.append([each[key] for each in drawn])
    a, b = (np.concatenate([part[i] for part in parts]) for i in range(2))
    return a, b


def _without_pairs(seen: Observations) -> Observations:
    return Observations({name: array for name, array in seen.arrays.items() if name != "pair"}, seen.names)


def _narrowed(protocol: Protocol, row: ScoreRow) -> Protocol:
    """The protocol that reports no more than `row`, so that no more is drawn."""
    settings = dict(protocol.settings)
    for key, value in (("metrics", row.metric), ("aggregations", row.aggregation)):
        if key in protocol.cosmetic and value in settings.get(key, ()):
            settings[key] = [value]
    return type(protocol)(settings, protocol.label)


def _table(
    setting: Setting, aside: bool, items: Sequence[tuple[Pair, ScoreRow, ScoreRow]],
    draws: Sequence[tuple[Floats, Floats] | None], drawn: tuple[Floats, Floats] | None,
) -> ComparisonTable:
    rows = [
        Compared(pair[0].task, one.subset, one.n, one.value, other.value, _difference(one.value, other.value, drawn))
        for (pair, one, other), drawn in zip(items, draws, strict=True)
    ]
    tested = [i for i, row in enumerate(rows) if row.difference.p is not None]
    for i, p in zip(tested, holm([rows[i].difference.p or 0.0 for i in tested]), strict=True):
        rows[i] = replace(rows[i], corrected=p)
    first = items[0][0]
    whole = {row.task: i for i, row in enumerate(rows) if row.subset is None}
    averaged = first[0].protocol.averaged
    average = None
    if averaged and set(averaged) <= set(whole):
        places = [whole[task] for task in averaged]
        a, b = (float(np.mean([getattr(rows[i], side) for i in places])) for side in "ab")
        average = Compared("Avg", None, sum(rows[i].n for i in places), a, b, _difference(a, b, drawn))
    no_test = ""
    if not tested:
        no_test = f"what {setting.protocol} stores for {setting.metric} cannot be redrawn item by item"
        if any(each is not None for each in draws):
            no_test = "too many resamples have no score"
    unknown = dict.fromkeys(pair[0].set_id for pair, _, _ in items if not pair[0].record.data.known)
    return ComparisonTable(setting, (first[0].record, first[1].record), tuple(rows), average, no_test, aside, tuple(unknown))


def _difference(a: float, b: float, drawn: tuple[Floats, Floats] | None) -> Difference:
    if drawn is None:
        nothing = np.zeros(0)
        return paired_difference(a, b, nothing, nothing)
    return paired_difference(a, b, *drawn)
