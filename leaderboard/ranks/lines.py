"""Score lines: the scores of one run under one setting with their bootstrap draws, and the mean line of several seeds. The
board's tabs are made of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.comparison.comparability import Measured, Setting
from stsbench.data.sets.catalog import AVERAGED, SEVERAL, set_language, set_title
from stsbench.data.sets.sets import path_name
from stsbench.errors import StsbenchError
from stsbench.evaluation.measure import RESAMPLES, SEED, averages_within, bounded, data_remarks, drawn_with
from stsbench.evaluation.protocol import Protocol
from stsbench.evaluation.records import ScoreRow
from stsbench.evaluation.schema import Metric
from stsbench.leaderboard.records.admission import proven
from stsbench.leaderboard.records.entries import EntryRun, LoadedEntry
from stsbench.metrics.bootstrap import interval

from .board import Cell

AVERAGE = "Avg"
Draws = NDArray[np.float64]


@dataclass
class ScoreLine:
    """The scores of one encoder under one setting. cells, draws: column -> score, its bootstrap draws; digests: column ->
    digest of its data; cut: column -> number of texts that exceeded the encoder's limit."""

    setting: Setting
    protocol: Protocol
    cells: dict[str, Cell] = field(default_factory=dict)
    draws: dict[str, Draws] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    cut: dict[str, int] = field(default_factory=dict)
    subsets: dict[tuple[str, str], Cell] = field(default_factory=dict)
    seeds: dict[str, Draws] = field(default_factory=dict)  # column -> the scores of several seeds, in the order of the runs
    sample: bool = False
    known: bool = True  # whether all of it was measured on the catalog's data, or on data that are in no catalog
    part: str = ""  # data with tabs of their own: the id of a user's data, made of their content, or a language in words
    ceilings: dict[str, str] = field(default_factory=dict)  # column -> the expected score of a perfect model, in words
    names: tuple[str, ...] = ()  # the board's name for a user's data, then other names of files with this content

    @property
    def user_set(self) -> str:
        """Return the name of the user's file or folder that the line was measured on; "" for data of the catalog and for
        sets with tabs by language."""
        if not self.protocol.user_path or self.language:
            return ""
        return next(iter(self.names), set_title(self.part, path_name(self.protocol.user_path)))

    @property
    def language(self) -> str:
        """Return the language of the data, as in "Korean", "English and German" or "All languages"; "" without such tabs."""
        return "" if self.part.startswith("own:") else self.part

    @property
    def averaged(self) -> tuple[str, ...]:
        """Return the tasks that are averaged in the line's tab; () for no average."""
        return AVERAGED.get(self.language, ()) if self.language else self.protocol.averaged

    @property
    def key(self) -> tuple[Setting, bool, str]:
        """Return the key by which lines are grouped into tabs, before their data are compared."""
        return self.setting, self.known, self.part


Parts = dict[str, Measured]  # task -> the record that scored it


def lines_of_runs(runs: Sequence[EntryRun]) -> list[list[ScoreLine]]:
    """Return for each run a line per setting that it was measured under, with the averages that its protocols define. The
    averages of all runs are drawn together."""
    filled = [_filled(run) for run in runs]
    averages = [(line, {task: parts[task] for task in line.averaged}) for lines in filled for line, parts in lines
                if line.averaged and set(line.averaged) <= line.cells.keys()]  # no average if a task was not scored
    _draw_averages([(_averaging(line), averaged) for line, averaged in averages])
    for line, averaged in averages:
        _add_average(line, averaged)
    return [[line for line, _ in lines] for lines in filled]


