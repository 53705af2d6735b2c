"""Power analysis: the difference that a number of pairs can show, and the number of pairs that a difference needs.

`field_noise.json`, made by `benchmarks/field_noise.py` from the leaderboard's records, holds the noise of differences.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.resources import files
from math import ceil, inf
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np

from stsbench.comparison.compare import compare
from stsbench.comparison.shared import RESAMPLES, Reasons, chooser, common_rows, draws, loaded, verified
from stsbench.config import shorten
from stsbench.display.table import Column, Document, Table
from stsbench.display.tabular import Tabular, arrow_table
from stsbench.errors import StsbenchError
from stsbench.evaluation.plan import split_names
from stsbench.evaluation.run_file import run_folders
from stsbench.metrics.power import POWER, detectable_difference, difference_power
from stsbench.options import takes
from stsbench.registry import did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa


_CAUTIOUS, _ROUGH = 150, 30  # pairs below which the actual power differs from the computed: docs/findings/statistics.md
_FEWEST = 10  # pairs below which a difference can hardly be tested
_LARGEST = 200.0  # points: the whole range of a correlation
_SMALLEST = 0.05  # points: a smaller difference needs millions of pairs, so a correlation was probably meant
_Noise = tuple[str, str, int, float, float | None, float | None]  # protocol, task, n, unit error; its quartiles over rivals
FILE = "field_noise.json"
ALL = "all sets"  # name of the noise over the pairs of rows of all sets together
METRICS = ("spearman", "pearson")


@dataclass(frozen=True)
class TaskPower:
    """The answer for one task. n: number of pairs from which the noise is estimated; unit_error: standard error of the
    paired difference times the square root of n, in points; value: the answer, which is a difference in points, a number of
    pairs, or, if both are given, the power in per cent.

    low, high: quartiles of unit_error over pairs of the leaderboard's rows, for close and for unlike encoders; None for two
    runs, whose own noise is known. low_answer, high_answer: the answers with these.
    """

    protocol: str
    task: str
    n: int
    unit_error: float
    value: float
    low: float | None = None
    high: float | None = None
    low_answer: float | None = None
    high_answer: float | None = None


@dataclass(frozen=True)
class Power(Tabular):
    """The answer for each task: a difference for `pairs`, pairs for a `difference`, and for both the power in per cent.

    basis: the source of the noise in words; left_out: tasks of the runs without an answer, with the reason.
    """

    pairs: int | None
    difference: float | None
    metric: str
    tasks: tuple[TaskPower, ...]
    basis: str
    left_out: Reasons = field(default_factory=list)

    def to_arrow(self) -> pa.Table:
        """Return a row for each task: the question, the answer, and the noise that it was computed from."""
        return arrow_table([
            {"pairs": self.pairs, "difference": self.difference, "metric": self.metric, **asdict(task)}
            for task in self.tasks
        ])

    def as_json(self) -> dict[str, Any]:
        """Return the content of --json as plain data."""
        return {"pairs": self.pairs, "difference": self.difference, "metric": self.metric, "level": 0.05,
                "power": None if self.pairs and self.difference else POWER,  # of both it is the answer, in per cent
                "tasks": [asdict(task) for task in self.tasks], "basis": self.basis,
                "left_out": [dict(zip(("protocol", "task", "reason"), item, strict=True)) for item in self.left_out]}

    def document(self) -> Document:
        """Return a table with a row for each task, and the assumptions below it."""
        return Document([Table(self.title, self._columns())], below=self.sentences())

    @property
    def title(self) -> str:
        """Return the table's title, which states the question."""
        if self.pairs is None:
            return f"{self.metric}: the pairs that detect a difference of {self._points} in 80 % of experiments"
        if self.difference is None:
            return f"{self.metric}: the difference, in points, that {self.pairs:,} pairs detect in 80 % of experiments"
        return f"{self.metric}: in how many of 100 experiments {self.pairs:,} pairs detect a difference of {self._points}"

    @property
    def _points(self) -> str:
        return f"{self.difference:g} {'point' if self.difference == 1 else 'points'}"

    def _columns(self) -> list[Column]:
        names = [self._task_name(task) for task in self.tasks]
        columns = [Column("noise of", names), Column("n", [task.n for task in self.tasks])]
        answers: dict[str, list[float | None]] = {
            "close encoders": [task.low_answer for task in self.tasks],
            "median": [task.value for task in self.tasks], "unlike encoders": [task.high_answer for task in self.tasks],
        }
        if all(task.low is None for task in self.tasks):
            what = "pairs" if self.pairs is None else "difference" if self.difference is None else "detected"
            answers = {what: answers["median"]}
        return [*columns, *(Column(name, list(map(self._answer_text, values))) for name, values in answers.items())]

    def _task_name(self, task: TaskPower) -> str:
        """Return the task's name, after its protocol's where there are several protocols."""
        return f"{task.protocol} {task.task}" if len({one.protocol for one in self.tasks}) > 1 else task.task

    def _answer_text(self, answer: float | None) -> str:
        if answer is None:
            return ""
        return f"{answer:.1f}" if self.difference is None else f"{answer:,.0f}"

    def sentences(self) -> list[str]:
        """Return the assumptions behind the figures, cautions about small numbers of pairs, and the conclusion."""
        lines = [self.basis, "Test at the 5 % level, two-sided, without a correction for several tasks; noise shrinks with "
                             "the square root of the number of pairs."]
        if self.difference is not None and self.difference < 1:
            lines.append(f"{self.difference:g} points are {self.difference / 100:g} of a correlation: if you mean "
                         f"{self.difference:g} of a correlation, write {100 * self.difference:g}.")
        fewest = self.pairs if self.pairs is not None else min(task.low_answer or task.value for task in self.tasks)
        if fewest < _ROUGH:
            lines.append(f"Below {_ROUGH} pairs the figures are rough: in simulations such differences were significant in "
                         "65 to 87 %.")
        elif fewest < _CAUTIOUS:
            lines.append(f"Below {_CAUTIOUS} pairs the figures are cautious: in simulations such differences were "
                         "significant in 81 to 87 %.")
        reasons: dict[str, list[str]] = {}
        for _, task, reason in self.left_out:
            reasons.setdefault(reason, []).append(task)
        omissions = [f"left out: {', '.join(dict.fromkeys(names))}: {reason}" for reason, names in reasons.items()]
        return [*lines, *omissions, self._conclusion()]

    def _conclusion(self) -> str:
        """Return the answer over all tasks in one sentence."""
        tasks = [task for task in self.tasks if task.task == ALL] or self.tasks
        values = sorted(filter(None, (value for task in tasks for value in (task.low_answer, task.value, task.high_answer))))
        span = " to ".join(dict.fromkeys([self._answer_text(values[0]), self._answer_text(values[-1])]))
        if self.pairs is None:
            return f"A difference of {self._points} needs {span} pairs."
        if self.difference is None:
            return f"{self.pairs:,} pairs detect a difference of {span} points in 80 % of experiments."
        return f"{self.pairs:,} pairs detect a difference of {self._points} in {span} of 100 experiments."


