"""What a comparison holds: the tasks of one setting, each with two scores and how sure their difference is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stsbench.comparison.comparability import Setting
from stsbench.display.table import Column, Estimate
from stsbench.evaluation.protocol import load_protocol
from stsbench.evaluation.records import Record
from stsbench.evaluation.schema import Metric
from stsbench.metrics.inference.equivalence import Equivalence, Verdict, verdict
from stsbench.metrics.inference.power import detectable_difference
from stsbench.metrics.inference.tasks import OverTasks, difference_over_tasks
from stsbench.metrics.paired import LEVEL, Difference
from stsbench.metrics.seeds import Spread
from stsbench.wording import counted


@dataclass(frozen=True)
class Compared:
    """One task, or their average: the scores a and b, a less b, and p after Holm's correction over the table's tasks.

    equivalence: the test of a margin, where one was named; equivalence_corrected: its p, corrected in the same way.
    spread: what makes the difference uncertain, None where there is no test.
    """

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
        """What both tests say together, of a task after the corrections; None without a margin or a test."""
        if self.equivalence is None or self.difference.p is None:
            return None
        p = self.difference.p if self.corrected is None else self.corrected
        p_equal = self.equivalence.p if self.equivalence_corrected is None else self.equivalence_corrected
        return verdict(p < 1 - LEVEL, p_equal < 1 - LEVEL)
    spread: Spread | None = None

    @property
    def name(self) -> str:
        """The task, with the subset where it is of one."""
        return f"{self.task}, {self.subset}" if self.subset else self.task

    @property
    def detectable(self) -> float | None:
        """The minimum detectable difference, in the scores' unit: the true one that would be significant, at the 5 % level
        and before any correction, in 80 % of such experiments; None without a test, or without noise."""
        gap = self.difference
        return None if gap.error is None else detectable_difference(gap.error, gap.df)


@dataclass(frozen=True)
class ComparisonTable:
    """One setting. average: where both runs have all the tasks that the protocol averages, else None.

    records: the two runs' first ones, which name it; no_test: why differences stand here without interval and p, or "";
    aside: of tasks that the protocol's average leaves out, which are a table of their own; margin: that equivalence was
    tested with, in the unit of the scores; no_margin: why it was not, where a margin was named.
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
    small_parts: str = ""  # a sentence on the parts of its averages that are too small to rank by
    measurements: tuple[tuple[Record, ...], ...] = ()  # of A and of B: the records of every run and task

    @property
    def metric(self) -> Metric:
        """What is compared, as its protocol declares it."""
        return load_protocol(self.setting.protocol).metric(self.setting.metric)

    @property
    def noun(self) -> str:
        """What its rows are: "task" or "subset"."""
        return "subset" if all(row.subset for row in self.rows) else "task"

    @property
    def over_tasks(self) -> OverTasks | None:
        """The average's difference where the tasks are a sample, too; None without an average."""
        if self.average is None:
            return None
        a, b = np.array([(row.a, row.b) for row in self.rows if row.subset is None]).T
        return difference_over_tasks(a, b)

    @property
    def named(self) -> list[tuple[str, Compared]]:
        """Every row with its name, the average last."""
        return [*((row.name, row) for row in self.rows), *([("Avg-full", self.average)] if self.average else [])]

    def columns(self) -> list[Column]:
        """Return the table's columns, the average last."""
        names, rows = zip(*self.named, strict=True)
        digits, gaps = self.metric.digits, [row.difference for row in rows]
        columns = [
            Column("task", names), Column("n", [row.n for row in rows], detail=2),
            Column("A", [row.a for row in rows], digits), Column("B", [row.b for row in rows], digits),
            Column("A - B", [Estimate(gap.value, gap.low, gap.high) for gap in gaps], digits, signed=True),
            Column("p", [_p(gap.p) for gap in gaps]),
            Column(f"p, corrected for {counted(len(self.rows), self.noun)}", [_p(row.corrected) for row in rows]),
            Column("detectable in 80 %", [row.detectable for row in rows], digits, detail=2),
        ]
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
