"""Tables of a comparison: the tasks of one setting, each with two scores and the test of their difference; and margins of
practical equality: which scores they apply to, and their wording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from stsbench.comparison.comparability import Setting
from stsbench.config import shorten
from stsbench.display.table import Column, Estimate
from stsbench.errors import StsbenchError
from stsbench.evaluation.protocol import load_protocol
from stsbench.evaluation.records import Record
from stsbench.evaluation.schema import Metric
from stsbench.metrics.aggregation import OverTasks, difference_over_tasks
from stsbench.metrics.equivalence import Equivalence, Verdict, verdict
from stsbench.metrics.noise import Spread
from stsbench.metrics.paired import LEVEL, Difference
from stsbench.metrics.power import detectable_difference
from stsbench.wording import counted, joined

_ORDER: tuple[Verdict, ...] = ("practically equal", "different, yet within", "different", "undecided")


@dataclass(frozen=True)
class Compared:
    """A row of a comparison, of a task or of the average: the scores a and b, the difference a less b, and corrected, p
    after Holm's correction over the table's tasks.

    equivalence: the test of a margin, where there is one; equivalence_corrected: its p, corrected in the same way. spread:
    the sources of the difference's uncertainty, None where there is no test."""

    task: str
    subset: str | None
    n: int
    a: float
    b: float
    difference: Difference
    corrected: float | None = None
    equivalence: Equivalence | None = None
    equivalence_corrected: float | None = None

    @property
    def verdict(self) -> Verdict | None:
        """Return the joint verdict of both tests, after the corrections for a task; None without a margin or a test."""
        if self.equivalence is None or self.difference.p is None:
            return None
        p = self.difference.p if self.corrected is None else self.corrected
        p_equal = self.equivalence.p if self.equivalence_corrected is None else self.equivalence_corrected
        return verdict(p < 1 - LEVEL, p_equal < 1 - LEVEL)
    spread: Spread | None = None

    @property
    def name(self) -> str:
        """Return the task, followed by the subset if the row is of one."""
        return f"{self.task}, {self.subset}" if self.subset else self.task

    @property
    def detectable(self) -> float | None:
        """Return the minimum detectable difference, in the scores' unit: the true one that would be significant, at the 5
        % level and before any correction, in 80 % of such experiments; None without a test, or without noise."""
        gap = self.difference
        return None if gap.error is None else detectable_difference(gap.error, gap.df)


@dataclass(frozen=True)
class ComparisonTable:
    """The compared tasks of one setting. average: None unless both runs have all the tasks that the protocol averages.

    records: the first records of A and B, which name the setting; no_test: why there are no intervals and tests, or "";
    aside: whether its tasks are those that the protocol's average leaves out, which have their own table; margin: of the
    test of equivalence, in the unit of the scores; no_margin: why a named margin was not tested, or "".
    """

    setting: Setting
    records: tuple[Record, Record]
    rows: tuple[Compared, ...]
    average: Compared | None
    no_test: str
    aside: bool
    unknown: tuple[str, ...]  # sets that differ from the catalog
    margin: float | None = None
    no_margin: str = ""
    small_parts: str = ""  # a sentence on averaged parts with too few items to rank by
    measurements: tuple[tuple[Record, ...], ...] = ()  # the records of every run and task, for A and for B

    @property
    def metric(self) -> Metric:
        """Return the declaration of the compared metric."""
        return load_protocol(self.setting.protocol).metric(self.setting.metric)

    @property
    def noun(self) -> str:
        """Return the word for its rows: "subset" where all are of subsets, else "task"."""
        return "subset" if all(row.subset for row in self.rows) else "task"

    @property
    def over_tasks(self) -> OverTasks | None:
        """Return the average's difference, with the tasks taken as a sample; None without an average."""
        if self.average is None:
            return None
        a, b = np.array([(row.a, row.b) for row in self.rows if row.subset is None]).T
        return difference_over_tasks(a, b)

    @property
    def named(self) -> list[tuple[str, Compared]]:
        """Return every row with its name, the average last as "Avg-full"."""
        return [*((row.name, row) for row in self.rows), *([("Avg-full", self.average)] if self.average else [])]

    def columns(self) -> list[Column]:
        """Return the columns of the displayed table, the average being the last row."""
        names, rows = zip(*self.named, strict=True)
        digits, gaps = self.metric.digits, [row.difference for row in rows]
        columns = [
            Column("task", names), Column("n", [row.n for row in rows], detail=2),
            Column("A", [row.a for row in rows], digits), Column("B", [row.b for row in rows], digits),
            Column("A - B", [Estimate(gap.value, gap.low, gap.high) for gap in gaps], digits, signed=True),
            Column("p", [_p(gap.p) for gap in gaps]),
        ]
        if len(self.rows) > 1:
            corrected = [_p(row.corrected) for row in rows]
            columns.append(Column(f"p, corrected for {counted(len(self.rows), self.noun)}", corrected))
        columns.append(Column("detectable at 80 % power", [row.detectable for row in rows], digits, detail=2))
        if self.margin is not None:
            tests = [row.equivalence for row in rows]
            columns += [
                Column("90 % interval of A - B", [test and Estimate(None, test.low, test.high) for test in tests], digits,
                       detail=1),
                Column(f"p, within {self.margin:g}, corrected", [_p(test and row.equivalence_corrected)
                                                                 for row, test in zip(rows, tests, strict=True)], detail=1),
                Column("verdict", [row.verdict if test else None for row, test in zip(rows, tests, strict=True)], detail=1),
            ]
        return columns


