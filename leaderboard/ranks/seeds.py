"""Entries of several seeds: their runs' lines joined into one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache

import numpy as np

from stsbench.comparison.comparability import Setting
from stsbench.errors import StsbenchError
from stsbench.evaluation.measure import RESAMPLES, SEED
from stsbench.evaluation.schema import Metric
from stsbench.leaderboard.records.entries import LoadedEntry
from stsbench.metrics.bootstrap import interval

from .board import Cell
from .lines import Draws, ScoreLine
from .wording import metric_of


def merged(entry: LoadedEntry, runs: Sequence[Sequence[ScoreLine]]) -> list[tuple[ScoreLine, tuple[str, ...]]]:
    """One line a setting for an entry of several seeds, with what is odd about it: means, their sd, intervals.

    `draws` of a joined line are those of the seeds' mean over the items alone; `seeds` holds the seeds' scores in the order
    of the runs. A cell's interval adds to the draws a normal deviate of the mean's standard error over seeds, so large
    that its 95 % range is Student's: with three seeds a standard error is hardly known. A column that one seed lacks is
    left empty.
    """
    if len(runs) == 1:
        return [(line, ()) for line in runs[0]]
    from scipy import stats

    by_setting: dict[tuple[Setting, bool, str], list[ScoreLine]] = {}
    for lines in runs:
        for line in lines:
            by_setting.setdefault(line.key, []).append(line)
    rng = np.random.default_rng([SEED, *entry.id.encode()])  # an entry's seeds have nothing to do with another's
    wider = _student(len(runs)) / stats.norm.ppf(0.975)
    deviate = rng.standard_normal(RESAMPLES) * wider / np.sqrt(len(runs))
    joined = [_joined(entry, group, len(runs), deviate) for group in by_setting.values()]
    return [(line, marks) for line, marks in joined if line.cells]


def _joined(entry: LoadedEntry, lines: Sequence[ScoreLine], runs: int, deviate: Draws) -> tuple[ScoreLine, tuple[str, ...]]:
    first = lines[0]
    joined = ScoreLine(first.setting, first.protocol, sample=first.sample, known=first.known, part=first.part,
                       names=first.names)
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
            # where all seeds and resamples score the same, both ends are that score: the seeds say how sure it is
            low, high = interval(drawn) or ((float(drawn[0]),) * 2 if np.ptp(drawn) == 0 else (None, None))
            low, high = clipped(low, high, metric_of(first, column))
        joined.cells[column] = Cell(float(np.mean(values)), low, high, spread, cells[0].n)
        joined.cut[column] = max(line.cut.get(column, 0) for line in lines)
        if digests:
            joined.digests[column] = digests.pop()
    for part in first.subsets:
        several = tuple(line.subsets[part] for line in lines if part in line.subsets)
        if len(several) == runs:
            joined.subsets[part] = _joined_part(several, Metric() if first.protocol.metrics_across else metric_of(first, ""))
    return joined, tuple(marks)


def clipped(low: float | None, high: float | None, metric: Metric) -> tuple[float | None, float | None]:
    """The interval within what a metric can be: Student's range of three seeds passes a recall of 100 where it is near."""
    if low is None or high is None:
        return low, high
    return max(low, metric.range[0]), min(high, metric.range[1])


@cache
def _student(runs: int) -> float:
    """How many standard errors Student's 95 % interval of so many seeds reaches to either side."""
    from scipy import stats

    return float(stats.t.ppf(0.975, runs - 1))


@lru_cache(maxsize=1024)  # a metric's aggregations have the same parts
def _joined_part(cells: tuple[Cell, ...], metric: Metric) -> Cell:
    """The mean of a task's part over seeds. No draws of parts are kept, so its interval is put together from those of the
    seeds: the items' reach is the mean of theirs, which that of the mean cannot exceed, and the seeds' is Student's."""
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