@takes(renamed={"n": "pairs", "delta": "difference"})
def power(
    pairs: int | None = None, difference: float | None = None, *, runs: Any = None,
    protocol: str | Sequence[str] | None = None, metric: str = "spearman", resamples: int = RESAMPLES, seed: int = 0,
) -> Power:
    """Return the difference between two encoders that `pairs` pairs can show, the number of pairs that a `difference` (in
    points) needs, or, for both, how often so many pairs detect it.

    A true difference is detectable if it is significant in 80 % of experiments, by a two-sided test at the 5 % level. The
    noise of a paired difference is estimated from two runs by their paired standard error; from one run by assuming that it
    shares as much noise with its rival as the leaderboard's rows do with each other; without runs from the leaderboard's
    rows, for each STS set. runs: run folders, or what `evaluate` returned; protocol: of the runs, as for `compare`; metric:
    spearman or pearson; resamples, seed: of the bootstrap. Raises StsbenchError if neither pairs nor difference is given,
    for runs of several seeds, and where the runs have no such score.

    >>> import stsbench
    >>> answer = stsbench.power(200)
    >>> [(task.task, round(task.value, 1)) for task in answer.tasks if task.task == "all sets"]
    [('all sets', 8.2)]
    >>> stsbench.power(difference=1).tasks[-1].value
    13397
    """
    if pairs is None and difference is None:
        raise StsbenchError("power: name pairs (--pairs N), a difference (--difference D), or both")
    if pairs is not None and not (isinstance(pairs, Integral) and pairs >= _FEWEST):
        raise StsbenchError(f"pairs={shorten(pairs)}: must be a whole number, {_FEWEST} or more: fewer show no difference")
    if difference is not None and not (isinstance(difference, Real) and 0 < difference <= _LARGEST):
        raise StsbenchError(f"difference={shorten(difference)}: must be above 0 and at most {_LARGEST:g} points")
    if difference is not None and difference < _SMALLEST:
        raise StsbenchError(f"a difference of {difference:g} is in points, of scores x 100, and hardly shown by any number "
                            f"of pairs: for {difference:g} of a correlation write {100 * difference:g}")
    if not isinstance(resamples, Integral) or resamples < 2:
        raise StsbenchError(f"resamples={shorten(resamples)}: must be a whole number, 2 or more")
    if metric not in METRICS:
        raise StsbenchError(f"metric={shorten(metric)}: must be {' or '.join(METRICS)}{did_you_mean(str(metric), METRICS)}")
    sides = [] if runs is None else list(runs) if isinstance(runs, list | tuple) else [runs]
    if len(sides) > 2:
        raise StsbenchError(f"power: {len(sides)} runs: name two, one or none")
    left_out: Reasons = []
    if len(sides) == 2:
        noise = _of_two(sides, protocol, metric, resamples, seed, left_out)
        basis = "From the paired noise of the two runs, over other items of the same kind."
    elif sides:
        noise = _side_noise(sides[0], protocol, metric, resamples, seed, left_out)
        basis = ("From the run's noise. Its rival is taken to share as much of it as two of the leaderboard's rows do: "
                 f"{_closeness(metric)}. Name both runs for the noise of these two encoders.")
    else:
        name = str(provenance()["protocol"])
        noise = [(name, one.name, one.n, one.unit_error.median, one.unit_error.low, one.unit_error.high)
                 for one in field_noise(metric).values()]
        rows = len(provenance()["rows"])
        basis = (f"From the paired noise of all {rows * (rows - 1) // 2} pairs of {rows} measured rows of the leaderboard, "
                 "for pairs that share no sentence: the median, and the quartiles of close and of unlike encoders. Name two "
                 "runs for the noise of these two encoders.")
    tasks = tuple(_answered(one, pairs, difference) for one in noise)
    return Power(pairs, difference, metric, tasks, basis, left_out)