def _p(p: float | None) -> str:
    return "" if p is None else f"{p:.4f}" if p >= 0.0001 else "<0.0001"


class Margins:
    """Margins of practical equality by table. Accuracies and correlations share the unit points; other scores have units of
    their own, so that a margin applies either to all scores in points or to one other metric."""

    def __init__(self, margin: float | None) -> None:
        """Raise StsbenchError unless `margin` is None or a finite number above 0."""
        if margin is not None and (isinstance(margin, bool) or not isinstance(margin, int | float) or not isfinite(margin)
                                   or margin <= 0):
            raise StsbenchError(f"--margin {shorten(margin)}: not a finite number above 0, in points or in the scores' unit")
        self._margin = margin
        self._points = True

    def check(self, settings: Sequence[Setting]) -> None:
        """Determine the margin's unit. Raises StsbenchError for tables of several metrics of which none is in points."""
        metrics = {(setting.protocol, setting.metric) for setting in settings}
        self._points = any(_metric(setting).scale == 100 for setting in settings)
        if self._margin is not None and not self._points and len(metrics) > 1:
            names = ", ".join(sorted(name for _, name in metrics))
            raise StsbenchError(f"--margin: none of these scores is in points, and each has a unit of its own ({names}): "
                                "choose one with --metric or --protocol")

    def absolute(self, setting: Setting) -> float | None:
        """Return the margin for the scores of a table, in their unit; None where it does not apply."""
        return None if self.why_not(setting) else self._margin

    def why_not(self, setting: Setting) -> str:
        """Return why a named margin does not apply to a table; "" where it does, or none was named."""
        if self._margin is None or not self._points or _metric(setting).scale == 100:
            return ""
        return f"The margin is in points: {setting.metric} is not, and is not tested with it."


def _metric(setting: Setting) -> Metric:
    return load_protocol(setting.protocol).metric(setting.metric)


def practically(table: ComparisonTable) -> str:
    """Return the verdicts on practical equality: 'Practically equal on average within 0.5 points: 90 % interval -0.20 to
    0.30.', then those of the tasks; "" without a margin."""
    rows = [row for row in table.rows if row.verdict]
    if table.margin is None or not rows:
        return ""
    if len(table.rows) == 1:
        return _sentence(table, rows[0], f"on {rows[0].name}") + "."
    start = f"{_sentence(table, table.average, 'on average')}. " if table.average and table.average.verdict else ""
    named = {verdict: [row.name for row in rows if row.verdict == verdict] for verdict in _ORDER}
    words = [f"{verdict} on {joined(names)}" for verdict, names in named.items() if names]
    after = f"after correcting for {counted(len(rows), 'comparison')}"
    return f"{start}{table.noun.capitalize()} by {table.noun}, {after}: {'; '.join(words)}."


def _sentence(table: ComparisonTable, row: Compared, where: str) -> str:
    test, digits = row.equivalence, table.metric.digits
    margin = f"{table.margin:g}{'' if table.metric.scale != 100 else ' point' if table.margin == 1 else ' points'}"
    assert test is not None
    bounds = f"{test.low:z.{digits}f} to {test.high:z.{digits}f}"
    if row.verdict == "practically equal":
        return f"Practically equal {where} within {margin}: 90 % interval {bounds}"
    if row.verdict == "different, yet within":
        return f"Different {where}, yet within {margin}: 90 % interval {bounds}"
    start = "Different" if row.verdict == "different" else "Undecided"
    return f"{start} {where}: the 90 % interval, {bounds}, is not inside the margin of {margin}"


def margin_json(row: Compared) -> dict[str, Any]:
    """Return the test of a row's margin as --json writes it; {} without a margin."""
    if (test := row.equivalence) is None:
        return {}
    return {"equivalence": {"margin": test.margin, "low": test.low, "high": test.high, "p_low": test.p_low,
                            "p_high": test.p_high, "p": test.p, "p_holm": row.equivalence_corrected,
                            "verdict": row.verdict}}


def margin_columns(row: Compared) -> dict[str, Any]:
    """Return the test of a row's margin as columns of the pyarrow table, None in each without a test."""
    test = row.equivalence
    return {"margin": test and test.margin, "low_90": test and test.low, "high_90": test and test.high,
            "p_low": test and test.p_low, "p_high": test and test.p_high, "p_equivalence": test and test.p,
            "p_equivalence_holm": row.equivalence_corrected, "verdict": row.verdict}
