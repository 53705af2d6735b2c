"""What a comparison holds: the tasks of one setting, each with two scores and how sure their difference is."""

from __future__ import annotations

from dataclasses import dataclass

from stsbench.comparison.comparability import Setting
from stsbench.evaluation.protocol import load_protocol
from stsbench.evaluation.records import Record
from stsbench.evaluation.schema import Metric
from stsbench.metrics.paired import Difference
from stsbench.metrics.seeds import Spread
from stsbench.wording import counted


@dataclass(frozen=True)
class Compared:
    """One task, or their average: the scores a and b, a less b, and p after Holm's correction over the table's tasks.

    spread: what makes the difference uncertain, None where there is no test.
    """

    task: str
    subset: str | None
    n: int
    a: float
    b: float
    difference: Difference
    corrected: float | None = None
    spread: Spread | None = None

    @property
    def name(self) -> str:
        """The task, with the subset where it is of one."""
        return f"{self.task}, {self.subset}" if self.subset else self.task


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

    @property
    def metric(self) -> Metric:
        """What is compared, as its protocol declares it."""
        return load_protocol(self.setting.protocol).metric(self.setting.metric)

    @property
    def noun(self) -> str:
        """What its rows are: "task" or "subset"."""
        return "subset" if all(row.subset for row in self.rows) else "task"

    @property
    def named(self) -> list[tuple[str, Compared]]:
        """Every row with its name, the average last."""
        return [*((row.name, row) for row in self.rows), *([("Avg-full", self.average)] if self.average else [])]

    def lines(self) -> list[list[str]]:
        """Its cells as text, the header first, some of it in two lines; the average last."""
        digits = self.metric.digits
        corrected = f"p, corrected\nfor {counted(len(self.rows), self.noun)}"
        cells = [["task", "n", "A", "B", "A - B", "95 % interval\nof A - B", "p", corrected]]
        for name, row in self.named:
            gap, bounds = row.difference, ""
            if gap.low is not None and gap.high is not None:
                bounds = f"{gap.low:z.{digits}f} to {gap.high:z.{digits}f}"
            numbers = [f"{row.a:.{digits}f}", f"{row.b:.{digits}f}", f"{gap.value:+z.{digits}f}" if gap.value else "0"]
            cells.append([name, str(row.n), *numbers, bounds, _p(gap.p), _p(row.corrected)])
        return cells


def _p(p: float | None) -> str:
    return "" if p is None else f"{p:.4f}" if p >= 0.0001 else "<0.0001"
