"""What a run scored under one setting, with bootstrap draws behind each score: the lines that tabs are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stsbench.comparability import Measured, Setting
from stsbench.errors import StsbenchError
from stsbench.leaderboard.board import Cell
from stsbench.leaderboard.entries import LoadedEntry, Run
from stsbench.metrics.bootstrap import interval
from stsbench.protocol import Drawn, Protocol
from stsbench.records import ScoreRow

RESAMPLES, SEED = 1000, 0  # those of the records' own intervals
AVERAGE = "Avg"
HIDDEN = {"dev accuracy", "dev spearman"}  # scores on development data: in the record, never on a board
Draws = NDArray[np.float64]


@dataclass
class Line:
    """One encoder under one setting. columns -> score and its draws; digests: column -> digest of what it was scored on."""

    setting: Setting
    protocol: Protocol
    label: str
    cells: dict[str, Cell] = field(default_factory=dict)
    draws: dict[str, Draws] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    subsets: dict[tuple[str, str], Cell] = field(default_factory=dict)
    sample: bool = False
    known: bool = True  # all of it measured on the catalog's data, or on data that are in no catalog


def lines_of(run: Run) -> list[Line]:
    """Every setting that a run was measured under, with the averages its protocols define."""
    lines: dict[Setting, Line] = {}
    parts: dict[Setting, list[Measured]] = {}
    for each in run.records:
        wide = metrics_across(each.protocol)
        drawn = each.protocol.drawn(each.observed(), each.set_id, RESAMPLES, SEED)
        for row in each.record.scores:
            if row.metric in HIDDEN or (each.protocol.name == "mteb" and row.metric != each.record.scores[0].metric):
                continue  # mteb gives eight scores a task: its main one comes first
            for setting in _settings(each, row, wide):
                line = lines.setdefault(setting, Line(setting, each.protocol, each.record.protocol.label))
                line.sample |= each.record.data.view == "sample"
                line.known &= each.record.data.known or each.record.data.view in ("sample", "own")
                if row.subset is not None:
                    line.subsets[each.task, row.subset] = _cell(row)
                    continue
                column = row.metric if wide else each.task
                if column in line.cells:
                    continue  # the same setting under two names, as `sts` and `simcse`
                line.cells[column] = _cell(row)
                line.digests[column] = each.digest
                key = (None, row.aggregation, row.metric)
                if key in drawn:
                    line.draws[column] = drawn[key]
                parts.setdefault(setting, []).append(each)
    for setting, line in lines.items():
        _add_average(line, parts[setting])
    return list(lines.values())


def metrics_across(protocol: Protocol) -> bool:
    """Whether a protocol of one task has its metrics as a table's columns; others have tasks, and a table a metric."""
    return len(protocol.tasks()) == 1


def _settings(each: Measured, row: ScoreRow, wide: bool) -> Iterable[Setting]:
    """The settings a row belongs to: its own; a subset's row to those of all aggregations; F1 beside the accuracy."""
    own = each.setting(row)
    wholes = [each.setting(whole) for whole in each.whole()]
    if wide:
        return [wholes[0]]
    if row.subset is None:
        return [own]
    return dict.fromkeys(one for one in wholes if one.metric == row.metric)


def _cell(row: ScoreRow) -> Cell:
    return Cell(row.value, row.low, row.high, n=row.n)


def _add_average(line: Line, parts: Sequence[Measured]) -> None:
    """`Avg` as the protocol computes it, where all its tasks were scored."""
    averaged = line.protocol.averaged
    if not averaged or not set(averaged) <= line.cells.keys():
        return
    mine = {each.task: each for each in parts if each.task in averaged}
    for row in line.protocol.summarise([each.record for each in mine.values()]):
        if (row.task, row.metric, row.aggregation) == (AVERAGE, line.setting.metric, line.setting.aggregation):
            drawn = _average_draws(line.protocol, mine).get((None, row.aggregation, row.metric))
            low, high = (interval(drawn) if drawn is not None else None) or (None, None)
            line.cells[AVERAGE] = Cell(row.value, low, high, n=row.n)
            if drawn is not None:
                line.draws[AVERAGE] = drawn


