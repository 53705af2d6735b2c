"""What `compare` gives: the differences of two encoders, setting by setting, to look at and to go on with."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from stsbench.comparison.comparability import same_encoder
from stsbench.comparison.differences import Compared, ComparisonTable, margin_columns, margin_json
from stsbench.comparison.shared import Reasons
from stsbench.comparison.wording import limits, notes, pairing, sentence, short_title, shown_table, title
from stsbench.config import shorten
from stsbench.display.table import Document
from stsbench.display.tabular import Reported, Tabular, arrow_table
from stsbench.errors import StsbenchError
from stsbench.evaluation.records import Record
from stsbench.evaluation.tables import encoders_in_words
from stsbench.registry import did_you_mean, match_name
from stsbench.wording import counted

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes

SAME = "A and B name the same encoder"


@dataclass
class Comparison(Reported):
    """What two encoders share. left_out, failures: of what could not be compared.

    folders: the runs of A and of B; seeds: how many these are; by_seed: whether they were compared seed by seed; resamples,
    seed: of the bootstrap; margin: that practical equality was tested with, None where it was not.
    """

    runs: tuple[Record, Record]  # one record of each: the encoders
    folders: tuple[list[Path], list[Path]]
    resamples: int
    seed: int
    by_seed: bool = False
    tables: list[ComparisonTable] = field(default_factory=list)
    left_out: Reasons = field(default_factory=list)
    failures: Reasons = field(default_factory=list)
    margin: float | None = None

    meant: ClassVar = {**Tabular.meant, **dict.fromkeys(
        ("p_value", "pvalue", "p", "significant", "difference", "ci"), "comparison['STS-B'].difference, or to_pandas()"
    )}

    def __getitem__(self, task: str) -> Compared:
        """Return a task's row of its protocol's first table, "Avg" the average: a, b, difference (value, low, high, p) and
        corrected, p after Holm; of several protocols "PROTOCOL TASK". Raises KeyError, with a suggestion."""
        several = len({table.setting.protocol for table in self.tables}) > 1
        rows = {f"{table.setting.protocol} {name}" if several else name: row
                for table in reversed(self.tables) for name, row in table.named}
        if (name := match_name(str(task), rows)) not in rows:
            raise KeyError(f"{task!r} was not compared{did_you_mean(str(task), rows)}")
        return rows[name]

    @property
    def seeds(self) -> tuple[int, int]:
        """Return how many runs A and B are of."""
        return len(self.folders[0]), len(self.folders[1])

    @property
    def same(self) -> bool:
        """Return whether A and B are known to be one encoder, of one run each."""
        return self.seeds == (1, 1) and same_encoder(*self.runs)

    def __repr__(self) -> str:
        a, b = encoders_in_words(self.runs)
        return f"<Comparison of A ({a}) and B ({b}): {counted(len(self.tables), 'table')}; print it for the differences>"

    def document(self) -> Document:
        """Return a table for each setting, below what A and B are, and at the end what each says in a sentence."""
        tables, answers = [], []
        for number, table in enumerate(self.tables):
            answer, *more = notes(table)
            tables.append(replace(shown_table(table, f"{table.setting.protocol}-{number}"), notes=more))
            answers.append(f"{short_title(table)}: {answer}" if len(self.tables) > 1 else answer)
        return Document(tables, self.heading(), [limits(self.seeds), *answers])

    def to_arrow(self) -> pa.Table:
        """Return a row for each task of each table: the scores a and b, a less b with its 95 % interval, p, and p after
        Holm's correction; before it how both were measured. With a margin, its 90 % interval, p and verdict stand behind."""
        return arrow_table([
            {**asdict(table.setting), "task": row.task, "subset": row.subset, "n": row.n, "a": row.a, "b": row.b,
             "difference": row.difference.value, "detectable": row.detectable, "low": row.difference.low,
             "high": row.difference.high, "p": row.difference.p, "p_holm": row.corrected,
             **(margin_columns(row) if self.margin is not None else {})}
            for table in self.tables for _, row in table.named
        ])

    def plot(self, table: int = 0, *, axes: Axes | None = None) -> Axes:
        """Return the differences of a table, A less B, with their 95 % intervals; the average last.

        table: its number among `tables`; axes: matplotlib's, to draw on; None: those of a new figure. Raises StsbenchError
        where there is no such table.
        """
        from stsbench.display.style import interval_axes

        if not (isinstance(table, int) and 0 <= table < len(self.tables)):
            tables = counted(len(self.tables), "table")
            raise StsbenchError(f"table={shorten(table)}: this comparison has {tables}, from 0 on")
        drawn = self.tables[table]
        names, rows = zip(*drawn.named, strict=True)
        values, bounds = [row.difference.value for row in rows], [(row.difference.low, row.difference.high) for row in rows]
        side = "left" if drawn.metric.lower else "right"
        better = "higher" if drawn.metric.better == "neither" else "better"
        return interval_axes(names, values, bounds, f"A - B, 95 % interval; {side} of 0: A is {better}", zero=True,
                             title=f"{'; '.join(self.sides())}\n{title(drawn)}", axes=axes)

    def as_json(self) -> dict[str, Any]:
        """Return what --json writes, as plain data."""
        a, b = map(_side, self.folders, self.runs)
        return {
            "a": a, "b": b, "seeds": list(self.seeds), "by_seed": self.by_seed, "resamples": self.resamples,
            "seed": self.seed, "tables": list(map(_table_json, self.tables)), "not_compared": reasons_json(self.left_out),
            "failed": reasons_json(self.failures), "limits": limits(self.seeds),
            **({"margin": self.margin} if self.margin is not None else {}),
        }

    def sides(self, folders: bool = False) -> list[str]:
        """Return a line for each encoder, with the folders of its runs or without, and one where both are the same."""
        lines = []
        names = encoders_in_words(self.runs)
        for letter, paths, run, name, seeds in zip("AB", self.folders, self.runs, names, self.seeds, strict=True):
            if folders:
                several = f"mean of {counted(seeds, 'run')}: " if seeds > 1 else ""
                where = run.provenance.get("source") or ", ".join(map(str, paths))  # of another tool: its file
                lines.append(f"{letter}: {several}{where} ({name})")
            else:
                lines.append(f"{letter}: {name}{f', {seeds} seeds' if seeds > 1 else ''}")
        return [*lines, *([SAME] if self.same else [])]

    def heading(self, folders: bool = False) -> list[str]:
        """Return the same and, of several seeds, how they are paired."""
        return [*self.sides(folders), *filter(None, [pairing(self.seeds, self.by_seed)])]

    def omissions(self) -> list[str]:
        """Return a line for each reason and protocol of what could not be compared."""
        return reasons_lines(self.failures, self.left_out)


