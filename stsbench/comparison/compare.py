"""Two encoders against each other, of one run each or of several seeds: which of their records measured the same thing, and
how sure the differences are."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.comparison.comparability import Measured, SeedPairs, Setting, measured
from stsbench.comparison.comparison import Comparison
from stsbench.comparison.differences import Compared, ComparisonTable
from stsbench.encoders.probe import has_identity
from stsbench.errors import ScoreError, StsbenchError
from stsbench.evaluation.plan import plan, words_of
from stsbench.evaluation.protocol import Drawn as Drawing
from stsbench.evaluation.protocol import Observations, Protocol, load_protocol
from stsbench.evaluation.records import Record, ScoreRow
from stsbench.evaluation.rescore import encoder_key, refuse_doubles, rescored, several_encoders
from stsbench.evaluation.run_file import load_records, run_folders
from stsbench.metrics.paired import Difference, holm, paired_difference
from stsbench.metrics.seeds import difference_over_seeds, uneven
from stsbench.registry import did_you_mean

RESAMPLES = 5000
_BLOCK = 1000  # resamples at a time: a count of every item in every resample has to fit in the memory
_SEEDS = 1_000_000  # between two users' seeds: one seed a block
Floats = NDArray[np.float64]
Key = tuple[object, ...]  # what makes two records comparable
Sides = tuple[Sequence[Measured], Sequence[Measured]]  # A's runs and B's, of one task
Drawn = tuple[Floats, Floats]


def compare(
    a: Any, b: Any, *, protocols: str | Sequence[str] | None = None, protocol: str | Sequence[str] | None = None,
    metric: str | None = None, resamples: int = RESAMPLES, seed: int = 0, by_seed: bool | None = None,
) -> Comparison:
    """Compare the scores of two encoders that measured the same data in the same way: a run folder each, or several seeds',
    as `run_folders` takes them.

    protocols, or protocol: as `stsbench eval` names them, all by default; each is compared by its first metric and
    aggregation, or by `metric`. Scores of several seeds are averaged, and tested as the leaderboard's ranks are. by_seed:
    whether A's run of a seed is compared with B's run of it; by default where the records prove that the runs share more
    than that number (`SeedPairs`). Raises StsbenchError for an edited record, a folder of several encoders or of two unlike
    records of the same thing, seeds that cannot be paired, unknown names, and
    protocols of which neither has a record.

    >>> from stsbench import compare, evaluate
    >>> asked = {"sample": True, "tasks": "STS-B", "resamples": 0}
    >>> runs = [evaluate(model, **asked) for model in ("lexical:tfidf", "lexical:token-set")]
    >>> table = compare(*runs, protocol="sts", resamples=100).tables[0]
    >>> [(row.task, round(row.a, 2), round(row.b, 2), round(row.difference.value, 2)) for row in table.rows]
    [('STS-B', 27.01, 9.48, 17.53)]
    """
    if protocol is not None and protocols is not None:
        raise StsbenchError("compare: protocols is given twice, as protocol, too")
    asked = words_of(protocols if protocol is None else protocol)
    chosen = _chooser(asked)
    folders = [run_folders(side) for side in (a, b)]
    loaded = [[_loaded(folder) for folder in side] for side in folders]
    first = [[stored[0][1] for stored in side] for side in loaded]
    for side, records in zip(folders, first, strict=True):
        _check_seeds(side, records)
    _check_sides(folders, first)
    orders, paired = _paired([[[record for _, record in stored] for stored in side] for side in loaded], by_seed)
    result = Comparison((first[0][0], first[1][0]), (folders[0], folders[1]), resamples, seed, paired)
    of_a, of_b = (
        _of_all([_verified(letter, loaded[side][i], chosen, result) for i in orders[side]], letter, result)
        for side, letter in enumerate("AB")
    )
    tables = _tables(_matched(of_a, of_b, result), chosen, metric, result)
    pool = ThreadPoolExecutor(min(4, os.cpu_count() or 1))  # numpy lets go of the interpreter; each needs 300 MB
    try:
        drawing = {
            key: [pool.submit(_draws, pair, row, resamples, seed) for pair, row, _ in items] for key, items in tables.items()
        }
        for (setting, aside), items in tables.items():
            draws = [future.result() for future in drawing[setting, aside]]
            average = _average_draws(items, resamples, seed)
            result.tables.append(_table(setting, aside, items, draws, average, paired))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # Ctrl-C does not wait for what has not begun
    if not (result.tables or result.left_out or result.failures):
        sides, what = (", ".join(map(str, side)) for side in folders), f" of protocol {', '.join(asked)}" if asked else ""
        raise StsbenchError(f"{' and '.join(sides)} have no measurement{what} in common: nothing to compare")
    return result


def _tables(
    pairs: Sequence[Sides], chosen: Callable[[Measured], Protocol | None], metric: str | None, result: Comparison
) -> dict[tuple[Setting, bool], list[tuple[Sides, ScoreRow, ScoreRow]]]:
    """The rows that are compared, by what makes them a table: the setting, and whether the protocol's average leaves them
    out. Raises StsbenchError for a metric that no pair of runs has."""
    tables: dict[tuple[Setting, bool], list[tuple[Sides, ScoreRow, ScoreRow]]] = {}
    for pair in pairs:
        item = pair[0][0]
        form = chosen(item)
        if form is None:
            continue
        rows = _shown(pair, form, metric)
        if not rows and metric is None:
            result.left_out.append((item.record.protocol.label, item.task, "the runs reported different scores of it"))
        averaged = item.protocol.averaged
        for one, other in rows:
            if one.n != other.n:
                label, reason = item.record.protocol.label, f"{one.metric} is of {one.n} items in A and {other.n} in B"
                result.left_out.append((label, item.task, reason))
                continue
            # SICK-R-MTEB holds SICK-R again: it would count twice among the tasks.
            aside = bool(averaged) and item.task not in averaged
            tables.setdefault((item.setting(one), aside), []).append((pair, one, other))
    if metric is not None and pairs and not tables:
        known = {row.metric for pair in pairs for row in pair[0][0].record.scores}
        raise StsbenchError(f"no score that both runs have is called '{metric}'{did_you_mean(metric, sorted(known))}")
    return tables


def _loaded(folder: Path) -> list[tuple[Path, Record]]:
    stored = load_records(folder)
    if several_encoders([record for _, record in stored]):
        raise StsbenchError(f"{folder} holds records of several encoders: compare runs of one encoder each")
    return stored


def _check_seeds(folders: Sequence[Path], records: Sequence[Record]) -> None:
    """Raises StsbenchError unless the runs of a side are of one encoder, trained with different seeds."""
    holders: dict[str, Path] = {}
    for folder, record in zip(folders, records, strict=True):
        if len(records) > 1 and not has_identity(record.encoder.spec):
            raise StsbenchError(f"{folder} is of an encoder without an identity, so that nobody knows whether it is another "
                                "seed: measure it again with a fingerprint of its own (fingerprint=)")
        if _trained_as(record) != _trained_as(records[0]):
            raise StsbenchError(f"{folders[0]} and {folder} differ in more than their seed: their scores have no mean")
        if (other := holders.setdefault(record.encoder.fingerprint, folder)) is not folder:
            raise StsbenchError(f"{other} and {folder} are of the same encoder: one run does not count twice")


def _check_sides(folders: Sequence[Sequence[Path]], runs: Sequence[Sequence[Record]]) -> None:
    """Raises StsbenchError where a run of several seeds stands on both sides, which then are not independent."""
    if max(map(len, runs)) == 1:
        return  # the same encoder twice: said with the result
    of_a = {record.encoder.fingerprint: folder for folder, record in zip(folders[0], runs[0], strict=True)}
    for folder, record in zip(folders[1], runs[1], strict=True):
        if (other := of_a.get(record.encoder.fingerprint)) is not None:
            raise StsbenchError(f"{other} of A and {folder} of B are of the same encoder: a run can stand on one side only")


def _trained_as(record: Record) -> list[Any]:
    """What the seeds of one encoder have in common."""
    spec = {key: value for key, value in json.loads(encoder_key(record)).items() if key not in ("name", "weights")}
    return [spec, *(record.provenance.get(key) for key in ("recipe", "settings", "stage"))]


def _paired(runs: Sequence[Sequence[Sequence[Record]]], by_seed: bool | None) -> tuple[list[list[int]], bool]:
    """The order in which each side's runs are taken, and whether they are pairs in it."""
    as_they_come = [list(range(len(side))) for side in runs]
    if by_seed is False or (by_seed is None and 1 in map(len, runs)):
        return as_they_come, False
    pairs = SeedPairs(runs)
    if pairs.groups[0] == pairs.groups[1] >= 0:
        return [pairs.order(0), pairs.order(1)], True
    if by_seed is None:
        return as_they_come, False
    seeds: list[list[Any]] = [[records[0].provenance.get("seed") for records in side] for side in runs]
    for letter, side in zip("AB", seeds, strict=True):
        if None in side or len(set(side)) < max(2, len(side)):
            raise StsbenchError(f"--by-seed: the records of {letter} name no seeds of their own: leave it out")
    if set(seeds[0]) != set(seeds[1]):
        listed = " and ".join(", ".join(map(str, sorted(side))) for side in seeds)
        raise StsbenchError(f"--by-seed: A and B were trained with different seeds ({listed}): leave it out")
    return [sorted(range(len(side)), key=side.__getitem__) for side in seeds], True