def _filled(run: EntryRun) -> list[tuple[ScoreLine, Parts]]:
    """Return a run's lines without averages, each with the records that scored its tasks."""
    lines: dict[tuple[Setting, bool, str], tuple[ScoreLine, Parts]] = {}
    for measured in run.records:
        drawn = measured.protocol.drawn(measured.observed(), measured.set_id, RESAMPLES, SEED)
        influences = measured.protocol.influences(measured.observed())
        drawn = {key: influences[key].joint(draws, SEED) if key in influences else draws for key, draws in drawn.items()}
        known = proven(measured.record)
        for row in measured.record.scores:
            main = measured.record.scores[0].metric  # a record's main metric comes first
            aside = measured.protocol.main_metric and row.metric != main
            if aside or measured.protocol.metric(row.metric).development or _repeats_score(measured, row):
                continue
            for setting, part in _tables(measured, row):
                new = ScoreLine(setting, measured.protocol, known=known, part=part)
                line, parts = lines.setdefault(new.key, (new, {}))
                line.sample |= measured.record.data.text_version == "sample"
                key = (row.subset, row.aggregation, row.metric)
                column = row.metric if measured.protocol.metrics_across else set_title(measured.set_id, measured.task)
                if row.subset is not None and part == _part(measured):
                    line.subsets.setdefault((column, row.subset), _cell(row))
                else:
                    within = bounded(row, measured.protocol, measured.observed(), measured.set_id)
                    if _fill(line, column, measured, _cell(within)) and key in drawn:
                        line.draws[column] = drawn[key]
                    for remark in data_remarks(measured.protocol, measured.set_id, [row]) if part and row.subset else ():
                        line.ceilings[column] = remark.partition(";")[0].partition(": ")[2]  # without its note on the row
                    parts.setdefault(measured.task, measured)
    return list(lines.values())


def _fill(line: ScoreLine, column: str, measured: Measured, cell: Cell) -> bool:
    """Put a score into its column and return True; False for a score measured before under another protocol's name.

    Raises StsbenchError where two records of a run contradict each other.
    """
    if column not in line.cells:
        line.cells[column], line.digests[column] = cell, measured.digest
        line.cut[column] = measured.record.counts.get("truncated", 0)
        return True
    if line.digests[column] != measured.digest or abs(line.cells[column].value - cell.value) > 1e-6:
        raise StsbenchError(f"{measured.path}: the run holds another score of {column} under the same setting")
    return False


def _part(measured: Measured) -> str:
    """Return the key of data with tabs of their own: a multilingual set's language, or the id of a user's data; else ""."""
    return set_language(measured.set_id) or (measured.set_id if measured.protocol.user_path else "")


def _repeats_score(measured: Measured, row: ScoreRow) -> bool:
    """Return whether a row repeats another aggregation's score, as for a set in one language, which has no subsets."""
    if _part(measured) in ("", SEVERAL, measured.set_id):
        return False
    hows = [whole.aggregation for whole in measured.whole()]
    return row.aggregation != ("all" if "all" in hows else hows[0])


def _tables(measured: Measured, row: ScoreRow) -> Iterable[tuple[Setting, str]]:
    """Return the settings that a row belongs to, each with the key of its data (`_part`). A subset's row belongs to all
    aggregations, and to the tab of its language with the aggregation "all", as it is one correlation."""
    part = _part(measured)
    if measured.protocol.metrics_across:
        return [(replace(measured.setting(row), metric="", aggregation=None), part)]
    if row.subset is None:
        return [(measured.setting(row), part)]
    tables = [(measured.setting(whole), part) for whole in measured.whole() if whole.metric == row.metric]
    if part == SEVERAL and (language := set_language(measured.set_id, row.subset)):
        tables.append((replace(measured.setting(row), aggregation="all"), language))
    return dict.fromkeys(tables)


def _cell(row: ScoreRow) -> Cell:
    return Cell(row.value, row.low, row.high, n=row.n)


def _averaging(line: ScoreLine) -> Protocol:
    """Return the protocol that computes a line's average. A language's average is the mean of its own sets, whichever
    tasks or preset they were measured by."""
    if not line.language:
        return line.protocol
    return type(line.protocol)({**line.protocol.settings, "average": [*line.averaged]})