def _average_draws(protocol: Protocol, parts: Mapping[str, Measured]) -> Drawn:
    """The average's draws, once for all settings that are scored from the same records."""
    observed = {task: (each.observed(), each.set_id) for task, each in parts.items()}
    memo = observed[protocol.averaged[0]][0].memo
    key = ("average", repr(protocol.settings), tuple(each.path for each in parts.values()))
    if key not in memo:
        memo[key] = protocol.average_draws(observed, RESAMPLES, SEED)
    found: Drawn = memo[key]
    return found


def merged(entry: LoadedEntry, runs: Sequence[Sequence[Line]]) -> list[tuple[Line, tuple[str, ...]]]:
    """One line a setting for an entry of several seeds, with what is odd about it: means, their sd, and joint draws.

    The joint draws redraw the seeds as well as the items, so that an interval covers both; what redrawing k seeds tells of
    their spread is too little by (k - 1) / k, and is scaled for it. A column that one seed lacks is left empty.
    """
    if len(runs) == 1:
        return [(line, ()) for line in runs[0]]
    found: dict[Setting, list[Line]] = {}
    for lines in runs:
        for line in lines:
            found.setdefault(line.setting, []).append(line)
    rng = np.random.default_rng([SEED, *entry.id.encode()])  # an entry's seeds have nothing to do with another's
    picks = rng.integers(0, len(runs), size=(len(runs), RESAMPLES))
    return [_joined(entry, each, len(runs), picks) for each in found.values()]


def _joined(entry: LoadedEntry, lines: Sequence[Line], runs: int, picks: NDArray[np.int64]) -> tuple[Line, tuple[str, ...]]:
    first = lines[0]
    joined = Line(first.setting, first.protocol, first.label, sample=any(line.sample for line in lines),
                  known=all(line.known for line in lines))  # fmt: skip
    if len(lines) < runs:
        return joined, (f"only {len(lines)} of {runs} seeds were measured under this setting",)
    marks = []
    for column in dict.fromkeys(name for line in lines for name in line.cells):
        cells = [line.cells[column] for line in lines if column in line.cells]
        if len(cells) < runs:
            marks.append(f"{column}: only {len(cells)} of {runs} seeds were scored")
            continue
        digests = {line.digests[column] for line in lines if column in line.digests}
        if len(digests) > 1:
            raise StsbenchError(f"entry {entry.id}: its seeds were measured on different data for {column}")
        values = [cell.value for cell in cells]
        low = high = None
        if all(column in line.draws for line in lines):
            drawn = np.stack([line.draws[column] for line in lines])
            mean, picked = drawn.mean(axis=0), np.take_along_axis(drawn, picks, axis=0).mean(axis=0)
            joined.draws[column] = mean + np.sqrt(runs / (runs - 1)) * (picked - mean)
            low, high = interval(joined.draws[column]) or (None, None)
        joined.cells[column] = Cell(float(np.mean(values)), low, high, float(np.std(values, ddof=1)), cells[0].n)
        if digests:
            joined.digests[column] = digests.pop()
    for part in first.subsets:
        several = [line.subsets[part].value for line in lines if part in line.subsets]
        if len(several) == runs:
            joined.subsets[part] = Cell(float(np.mean(several)), sd=float(np.std(several, ddof=1)))
    return joined, tuple(marks)


def check_pairing(found: Sequence[Measured]) -> None:
    """Raises StsbenchError where two records of one set and digest disagree about what the right answers are."""
    held: dict[tuple[str, str, int], tuple[Draws, Measured]] = {}
    for each in found:
        arrays = each.observed().arrays
        if "gold" not in arrays:
            continue
        places = next((arrays[name] for name in ("rows", "row") if name in arrays), None)
        gold = arrays["gold"] if places is None else arrays["gold"][np.argsort(places, kind="stable")]
        first, other = held.setdefault((each.record.protocol.name, each.digest, len(gold)), (gold, each))
        if not np.array_equal(first, gold):
            raise StsbenchError(f"{each.path}: its gold values are not those of {other.path}, on the same data")
