"""A margin of practical equality: which scores it applies to, and what a table says of it."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

from stsbench.comparison.comparability import Setting
from stsbench.comparison.differences import Compared, ComparisonTable
from stsbench.config import shown
from stsbench.errors import StsbenchError
from stsbench.evaluation.protocol import load_protocol
from stsbench.evaluation.schema import Metric
from stsbench.metrics.inference.equivalence import Verdict
from stsbench.wording import counted

_ORDER: tuple[Verdict, ...] = ("practically equal", "different, yet within", "different", "undecided")


class Margins:
    """The margin of each table. Points of accuracy and of correlation are one unit; that of another score is its own, so a
    margin never stands for two of those, nor for one beside points."""

    def __init__(self, margin: float | None) -> None:
        """Raises StsbenchError unless it is None or a finite number above 0."""
        if margin is not None and (isinstance(margin, bool) or not isinstance(margin, int | float) or not isfinite(margin)
                                   or margin <= 0):
            raise StsbenchError(f"--margin {shown(margin)}: not a finite number above 0, in points or in the scores' unit")
        self._margin = margin
        self._points = True

    def check(self, settings: Sequence[Setting]) -> None:
        """Find the margin's unit among the tables'. Raises StsbenchError where none is in points and several are left."""
        metrics = {(setting.protocol, setting.metric) for setting in settings}
        self._points = any(_metric(setting).scale == 100 for setting in settings)
        if self._margin is not None and not self._points and len(metrics) > 1:
            names = ", ".join(sorted(name for _, name in metrics))
            raise StsbenchError(f"--margin: none of these scores is in points, and each has a unit of its own ({names}): "
                                "choose one with --metric or --protocol")

    def of(self, setting: Setting) -> float | None:
        """That of a table's scores; None where there is none."""
        return None if self.why_not(setting) else self._margin

    def why_not(self, setting: Setting) -> str:
        """Why a table has no margin though one was named, or ""."""
        if self._margin is None or not self._points or _metric(setting).scale == 100:
            return ""
        return f"The margin is in points: {setting.metric} is not, and is not tested with it."


def _metric(setting: Setting) -> Metric:
    return load_protocol(setting.protocol).metric(setting.metric)


def practically(table: ComparisonTable) -> str:
    """'Practically equal on average within 0.5 points: 90 % interval -0.20 to 0.30.', then the tasks; "" with no margin."""
    rows = [row for row in table.rows if row.verdict]
    if table.margin is None or not rows:
        return ""
    if len(table.rows) == 1:
        return _one(table, rows[0], f"on {rows[0].name}") + "."
    start = f"{_one(table, table.average, 'on average')}. " if table.average and table.average.verdict else ""
    named = {verdict: [row.name for row in rows if row.verdict == verdict] for verdict in _ORDER}
    words = [f"{verdict} on {_listed(names)}" for verdict, names in named.items() if names]
    after = f"after correcting for {counted(len(rows), 'comparison')}"
    return f"{start}{table.noun.capitalize()} by {table.noun}, {after}: {'; '.join(words)}."


def _one(table: ComparisonTable, row: Compared, where: str) -> str:
    test, digits, margin = row.equivalence, table.metric.digits, _size(table)
    assert test is not None
    bounds = f"{test.low:z.{digits}f} to {test.high:z.{digits}f}"
    if row.verdict == "practically equal":
        return f"Practically equal {where} within {margin}: 90 % interval {bounds}"
    if row.verdict == "different, yet within":
        return f"Different {where}, yet within {margin}: 90 % interval {bounds}"
    start = "Different" if row.verdict == "different" else "Undecided"
    return f"{start} {where}: the 90 % interval, {bounds}, is not inside the margin of {margin}"


def _size(table: ComparisonTable) -> str:
    unit = "" if table.metric.scale != 100 else " point" if table.margin == 1 else " points"
    return f"{table.margin:g}{unit}"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def margin_json(row: Compared) -> dict[str, Any]:
    """What a row says of its margin, as --json writes it; {} without a margin."""
    if (test := row.equivalence) is None:
        return {}
    return {"equivalence": {"margin": test.margin, "low": test.low, "high": test.high, "p_low": test.p_low,
                            "p_high": test.p_high, "p": test.p, "p_holm": row.equivalence_corrected,
                            "verdict": row.verdict}}


def margin_columns(row: Compared) -> dict[str, Any]:
    """The same as the columns of a table."""
    test = row.equivalence
    return {"margin": test and test.margin, "low_90": test and test.low, "high_90": test and test.high,
            "p_low": test and test.p_low, "p_high": test and test.p_high, "p_equivalence": test and test.p,
            "p_equivalence_holm": row.equivalence_corrected, "verdict": row.verdict}