def _add_average(line: ScoreLine, parts: Parts) -> None:
    """Add the column `Avg` to a line, with the score, interval and draws that the protocol computes."""
    protocol = _averaging(line)
    label = protocol.label
    # A protocol averages rows with its own label only, and a paper's preset may have given some rows another.
    records = [measured.record.model_copy(update={"scores": [row.model_copy(update={"protocol": label})
               for row in measured.record.scores]}) for measured in parts.values()]
    for row in protocol.summarise(records):
        if (row.task, row.metric, row.aggregation) == (AVERAGE, line.setting.metric, line.setting.aggregation):
            memo, key = _average_memo(protocol, parts)
            drawn, joint = memo[key].get((None, row.aggregation, row.metric), (None, None))
            if drawn_with(protocol) == (RESAMPLES, SEED):
                low, high = (interval(drawn) if drawn is not None else None) or (None, None)
                line.cells[AVERAGE] = Cell(row.value, low, high, n=row.n)
            else:  # the protocol draws with other resamples or seed than the ranks: the interval needs its own draws
                observed = {task: (measured.observed(), measured.set_id) for task, measured in parts.items()}
                line.cells[AVERAGE] = _cell(*averages_within([row], protocol, observed))
            if joint is not None:
                line.draws[AVERAGE] = joint


def _average_memo(protocol: Protocol, parts: Parts) -> tuple[dict[Any, Any], tuple[object, ...]]:
    """Return the dictionary that caches the average's draws (for its interval, and for joint tests), and the key of these
    draws in it, which is the same for all settings that are scored from the same records."""
    memo = parts[protocol.averaged[0]].observed().memo
    return memo, ("average", repr(protocol.settings), tuple(measured.path for measured in parts.values()))


def _draw_averages(averaged: Sequence[tuple[Protocol, Parts]]) -> None:
    """Draw each average and cache its draws; the averages of several runs under one protocol are drawn together."""
    groups: dict[tuple[str, str], dict[tuple[object, ...], tuple[Protocol, Parts]]] = {}
    for protocol, parts in averaged:
        memo, key = _average_memo(protocol, parts)
        if key not in memo:
            groups.setdefault((protocol.name, repr(protocol.settings)), {})[key] = protocol, parts
    for members in groups.values():
        protocol = next(iter(members.values()))[0]
        observed = [{task: (measured.observed(), measured.set_id) for task, measured in parts.items()}
                    for _, parts in members.values()]
        drawn = protocol.average_draws_of_many(observed, RESAMPLES, SEED)
        for (protocol_of_run, parts), draws, tasks in zip(members.values(), drawn, observed, strict=True):
            memo, key = _average_memo(protocol_of_run, parts)
            influences = protocol.average_influences(tasks)
            memo[key] = {row: (influences[row].stretched(of_row), influences[row].joint(of_row, SEED))
                         if row in influences else (of_row, of_row) for row, of_row in draws.items()}


def column_metric(line: ScoreLine, column: str) -> Metric:
    """Return the metric of a column, as the protocol declares it."""
    return line.protocol.metric(column if line.protocol.metrics_across else line.setting.metric)


def merged(entry: LoadedEntry, runs: Sequence[Sequence[ScoreLine]]) -> list[tuple[ScoreLine, tuple[str, ...]]]:
    """Return one line per setting for an entry: over several seeds its means, sd and intervals. With each come remarks.

    `draws` of a joined line are bootstrap draws of the seeds' mean over items; `seeds` holds the seeds' scores in the order
    of the runs. A cell's interval adds to the draws a normal deviate of the mean's standard error over seeds, scaled so
    that its 95 % range is that of Student's t: with three seeds a standard error is hardly known. A column that one seed
    lacks is left empty.
    """
    if len(runs) == 1:
        return [(line, ()) for line in runs[0]]
    from scipy import stats

    by_setting: dict[tuple[Setting, bool, str], list[ScoreLine]] = {}
    for lines in runs:
        for line in lines:
            by_setting.setdefault(line.key, []).append(line)
    rng = np.random.default_rng([SEED, *entry.id.encode()])  # independent of other entries' deviates
    wider = _student(len(runs)) / stats.norm.ppf(0.975)
    deviate = rng.standard_normal(RESAMPLES) * wider / np.sqrt(len(runs))
    joined = [_joined(entry, group, len(runs), deviate) for group in by_setting.values()]
    return [(line, marks) for line, marks in joined if line.cells]