def _of_all(runs: Sequence[dict[Key, Measured]], letter: str, result: Comparison) -> dict[Key, list[Measured]]:
    """What every run of a side measured, by what makes it comparable."""
    every = {key: item for run in runs for key, item in run.items()}
    for key, item in every.items():
        if (many := sum(key in run for run in runs)) < len(runs):
            reason = f"only {many} of the {len(runs)} runs of {letter} have it"
            result.left_out.append((item.record.protocol.label, item.task, reason))
    return {key: [run[key] for run in runs] for key in every if all(key in run for run in runs)}


def _chooser(names: Sequence[str] | None) -> Callable[[Measured], Protocol | None]:
    """Gives the form of a record's protocol that was asked for, which says what is reported first, or None."""
    if names is None or list(names) == ["all"]:
        return lambda item: load_protocol(item.protocol.name)({})
    parts, _ = plan(names, None, {})

    def chosen(item: Measured) -> Protocol | None:
        for part in parts:
            same = part.protocol.name == item.protocol.name and _kept(part.protocol) == _kept(item.protocol)
            by_name = part.protocol.user_path is not None  # by its content: in `_matched`
            if same and (item.task in part.tasks if by_name else item.set_id in part.tasks.values()):
                return part.protocol
        return None

    return chosen


def _kept(protocol: Protocol) -> str:
    kept = {key: value for key, value in protocol.settings.items() if key not in protocol.cosmetic}
    return json.dumps(kept, sort_keys=True)


