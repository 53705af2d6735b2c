"""`compare`: the differences between two encoders' scores, of one run each or of several seeds, with tests and intervals."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from stsbench.comparison.comparability import Measured, SeedPairs, Setting
from stsbench.comparison.comparison import Comparison
from stsbench.comparison.differences import Compared, ComparisonTable, Margins
from stsbench.comparison.shared import (
    RESAMPLES,
    Floats,
    Key,
    average_draws,
    check_seeds,
    chooser,
    common_rows,
    draws,
    kept_settings,
    loaded,
    of_all,
    same_row,
    side_scores,
    undrawn_in_words,
    verified,
)
from stsbench.errors import StsbenchError
from stsbench.evaluation.plan import split_names
from stsbench.evaluation.protocol import Protocol
from stsbench.evaluation.records import Record, ScoreRow
from stsbench.evaluation.run_file import run_folders
from stsbench.evaluation.tables import part_sizes, small_parts_in_words
from stsbench.metrics.equivalence import equivalence, equivalence_over_seeds
from stsbench.metrics.noise import difference_over_seeds, difference_spread
from stsbench.metrics.paired import holm, paired_difference
from stsbench.options import takes
from stsbench.registry import did_you_mean

Sides = tuple[Sequence[Measured], Sequence[Measured]]  # one task's records in A's runs and in B's runs
Drawn = list[Floats]  # bootstrap draws of A's score and of B's


@takes(renamed={**dict.fromkeys(("n_boot", "n_bootstrap", "n_resamples"), "resamples"),
                **dict.fromkeys(("data", "sample"), "two results of evaluate(model, ...), or run folders, as a and b")})
def compare(
    a: Any, b: Any, *, protocols: str | Sequence[str] | None = None, protocol: str | Sequence[str] | None = None,
    metric: str | None = None, resamples: int = RESAMPLES, seed: int = 0, by_seed: bool | None = None,
    margin: float | None = None,
) -> Comparison:
    """Compare the scores of two encoders that were measured on the same data in the same way, and return a Comparison.

    a, b: a run folder each, several folders of runs with different seeds, or results of `evaluate`, as `run_folders` takes
    them. protocols, or protocol: as `stsbench eval` names them, by default all; each is compared by its first metric and
    aggregation, or by `metric`. Scores of several seeds are averaged, and tested as the leaderboard's ranks are. by_seed:
    whether runs of A and B with the same seed are paired; by default where the records prove that they share more than the
    seed's number (`SeedPairs`). margin: test, too, whether A and B are practically equal within it, by two one-sided tests
    (`metrics.equivalence`); in points, or in the unit of the scores where these are not x 100 and of one metric. Raises
    StsbenchError for an edited record, a folder of several encoders or with two different records of one measurement, seeds
    that cannot be paired, unknown names, and protocols of which neither has a record.

    >>> from stsbench import compare, evaluate
    >>> asked = {"sample": True, "tasks": "STS-B", "resamples": 0}
    >>> runs = [evaluate(model, **asked) for model in ("lexical:tfidf", "lexical:token-set")]
    >>> table = compare(*runs, protocol="sts", resamples=100).tables[0]
    >>> [(row.task, round(row.a, 2), round(row.b, 2), round(row.difference.value, 2)) for row in table.rows]
    [('STS-B', 27.01, 9.48, 17.53)]
    """
    if protocol is not None and protocols is not None:
        raise StsbenchError("compare: protocols is given twice, as protocol, too")
    margins = Margins(margin)
    asked = split_names(protocols if protocol is None else protocol)
    chosen = chooser(asked)
    folders = [run_folders(side) for side in (a, b)]
    every = [[loaded(folder) for folder in side] for side in folders]
    first = [[stored[0][1] for stored in side] for side in every]
    for side, records in zip(folders, first, strict=True):
        check_seeds(side, records)
    if max(map(len, first)) > 1:  # a run on both sides would not be independent; a comparison of single runs says so itself
        folder_of = {record.encoder.fingerprint: folder for folder, record in zip(folders[0], first[0], strict=True)}
        for folder, record in zip(folders[1], first[1], strict=True):
            if (same := folder_of.get(record.encoder.fingerprint)) is not None:
                both = f"{same} of A and {folder} of B"
                raise StsbenchError(f"{both} are of the same encoder: a run can stand on one side only")
    orders, paired = _paired([[[record for _, record in stored] for stored in side] for side in every], by_seed)
    result = Comparison((first[0][0], first[1][0]), (folders[0], folders[1]), resamples, seed, paired, margin=margin)
    of_a, of_b = (
        of_all([verified(letter, every[side][i], chosen, result) for i in orders[side]], letter, result)
        for side, letter in enumerate("AB")
    )
    tables = _tables(_matched(of_a, of_b, result), chosen, metric, result)
    margins.check([setting for setting, _ in tables])
    pool = ThreadPoolExecutor(min(4, os.cpu_count() or 1))  # numpy releases the GIL; at most 4, as each takes 300 MB
    try:
        drawing = {
            key: [pool.submit(draws, pair, row, resamples, seed, difference=True) for pair, row, _ in items]
            for key, items in tables.items()
        }
        for (setting, aside), items in tables.items():
            drawn = [future.result() for future in drawing[setting, aside]]
            average = average_draws([(pair, row) for pair, row, _ in items], resamples, seed, difference=True)
            table = _table(setting, aside, items, drawn, average, paired, margins.absolute(setting))
            result.tables.append(replace(table, no_margin=margins.why_not(setting)))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # so that Ctrl-C does not wait for further draws
    if not (result.tables or result.left_out or result.failures):
        sides, what = (", ".join(map(str, side)) for side in folders), f" of protocol {', '.join(asked)}" if asked else ""
        raise StsbenchError(f"{' and '.join(sides)} have no measurement{what} in common: nothing to compare")
    return result


def _tables(
    pairs: Sequence[Sides], chosen: Callable[[Measured], Protocol | None], metric: str | None, result: Comparison
) -> dict[tuple[Setting, bool], list[tuple[Sides, ScoreRow, ScoreRow]]]:
    """Return the compared rows of A and B by table, whose key is the setting, and whether the protocol's average leaves the
    tasks out. Raises StsbenchError for a metric that no pair of runs has."""
    tables: dict[tuple[Setting, bool], list[tuple[Sides, ScoreRow, ScoreRow]]] = {}
    for pair in pairs:
        item = pair[0][0]
        form = chosen(item)
        if form is None:
            continue
        rows = [(row, same_row(pair[1][0], row)) for row in common_rows(pair, form, metric)]
        if not rows and metric is None:
            result.left_out.append((item.record.protocol.label, item.task, "the runs reported different scores of it"))
        averaged = item.protocol.averaged
        for one, other in rows:
            if one.n != other.n:
                label, reason = item.record.protocol.label, f"{one.metric} is of {one.n} items in A and {other.n} in B"
                result.left_out.append((label, item.task, reason))
                continue
            # SICK-R-MTEB contains SICK-R, whose pairs would count twice in one table.
            aside = bool(averaged) and item.task not in averaged
            tables.setdefault((item.setting(one), aside), []).append((pair, one, other))
    if metric is not None and pairs and not tables:
        known = {row.metric for pair in pairs for row in pair[0][0].record.scores}
        raise StsbenchError(f"no score that both runs have is called '{metric}'{did_you_mean(metric, sorted(known))}")
    return tables


def _paired(runs: Sequence[Sequence[Sequence[Record]]], by_seed: bool | None) -> tuple[list[list[int]], bool]:
    """Return the order of each side's runs, and whether runs are paired in this order. Raises StsbenchError where `by_seed`
    is True and seeds are missing or differ."""
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


def _matched(of_a: dict[Key, list[Measured]], of_b: dict[Key, list[Measured]], result: Comparison) -> list[Sides]:
    only_b = {key: items[0] for key, items in of_b.items() if key not in of_a}
    for key, (item, *_) in of_a.items():
        if key in of_b:
            continue
        candidates = [other for other, its in only_b.items() if other[0] == key[0] and
                 (other[4] == key[4] or (its.task == item.task and "own" == other[3] == key[3]))]
        # Of several variants in B, the reason compares the one with the label of A's.
        candidates.sort(key=lambda other: only_b[other].record.protocol.label != item.record.protocol.label)
        reason = _why(item, only_b.pop(candidates[0])) if candidates else "only A has it"
        result.left_out.append((item.record.protocol.label, item.task, reason))
    result.left_out += [(item.record.protocol.label, item.task, "only B has it") for item in only_b.values()]
    return [(items, of_b[key]) for key, items in of_a.items() if key in of_b]


def _why(a: Measured, b: Measured) -> str:
    """Return a text on how two records of one protocol on data of one name differ: text version, digest, settings."""
    reasons = []
    data, other_data = a.record.data, b.record.data
    if data.text_version != other_data.text_version:
        reasons.append(f"the text version is {data.text_version} in A and {other_data.text_version} in B")
    elif data.digest != other_data.digest:
        reasons.append(f"the data differ (digest {data.digest[:12]} in A, {other_data.digest[:12]} in B)")
    one, other = (json.loads(kept_settings(item.protocol)) for item in (a, b))
    for key in sorted({*one, *other}):
        if (value := one.get(key)) != (other_value := other.get(key)):
            reasons.append(f"{key} is {json.dumps(value)} in A and {json.dumps(other_value)} in B")
    return "; ".join(reasons[:3] + ["..."] * (len(reasons) > 3))


def _table(
    setting: Setting, aside: bool, items: Sequence[tuple[Sides, ScoreRow, ScoreRow]], draws: Sequence[Drawn | None],
    drawn: Drawn | None, paired: bool, margin: float | None,
) -> ComparisonTable:
    scores = [tuple(side_scores(side, one) for side in pair) for pair, one, _ in items]
    rows = [
        _compared(pair[0][0].task, one.subset, one.n, a, b, draw, paired, margin)
        for (pair, one, _), (a, b), draw in zip(items, scores, draws, strict=True)
    ]
    tested = [i for i, row in enumerate(rows) if row.difference.p is not None]
    for i, p in zip(tested, holm([rows[i].difference.p or 0.0 for i in tested]), strict=True):
        rows[i] = replace(rows[i], corrected=p)
    equal = [(i, row.equivalence.p) for i, row in enumerate(rows) if row.equivalence]
    for (i, _), p in zip(equal, holm([p for _, p in equal]), strict=True):
        rows[i] = replace(rows[i], equivalence_corrected=p)
    first = items[0][0][0][0]
    whole = {row.task: i for i, row in enumerate(rows) if row.subset is None}
    averaged = first.protocol.averaged
    average = None
    if averaged and set(averaged) <= set(whole):
        indices = [whole[task] for task in averaged]
        a, b = (np.mean([scores[i][side] for i in indices], axis=0) for side in range(2))
        count = sum(rows[i].n for i in indices)
        average = _compared("Avg", None, count, a, b, drawn, paired, margin)
    no_test = ""
    if not tested:
        pair, largest, _ = max(items, key=lambda item: item[1].n)
        no_test = undrawn_in_words(setting, pair[0][0], largest)
        if any(draw is not None for draw in draws):
            no_test = "too many resamples have no score"
    unknown = dict.fromkeys(pair[0][0].set_id for pair, _, _ in items if not pair[0][0].record.data.known)
    named = first.record, items[0][0][1][0].record
    scored = [row for pair, one, _ in items for row in pair[0][0].record.scores  # with the rows of the tasks' subsets
              if row.metric == one.metric and (row.subset is not None or row.aggregation == one.aggregation)]
    return ComparisonTable(setting, named, tuple(rows), average, no_test, aside, tuple(unknown),
                           margin, small_parts=small_parts_in_words(part_sizes(scored)),
                           measurements=tuple(tuple(item.record for pair, _, _ in items for item in pair[side])
                                              for side in range(2)))


def _compared(
    task: str, subset: str | None, n: int, a: Floats, b: Floats, draws: Drawn | None, paired: bool, margin: float | None
) -> Compared:
    """Return a row of a table. a, b: (n,) and (m,) scores of seeds; draws: of both means, None where there is no test."""
    one, other, equal = float(a.mean()), float(b.mean()), None
    of_a, of_b = draws or (np.zeros(0), np.zeros(0))
    if len(a) == len(b) == 1:
        difference = paired_difference(one, other, of_a, of_b)
        if margin is not None and draws is not None:
            equal = equivalence(one, other, of_a, of_b, margin)
    else:
        difference = difference_over_seeds(a, b, of_a, of_b, paired=paired)
        if margin is not None and draws is not None:
            equal = equivalence_over_seeds(a, b, of_a, of_b, margin, paired=paired)
    spread = None if draws is None else difference_spread(a, b, of_a, of_b, paired=paired)
    return Compared(task, subset, n, one, other, difference, equivalence=equal, spread=spread)