def _joined(entry: LoadedEntry, lines: Sequence[ScoreLine], runs: int, deviate: Draws) -> tuple[ScoreLine, tuple[str, ...]]:
    first = lines[0]
    joined = ScoreLine(first.setting, first.protocol, sample=first.sample, known=first.known, part=first.part,
                       names=first.names, ceilings=first.ceilings)
    marks = []
    for column in dict.fromkeys(name for line in lines for name in line.cells):
        cells = [line.cells[column] for line in lines if column in line.cells]
        if len(cells) < runs:
            marks.append(f"{column}: only {len(cells)} of {runs} seeds were scored")
            continue
        digests = {line.digests[column] for line in lines if column in line.digests}
        if len(digests) > 1:
            raise StsbenchError(f"entry {entry.id}: its seeds were measured on different data for {column}")
        values = joined.seeds[column] = np.array([cell.value for cell in cells])
        spread = float(np.std(values, ddof=1))
        low = high = None
        if all(column in line.draws for line in lines):
            joined.draws[column] = np.mean([line.draws[column] for line in lines], axis=0)
            drawn = joined.draws[column] + spread * deviate
            # If all seeds and resamples have the same score, it is both ends of the interval.
            low, high = interval(drawn) or ((float(drawn[0]),) * 2 if np.ptp(drawn) == 0 else (None, None))
            low, high = clipped(low, high, column_metric(first, column))
        joined.cells[column] = Cell(float(np.mean(values)), low, high, spread, cells[0].n)
        joined.cut[column] = max(line.cut.get(column, 0) for line in lines)
        if digests:
            joined.digests[column] = digests.pop()
    for part in first.subsets:
        several = tuple(line.subsets[part] for line in lines if part in line.subsets)
        if len(several) == runs:
            joined.subsets[part] = _joined_part(several, column_metric(first, part[0]))
    return joined, tuple(marks)


def clipped(low: float | None, high: float | None, metric: Metric) -> tuple[float | None, float | None]:
    """Return the interval, clipped to the range of the metric: Student's t with three seeds may reach beyond a recall of
    100."""
    if low is None or high is None:
        return low, high
    return max(low, metric.range[0]), min(high, metric.range[1])


@cache
def _student(runs: int) -> float:
    """Return the 97.5 % quantile of Student's t for `runs` seeds: a 95 % interval's half width in standard errors."""
    from scipy import stats

    return float(stats.t.ppf(0.975, runs - 1))


@lru_cache(maxsize=1024)  # all aggregations of a metric have the same subsets' scores
def _joined_part(cells: tuple[Cell, ...], metric: Metric) -> Cell:
    """Return the mean of a subset's score over seeds. No draws of subsets are kept, so the half widths of its interval
    combine that over items (the mean of the seeds' half widths, an upper bound for the mean's) and that over seeds
    (Student's t) as the root of the sum of squares."""
    values = np.array([cell.value for cell in cells])
    mean, spread = float(np.mean(values)), float(np.std(values, ddof=1))
    counts = {cell.n for cell in cells}
    count = counts.pop() if len(counts) == 1 else None
    ends = [(cell.value - cell.low, cell.high - cell.value) for cell in cells if not (cell.low is None or cell.high is None)]
    if len(ends) < len(cells):
        return Cell(mean, sd=spread, n=count)
    of_seeds = _student(len(cells)) * spread / np.sqrt(len(cells))
    below, above = (float(np.hypot(reach, of_seeds)) for reach in np.maximum(np.mean(ends, axis=0), 0.0))
    low, high = clipped(mean - below, mean + above, metric)
    return Cell(mean, low, high, spread, count)