def _closeness(metric: str) -> str:
    """Return text such as 'the difference has 0.77 times the run's standard error (quartiles 0.62 and 0.90; ...)'."""
    ratio = field_noise(metric)[ALL].ratio
    return (f"the difference has {ratio.median:.2f} times the run's standard error (quartiles {ratio.low:.2f} and "
            f"{ratio.high:.2f}; of the set itself where it is one of the seven)")


def _answered(noise: _Noise, pairs: int | None, difference: float | None) -> TaskPower:
    def answer(unit_error: float | None) -> float | None:
        if unit_error is None:
            return None
        if pairs is not None and difference is not None:
            return 100 * difference_power(difference, scale_error(unit_error, 1, pairs))
        if pairs is not None:
            return detectable_difference(scale_error(unit_error, 1, pairs))
        return max(items_needed(difference or 0.0, unit_error, 1), _FEWEST)

    protocol, task, n, unit_error, low, high = noise
    return TaskPower(protocol, task, n, unit_error, answer(unit_error) or 0.0, low, high, answer(low), answer(high))


def _of_two(
    sides: Sequence[Any], protocol: str | Sequence[str] | None, metric: str, resamples: int, seed: int, left_out: Reasons
) -> list[_Noise]:
    for side in sides:
        _single(side)
    made = compare(*sides, protocol=protocol, metric=metric, resamples=resamples, seed=seed)
    left_out += [*made.left_out, *made.failures]
    noise: list[_Noise] = []
    for table in made.tables:
        for row in table.rows:
            if row.difference.error is None:
                reason = table.no_test or "the difference is the same in every resample"
                left_out.append((table.setting.protocol, row.name, reason))
            else:
                error = scale_error(row.difference.error, row.n, 1)
                noise.append((table.setting.protocol, row.name, row.n, error, None, None))
    return _some(noise, sides, metric, left_out)


