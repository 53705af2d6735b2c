"""A gate for continuous integration: whether a run is worse than a baseline by more than a margin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stsbench.comparison.compare import compare
from stsbench.comparison.comparison import Comparison
from stsbench.comparison.differences import Compared, ComparisonTable
from stsbench.comparison.shared import RESAMPLES
from stsbench.display.table import Column, Document, Estimate, Table
from stsbench.display.tabular import Tabular, arrow_table
from stsbench.errors import StsbenchError
from stsbench.evaluation.tables import encoders_in_words

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Check:
    """One score that is tested: a protocol's average, or a task where it has none. worse: it is significantly worse than the
    baseline's, and the loss is not significantly smaller than the margin."""

    table: ComparisonTable
    row: Compared

    @property
    def loss(self) -> tuple[float, ...]:
        """Return by how much the run is worse, followed by the ends of its interval if there is one."""
        gap, sign = self.row.difference, 1 if self.table.metric.lower else -1
        bounds = [] if gap.low is None or gap.high is None else sorted((sign * gap.low, sign * gap.high))
        return sign * gap.value, *bounds

    @property
    def worse(self) -> bool:
        return self.row.verdict == "different" and self.loss[0] > 0

    @property
    def name(self) -> str:
        return f"{self.table.records[0].protocol.label} {self.row.name}"


@dataclass(frozen=True, repr=False)
class Gate(Tabular):
    """The result of `gate`. passed: no check is worse; checks: all tested scores; untested: names of the other scores."""

    checks: tuple[Check, ...]
    untested: tuple[str, ...]
    margin: float
    comparison: Comparison

    @property
    def passed(self) -> bool:
        return not any(check.worse for check in self.checks)

    def __repr__(self) -> str:
        return f"<Gate: {self._conclusion()}>"

    def document(self) -> Document:
        """Return a table of the checks, with the conclusion below it."""
        rows = [check.row for check in self.checks]
        gaps = [row.difference for row in rows]
        table = Table("run against baseline", [
            Column("score", [check.name for check in self.checks]), Column("n", [row.n for row in rows]),
            Column("baseline", [row.b for row in rows]), Column("run", [row.a for row in rows]),
            Column("run - baseline", [Estimate(gap.value, gap.low, gap.high) for gap in gaps], signed=True),
            Column("verdict", ["worse" if check.worse else check.row.verdict for check in self.checks]),
        ])
        a, b = encoders_in_words(self.comparison.runs)
        return Document([table], [f"run: {a}", f"baseline: {b}"], [*self._cautions(), self._conclusion()])

    def to_arrow(self) -> pa.Table:
        """Return a row for each check."""
        return arrow_table([
            {"protocol": check.table.setting.protocol, "task": check.row.name, "n": check.row.n, "run": check.row.a,
             "baseline": check.row.b, "difference": check.row.difference.value, "low": check.row.difference.low,
             "high": check.row.difference.high, "verdict": check.row.verdict, "worse": check.worse} for check in self.checks
        ])

    def _cautions(self) -> list[str]:
        """Return lines on scores that were not compared or tested, and on checks that could miss a loss of the margin."""
        lines = self.comparison.omissions()
        lines += [f"Not tested, as no score of single items is stored: {', '.join(self.untested)}."] if self.untested else []
        blind = [f"{check.name} {check.row.detectable:.2f}" for check in self.checks
                 if check.row.detectable is not None and check.row.detectable > self.margin]
        return [*lines, f"Seen in 80 % of cases is a loss of so many points: {', '.join(blind)}."] if blind else lines

    def _conclusion(self) -> str:
        worse = [f"{check.name} by {loss:.2f} points (95 % interval {' to '.join(f'{end:.2f}' for end in ends)})"
                 for check in self.checks if check.worse for loss, *ends in [check.loss]]
        if worse:
            return f"failed: the run is worse than its baseline in {'; '.join(worse)}, not within {self.margin:g}."
        return f"passed: nothing shows that the run is worse than its baseline by {self.margin:g} points or more."


def gate(
    run: Any, baseline: Any, *, margin: float = 0.5, protocol: str | Sequence[str] | None = None, metric: str | None = None,
    resamples: int = RESAMPLES, seed: int = 0,
) -> Gate:
    """Return whether a run is not worse than its baseline. It fails where a score is significantly worse (5 % level,
    corrected over the tasks of a protocol without an average) and the loss is not significantly smaller than `margin` points
    (`metrics.equivalence`).

    All other arguments are as for `compare`. Raises StsbenchError where nothing can be compared or tested.

    >>> from stsbench import evaluate
    >>> from stsbench.extensions.statistics.gate import gate
    >>> runs = [evaluate(model, sample=True, tasks="STS-B", resamples=0) for model in ("lexical:token-set", "lexical:tfidf")]
    >>> gate(*runs, resamples=200).passed, gate(*reversed(runs), resamples=200).passed
    (False, True)
    """
    comparison = compare(run, baseline, protocols=protocol, metric=metric, resamples=resamples, seed=seed, margin=margin)
    checks = [Check(table, row) for table in comparison.tables if not table.aside and table.metric.better != "neither"
              for row in ([table.average] if table.average else table.rows)]
    tested = tuple(check for check in checks if check.row.verdict)
    if not tested:
        raise StsbenchError("; ".join(["gate: no score of the two runs can be tested", *comparison.omissions()]))
    return Gate(tested, tuple(check.name for check in checks if not check.row.verdict), margin, comparison)
