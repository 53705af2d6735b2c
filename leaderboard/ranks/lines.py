"""What a run scored under one setting, with bootstrap draws behind each score: the lines that tabs are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from stsbench.errors import StsbenchError
from stsbench.evaluation.comparability import Measured, Setting
from stsbench.evaluation.protocol import Drawn, Protocol
from stsbench.evaluation.records import ScoreRow
from stsbench.leaderboard.ranks.board import Cell
from stsbench.leaderboard.records.admission import proven
from stsbench.leaderboard.records.entries import EntryRun
from stsbench.metrics.bootstrap import interval

RESAMPLES, SEED = 1000, 0  # those of the records' own intervals
AVERAGE = "Avg"
HIDDEN = {"dev accuracy", "dev spearman"}  # scores on development data: in the record, never on a board
Draws = NDArray[np.float64]


@dataclass
class ScoreLine:
    """One encoder under one setting. columns -> score and its draws; digests: column -> digest of what it was scored on;
    cut: column -> how many of its texts exceeded the encoder's limit; marks: what a reader must know of the numbers."""

    setting: Setting
    protocol: Protocol
    cells: dict[str, Cell] = field(default_factory=dict)
    draws: dict[str, Draws] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    cut: dict[str, int] = field(default_factory=dict)
    marks: list[str] = field(default_factory=list)
    subsets: dict[tuple[str, str], Cell] = field(default_factory=dict)
    seeds: dict[str, Draws] = field(default_factory=dict)  # column -> the scores of several seeds, in the order of the runs
    sample: bool = False
    known: bool = True  # all of it measured on the catalog's data, or on data that are in no catalog


def lines_of(run: EntryRun) -> list[ScoreLine]:
    """Every setting that a run was measured under, with the averages its protocols define."""
    lines: dict[tuple[Setting, bool], ScoreLine] = {}
    parts: dict[tuple[Setting, bool], dict[str, Measured]] = {}
    for each in run.records:
        drawn = each.protocol.drawn(each.observed(), each.set_id, RESAMPLES, SEED)
        known = proven(each.record)
        for row in each.record.scores:
            if row.metric in HIDDEN or (each.protocol.name == "mteb" and row.metric != each.record.scores[0].metric):
                continue  # mteb gives eight scores a task: its main one comes first
            for setting in _settings(each, row):
                line = lines.setdefault((setting, known), ScoreLine(setting, each.protocol, known=known))
                line.sample |= each.record.data.text_version == "sample"
                key = (None, row.aggregation, row.metric)
                if row.subset is not None:
                    line.subsets.setdefault((each.task, row.subset), _cell(row))
                else:
                    column = row.metric if each.protocol.metrics_across else each.task
                    if _fill(line, column, each, _scored(row, each.protocol, drawn.get(key))) and key in drawn:
                        line.draws[column] = drawn[key]
                    parts.setdefault((setting, known), {}).setdefault(each.task, each)
    for key_of, line in lines.items():
        _add_average(line, parts[key_of])
    return list(lines.values())


def _fill(line: ScoreLine, column: str, each: Measured, cell: Cell) -> bool:
    """Put a score into its column; False where the same was measured under two names, as `sts` and `simcse`.

    Raises StsbenchError where two records of a run contradict each other.
    """
    if column not in line.cells:
        line.cells[column], line.digests[column] = cell, each.digest
        line.cut[column] = each.record.counts.get("truncated", 0)
        return True
    if line.digests[column] != each.digest or abs(line.cells[column].value - cell.value) > 1e-6:
        raise StsbenchError(f"{each.path}: the run holds another score of {column} under the same setting")
    return False


def _settings(each: Measured, row: ScoreRow) -> Iterable[Setting]:
    """The settings a row belongs to: that of the row; a subset's row to those of all aggregations."""
    if each.protocol.metrics_across:
        return [replace(each.setting(row), metric="", aggregation=None)]
    if row.subset is None:
        return [each.setting(row)]
    return dict.fromkeys(each.setting(whole) for whole in each.whole() if whole.metric == row.metric)


def _scored(row: ScoreRow, protocol: Protocol, drawn: Draws | None) -> Cell:
    """The row's score, with the board's own interval where the record's was drawn otherwise: all are drawn alike."""
    settings = protocol.settings
    seed = settings.get("bootstrap_seed", settings.get("seed")) if "resamples" in settings else SEED
    if drawn is None or (settings.get("resamples", RESAMPLES), seed) == (RESAMPLES, SEED):
        return _cell(row)
    low, high = interval(drawn) or (None, None)
    return replace(_cell(row), low=low, high=high)


def _cell(row: ScoreRow) -> Cell:
    return Cell(row.value, row.low, row.high, n=row.n)


def _add_average(line: ScoreLine, parts: Mapping[str, Measured]) -> None:
    """`Avg` as the protocol computes it, where all its tasks were scored."""
    averaged, label = line.protocol.averaged, line.protocol.label
    if not averaged or not set(averaged) <= line.cells.keys():
        return
    mine = {task: parts[task] for task in averaged}
    # A protocol averages rows of its own name; a paper's preset may have given some of these another.
    records = [each.record.model_copy(update={"scores": [row.model_copy(update={"protocol": label})
               for row in each.record.scores]}) for each in mine.values()]  # fmt: skip
    for row in line.protocol.summarise(records):
        if (row.task, row.metric, row.aggregation) == (AVERAGE, line.setting.metric, line.setting.aggregation):
            drawn = _average_draws(line.protocol, mine).get((None, row.aggregation, row.metric))
            low, high = (interval(drawn) if drawn is not None else None) or (None, None)
            line.cells[AVERAGE] = Cell(row.value, low, high, n=row.n)
            if drawn is not None:
                line.draws[AVERAGE] = drawn
            if line.protocol.name == "sts" and not all("pair" in each.observed().arrays for each in mine.values()):
                line.marks.append("the average's interval is too narrow: the records do not tell which pairs tasks share")


def _average_draws(protocol: Protocol, parts: Mapping[str, Measured]) -> Drawn:
    """The average's draws, once for all settings that are scored from the same records."""
    observed = {task: (each.observed(), each.set_id) for task, each in parts.items()}
    memo = observed[protocol.averaged[0]][0].memo
    key = ("average", repr(protocol.settings), tuple(each.path for each in parts.values()))
    if key not in memo:
        memo[key] = protocol.average_draws(observed, RESAMPLES, SEED)
    draws: Drawn = memo[key]
    return draws


def check_pairing(records: Sequence[Measured]) -> None:
    """Raises StsbenchError where two records of one set and digest disagree about what the right answers are."""
    known: dict[tuple[str, str, int], tuple[Draws, Measured]] = {}
    for each in records:
        arrays = each.observed().arrays
        if "gold" not in arrays:
            continue
        places = next((arrays[name] for name in ("rows", "row") if name in arrays), None)
        gold = arrays["gold"] if places is None else arrays["gold"][np.argsort(places, kind="stable")]
        first, other = known.setdefault((each.record.protocol.name, each.digest, len(gold)), (gold, each))
        if not np.array_equal(first, gold):
            raise StsbenchError(f"{each.path}: its gold values are not those of {other.path}, on the same data")