def reasons_lines(failures: Reasons, left_out: Reasons) -> list[str]:
    """Return a line for each reason and protocol, with the tasks."""
    lines = []
    for word, items in (("failed", failures), ("not compared", left_out)):
        tasks: dict[tuple[str, str], list[str]] = {}
        for label, task, reason in items:
            tasks.setdefault((label, reason), []).append(task)
        lines += [f"{word}: {label} {', '.join(dict.fromkeys(names))}: {reason}"
                  for (label, reason), names in tasks.items()]
    return lines


def _side(paths: list[Path], record: Record) -> dict[str, Any]:
    one = {"encoder": record.encoder.spec["name"], "fingerprint": record.encoder.fingerprint}
    return {"run": str(paths[0]), **one} if len(paths) == 1 else {"runs": list(map(str, paths)), **one}


def reasons_json(items: Reasons) -> list[dict[str, str]]:
    """As --json writes them."""
    return [dict(zip(("protocol", "task", "reason"), item, strict=True)) for item in items]


def _table_json(table: ComparisonTable) -> dict[str, Any]:
    setting = {**asdict(table.setting), "settings": json.loads(table.setting.settings)}
    setting = {"view" if key == "text_version" else key: value for key, value in setting.items()}  # the format's key
    return {
        **setting, "rows": list(map(_row_json, table.rows)), "average": _row_json(table.average) if table.average else None,
        "no_test": table.no_test or None, "unknown_data": list(table.unknown), "sentence": sentence(table),
        "over_tasks": asdict(table.over_tasks) if table.over_tasks else None, "small_parts": table.small_parts or None,
    }


def _row_json(row: Compared) -> dict[str, Any]:
    gap = row.difference
    return {"task": row.task, "subset": row.subset, "n": row.n, "a": row.a, "b": row.b, "difference": gap.value,
            "low": gap.low, "high": gap.high, "p": gap.p, "p_holm": row.corrected, "error": gap.error,
            "detectable": row.detectable, **margin_json(row)}