def _verified(
    letter: str, stored: list[tuple[Path, Record]], chosen: Callable[[Measured], Protocol | None], result: Comparison
) -> dict[Key, Measured]:
    """The chosen records by what makes two of them comparable, each scored again from its observations."""
    items: dict[Key, Measured] = {}
    scored: list[tuple[Path, Protocol, Record]] = []
    for path, record in stored:
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


def _matched(of_a: dict[Key, list[Measured]], of_b: dict[Key, list[Measured]], result: Comparison) -> list[Sides]:
    only_b = {key: items[0] for key, items in of_b.items() if key not in of_a}
    for key, (item, *_) in of_a.items():
        if key in of_b:
            continue
        candidates = [other for other, its in only_b.items() if other[0] == key[0] and
                 (other[4] == key[4] or (its.task == item.task and "own" == other[3] == key[3]))]
        # Where several forms were run, the one of the same name is what was meant.
        candidates.sort(key=lambda other: only_b[other].record.protocol.label != item.record.protocol.label)
        reason = _why(item, only_b.pop(candidates[0])) if candidates else "only A has it"
        result.left_out.append((item.record.protocol.label, item.task, reason))
    result.left_out += [(item.record.protocol.label, item.task, "only B has it") for item in only_b.values()]
    return [(items, of_b[key]) for key, items in of_a.items() if key in of_b]