def _side_noise(
    side: Any, protocol: str | Sequence[str] | None, metric: str, resamples: int, seed: int, left_out: Reasons
) -> list[_Noise]:
    chosen, notes = chooser(split_names(protocol)), _Notes()
    noise: list[_Noise] = []
    for item in verified("the run", loaded(_single(side)), chosen, notes).values():
        form = chosen(item)
        for row in common_rows([[item]], form, metric) if form else []:
            drawn = draws([[item]], row, resamples, seed)
            finite = drawn[0][np.isfinite(drawn[0])] if drawn else np.zeros(0)
            name = f"{item.task}, {row.subset}" if row.subset else item.task
            if len(finite) < 0.95 * resamples or not (error := float(finite.std(ddof=1))):
                left_out.append((item.record.protocol.label, name, "its score has no bootstrap noise"))
                continue
            of_field, name_of = field_noise(metric), item.record.protocol.name
            of_set = name_of == provenance()["protocol"] and item.record.data.known and item.task in of_field
            ratio = of_field[item.task if of_set else ALL].ratio
            unit = scale_error(error, row.n, 1)
            noise.append((name_of, name, row.n, unit * ratio.median, unit * ratio.low, unit * ratio.high))
    left_out += [*notes.left_out, *notes.failures]
    return _some(noise, [side], metric, left_out)


@dataclass
class _Notes:
    left_out: Reasons = field(default_factory=list)
    failures: Reasons = field(default_factory=list)


def _single(side: Any) -> Any:
    folders = run_folders(side)
    if len(folders) > 1:
        why = "what seeds differ by does not shrink with more pairs"
        raise StsbenchError(f"{side} holds {len(folders)} runs: name one; {why}")
    return folders[0]


def _some(noise: list[_Noise], sides: Sequence[Any], metric: str, left_out: Reasons) -> list[_Noise]:
    if not noise:
        why = f" ({left_out[0][2]})" if left_out else ""
        names = " and ".join(str(getattr(side, "folder", side)) for side in sides)
        raise StsbenchError(f"{names}: no {metric} with noise{why}")
    return noise


def scale_error(error: float, n: int, items: int) -> float:
    """Return the standard error over `items` items, given the standard error `error` over n items.

    >>> from stsbench.extensions.statistics.power import scale_error
    >>> scale_error(1.5, n=400, items=100)
    3.0
    """
    if min(n, items) < 1:
        raise ValueError(f"the number of items must be 1 or more, not {min(n, items)}")
    return float(error * (n / items) ** 0.5)


def items_needed(difference: float, error: float, n: int, power: float = POWER) -> int:
    """Return the fewest items for which a true `difference` is significant with probability `power`, given the standard
    error `error` over n items.

    Raises ValueError for a difference of 0, which no number of items can show.

    >>> from stsbench.extensions.statistics.power import items_needed
    >>> items_needed(1.0, error=1.2, n=1379)
    15586
    """
    if not difference:
        raise ValueError("no number of items shows a difference of 0")
    return max(1, ceil(n * (detectable_difference(error, inf, power) / difference) ** 2 - 1e-9))


@dataclass(frozen=True)
class Quartiles:
    """The lower quartile, the median and the upper quartile of a value over all pairs of rows."""

    low: float
    median: float
    high: float


@dataclass(frozen=True)
class FieldNoise:
    """The noise of differences between the leaderboard's rows, over all pairs of rows, on one STS set or `ALL`.

    unit_error: the standard error of the paired difference times the square root of the number of pairs, in points: the
    standard error for a single pair. ratio: that standard error divided by the root mean square of the two scores' standard
    errors: 1.41 for independent errors, 1 for a correlation of .5, 0 for one encoder twice. n: number of pairs of the set.
    """

    name: str
    n: int
    unit_error: Quartiles
    ratio: Quartiles


@cache
def field_noise(metric: str = "spearman") -> dict[str, FieldNoise]:
    """Return set -> its noise, `ALL` last, for "spearman" or "pearson". Raises KeyError for another metric.

    >>> from stsbench.extensions.statistics.power import field_noise
    >>> [name for name in field_noise()]
    ['STS12', 'STS13', 'STS14', 'STS15', 'STS16', 'STS-B', 'SICK-R', 'all sets']
    """
    return {name: FieldNoise(name, one["n"], *(Quartiles(*one[metric][key]) for key in ("unit_error", "ratio")))
            for name, one in provenance()["sets"].items()}


@cache
def provenance() -> dict[str, Any]:
    """Return the content of the file: its origin (`made_by`, `protocol`, `rows`, `resamples`, `seed`) and the figures."""
    stored: dict[str, Any] = json.loads((files(__package__) / FILE).read_text("utf-8"))
    return stored