def _why(a: Measured, b: Measured) -> str:
    """What two records of one protocol on data of one name differ in."""
    reasons = []
    data, other_data = a.record.data, b.record.data
    if data.text_version != other_data.text_version:
        reasons.append(f"the text version is {data.text_version} in A and {other_data.text_version} in B")
    elif data.digest != other_data.digest:
        reasons.append(f"the data differ (digest {data.digest[:12]} in A, {other_data.digest[:12]} in B)")
    one, other = (json.loads(_kept(item.protocol)) for item in (a, b))
    for key in sorted({*one, *other}):
        if (value := one.get(key)) != (other_value := other.get(key)):
            reasons.append(f"{key} is {json.dumps(value)} in A and {json.dumps(other_value)} in B")
    return "; ".join(reasons[:3] + ["..."] * (len(reasons) > 3))


def _shown(pair: Sides, form: Protocol, metric: str | None) -> list[tuple[ScoreRow, ScoreRow]]:
    """The rows of one metric and aggregation: `metric`, else the first one of `form` that all runs have; A's first run's
    and B's. Rows over subsets only where there is none over the whole set.
    """
    others = [{_row_key(row): row for row in item.record.scores} for item in (*pair[1], *pair[0][1:])]
    rows = [row for row in pair[0][0].record.scores if all(_row_key(row) in scores for scores in others)]
    whole = {row.metric for row in rows if row.subset is None}
    rows = [row for row in rows if row.subset is None or row.metric not in whole]
    hows, metrics = form.settings.get("aggregations", []), form.settings.get("metrics", [])
    rows = [row for row in rows if metric in (None, row.metric) and (row.aggregation is None or row.aggregation in hows)]
    if not rows:
        return []

    def preference(row: ScoreRow) -> tuple[int, int]:
        return (metrics.index(row.metric) if row.metric in metrics else len(metrics),
                hows.index(row.aggregation) if row.aggregation in hows else 0)

    first = min(rows, key=preference)
    rows = [row for row in rows if (row.metric, row.aggregation) == (first.metric, first.aggregation)]
    return [(row, others[0][_row_key(row)]) for row in rows]


def _row_key(row: ScoreRow) -> tuple[str | None, str | None, str]:
    return row.subset, row.aggregation, row.metric


def _draws(pair: Sides, row: ScoreRow, resamples: int, seed: int) -> Drawn | None:
    """(resamples,) of both sides' `row`, the mean over their runs, over the same resamples; None where the protocol draws
    none of it."""
    items = [*pair[0], *pair[1]]
    observed = [item.observed() for item in items]
    for name in ("row", "rows", "gold", "pair"):  # equal, as the data's digest promises: the draws are paired by place
        for item, observations in zip(items, observed, strict=True):
            one, other = observed[0].arrays.get(name), observations.arrays.get(name)
            if one is not None and other is not None and not np.array_equal(one, other):
                raise StsbenchError(
                    f"{item.path} and {items[0].path} name the same data, but their items differ ({name} of the "
                    "observations): one was not measured on it"
                )
    protocol, set_id = narrowed(items[0].protocol, row), items[0].set_id
    drawn = [lambda many, start, run=run: protocol.draws(run, set_id, many, start) for run in observed]
    return _means(drawn, len(pair[0]), _row_key(row), resamples, seed)


def _means(
    runs: Sequence[Callable[[int, int], Drawing]], of_a: int, key: tuple[str | None, str | None, str], resamples: int,
    seed: int,
) -> Drawn | None:
    """(resamples,) of A, the first `of_a` runs, and of B: means of the runs' draws of `key`; None where one has none."""
    parts = []
    for block, start in enumerate(range(0, resamples, _BLOCK)):
        many = min(_BLOCK, resamples - start)
        drawn = [run(many, seed * _SEEDS + block) for run in runs]
        if any(key not in draws for draws in drawn):
            return None
        values = [draws[key] for draws in drawn]
        parts.append([np.mean(side, axis=0) for side in (values[:of_a], values[of_a:])])
    a, b = (np.concatenate([part[i] for part in parts]) for i in range(2))
    return a, b


def _average_draws(items: Sequence[tuple[Sides, ScoreRow, ScoreRow]], resamples: int, seed: int) -> Drawn | None:
    """(resamples,) of both sides' average, drawn as their protocol draws it; None where there is none."""
    pair, row, _ = items[0]
    protocol = narrowed(pair[0][0].protocol, row)
    runs: list[dict[str, tuple[Observations, str]]] = [
        {sides[side][i].task: (sides[side][i].observed(), sides[side][i].set_id) for sides, _, _ in items}
        for side in range(2) for i in range(len(pair[side]))
    ]
    drawn = [lambda many, start, run=run: protocol.average_draws(run, many, start) for run in runs]
    return _means(drawn, len(pair[0]), (None, row.aggregation, row.metric), resamples, seed)


def narrowed(protocol: Protocol, row: ScoreRow) -> Protocol:
    """The protocol that reports no more than `row`, so that no more is drawn."""
    settings = dict(protocol.settings)
    for key, value in (("metrics", row.metric), ("aggregations", row.aggregation)):
        if key in protocol.cosmetic and value in settings.get(key, ()):
            settings[key] = [value]
    return type(protocol)(settings, protocol.label)


def _table(
    setting: Setting, aside: bool, items: Sequence[tuple[Sides, ScoreRow, ScoreRow]], draws: Sequence[Drawn | None],
    drawn: Drawn | None, paired: bool,
) -> ComparisonTable:
    scores = [tuple(_values(side, one) for side in pair) for pair, one, _ in items]
    rows = [
        Compared(pair[0][0].task, one.subset, one.n, float(a.mean()), float(b.mean()), _difference(a, b, draw, paired))
        for (pair, one, _), (a, b), draw in zip(items, scores, draws, strict=True)
    ]
    tested = [i for i, row in enumerate(rows) if row.difference.p is not None]
    noisy = [] if paired else [i for i in tested if uneven(*scores[i])]
    for i, p in zip(tested, holm([rows[i].difference.p or 0.0 for i in tested]), strict=True):
        rows[i] = replace(rows[i], corrected=p)
    first = items[0][0][0][0]
    whole = {row.task: i for i, row in enumerate(rows) if row.subset is None}
    averaged = first.protocol.averaged
    average = None
    if averaged and set(averaged) <= set(whole):
        indices = [whole[task] for task in averaged]
        a, b = (np.mean([scores[i][side] for i in indices], axis=0) for side in range(2))
        count = sum(rows[i].n for i in indices)
        average = Compared("Avg", None, count, float(a.mean()), float(b.mean()), _difference(a, b, drawn, paired))
    no_test = ""
    if not tested:
        no_test = f"what {setting.protocol} stores for {setting.metric} cannot be redrawn item by item"
        if any(draw is not None for draw in draws):
            no_test = "too many resamples have no score"
    unknown = dict.fromkeys(pair[0][0].set_id for pair, _, _ in items if not pair[0][0].record.data.known)
    named = first.record, items[0][0][1][0].record
    return ComparisonTable(setting, named, tuple(rows), average, no_test, aside, tuple(unknown),
                           tuple(rows[i] for i in noisy))


def _values(runs: Sequence[Measured], row: ScoreRow) -> Floats:
    """(n,) scores of a side's runs."""
    return np.array([next(score.value for score in run.record.scores if _row_key(score) == _row_key(row)) for run in runs])


def _difference(a: Floats, b: Floats, drawn: Drawn | None, paired: bool) -> Difference:
    draws = drawn or (np.zeros(0), np.zeros(0))
    if len(a) == len(b) == 1:
        return paired_difference(float(a[0]), float(b[0]), *draws)
    return difference_over_seeds(a, b, *draws, paired=paired)
