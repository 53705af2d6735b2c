"""`Comparison`, which `compare` returns: the differences of two encoders as tables, plots and data; and their wording: the
titles of tables, sentences on the differences, and what the tests do not cover."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from stsbench.comparison.comparability import same_encoder
from stsbench.comparison.differences import Compared, ComparisonTable, margin_columns, margin_json, practically
from stsbench.comparison.shared import Reasons
from stsbench.config import shorten
from stsbench.display.table import Document, Table
from stsbench.display.tabular import Reported, Tabular, arrow_table
from stsbench.errors import StsbenchError
from stsbench.evaluation.plan import changed_settings
from stsbench.evaluation.records import Record
from stsbench.evaluation.schema import Metric
from stsbench.evaluation.tables import SAMPLE, encoders_in_words, repeated_in_record
from stsbench.metrics.aggregation import overstated
from stsbench.metrics.paired import LEVEL
from stsbench.metrics.power import Measurement, few_items
from stsbench.registry import did_you_mean, match_name
from stsbench.wording import counted, joined

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes

SAME = "A and B name the same encoder"
LIMITS = (
    "Intervals and tests are about other items of the same kind. They do not cover another training seed, or that a "
    "checkpoint was chosen."
)
_OVER_SEEDS = (
    "Intervals and tests are about other items of the same kind and, for a side of several seeds, other seeds. They do not "
    "cover that a checkpoint was chosen."
)
_FEW_SEEDS = (
    " Two seeds hardly show how noisy a side is: the test holds 5 % whatever its noise, so only large differences are "
    "significant."
)


@dataclass
class Comparison(Reported):
    """The differences between the scores of two encoders, A and B. left_out, failures: tasks that could not be compared.

    folders: the runs of A and of B; seeds: their numbers; by_seed: whether runs were paired by seed; resamples, seed: of the
    bootstrap; margin: of the test of practical equality, None without one.
    """

    runs: tuple[Record, Record]  # one record of A and one of B, which hold the encoders
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
        """Return the row of a task ("PROTOCOL TASK" of several protocols), or "Avg-full", the average: a, b, difference
        (value, low, high, p), and corrected, p after Holm's correction. Raises KeyError, with a suggestion."""
        several = len({table.setting.protocol for table in self.tables}) > 1
        rows = {f"{table.setting.protocol} {name}" if several else name: row
                for table in reversed(self.tables) for name, row in table.named}
        if (name := match_name(str(task), rows)) not in rows:
            raise KeyError(f"{task!r} was not compared{did_you_mean(str(task), rows)}")
        return rows[name]

    @property
    def seeds(self) -> tuple[int, int]:
        """Return the numbers of runs of A and of B."""
        return len(self.folders[0]), len(self.folders[1])

    @property
    def same(self) -> bool:
        """Return whether A and B have one run each and are known to be the same encoder."""
        return self.seeds == (1, 1) and same_encoder(*self.runs)

    def __repr__(self) -> str:
        a, b = encoders_in_words(self.runs)
        return f"<Comparison of A ({a}) and B ({b}): {counted(len(self.tables), 'table')}; print it for the differences>"

    def document(self) -> Document:
        """Return a heading on A and B, a table for each setting, and at the end a sentence on each table."""
        tables, answers = [], []
        for number, table in enumerate(self.tables):
            answer, *more = notes(table)
            tables.append(replace(shown_table(table, f"{table.setting.protocol}-{number}"), notes=more))
            answers.append(f"{table.setting.protocol}, {_score(table)}: {answer}" if len(self.tables) > 1 else answer)
        return Document(tables, self.heading(), [limits(self.seeds), *answers])

    def to_arrow(self) -> pa.Table:
        """Return a pyarrow table with a row for each task of each table: the setting, the scores a and b, a less b with its
        95 % interval, p, and p after Holm's correction; with a margin, also the 90 % interval, p-values and verdict."""
        return arrow_table([
            {**asdict(table.setting), "task": row.task, "subset": row.subset, "n": row.n, "a": row.a, "b": row.b,
             "difference": row.difference.value, "detectable": row.detectable, "low": row.difference.low,
             "high": row.difference.high, "p": row.difference.p, "p_holm": row.corrected,
             **(margin_columns(row) if self.margin is not None else {})}
            for table in self.tables for _, row in table.named
        ])

    def plot(self, table: int = 0, *, axes: Axes | None = None) -> Axes:
        """Plot the differences of a table, A less B, with their 95 % intervals, the average last, and return the axes.

        table: its number in `tables`; axes: matplotlib's, to draw on; None: those of a new figure. Raises StsbenchError
        for a number without a table.
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
        """Return the comparison as plain data, as --json writes it."""
        a, b = map(_side, self.folders, self.runs)
        return {
            "a": a, "b": b, "seeds": list(self.seeds), "by_seed": self.by_seed, "resamples": self.resamples,
            "seed": self.seed, "tables": list(map(_table_json, self.tables)), "not_compared": reasons_json(self.left_out),
            "failed": reasons_json(self.failures), "limits": limits(self.seeds),
            **({"margin": self.margin} if self.margin is not None else {}),
        }

    def sides(self, folders: bool = False) -> list[str]:
        """Return a line for each encoder, with the folders of its runs if `folders`, and a line where both are the same."""
        lines = []
        names = encoders_in_words(self.runs)
        for letter, paths, run, name, seeds in zip("AB", self.folders, self.runs, names, self.seeds, strict=True):
            if folders:
                several = f"mean of {counted(seeds, 'run')}: " if seeds > 1 else ""
                where = run.provenance.get("source") or ", ".join(map(str, paths))  # the file of another tool's results
                lines.append(f"{letter}: {several}{where} ({name})")
            else:
                lines.append(f"{letter}: {name}{f', {seeds} seeds' if seeds > 1 else ''}")
        return [*lines, *([SAME] if self.same else [])]

    def heading(self, folders: bool = False) -> list[str]:
        """Return the lines of `sides` and, for several seeds, one on how they are paired."""
        return [*self.sides(folders), *filter(None, [pairing(self.seeds, self.by_seed)])]

    def omissions(self) -> list[str]:
        """Return a line for each protocol and reason why tasks could not be compared."""
        return reasons_lines(self.failures, self.left_out)


def reasons_lines(failures: Reasons, left_out: Reasons) -> list[str]:
    """Return a line for each protocol and reason, with the tasks that failed or were left out."""
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
    """Return reasons as dictionaries with protocol, task and reason, as --json writes them."""
    return [dict(zip(("protocol", "task", "reason"), item, strict=True)) for item in items]


def _table_json(table: ComparisonTable) -> dict[str, Any]:
    setting = {**asdict(table.setting), "settings": json.loads(table.setting.settings)}
    setting = {"view" if key == "text_version" else key: value for key, value in setting.items()}  # the key in JSON
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


def limits(seeds: tuple[int, int]) -> str:
    """Return the caveat on intervals and tests for these numbers of runs of A and B."""
    return LIMITS if seeds == (1, 1) else _OVER_SEEDS


def notes(table: ComparisonTable) -> list[str]:
    """Return the notes below a table: its sentence, and notes on its tasks and data."""
    names = ", ".join(table.unknown)
    data = f"Data differ from the catalog: {names}. The same in A and B, comparable with nothing else." if names else ""
    repeated = dict.fromkeys(map(repeated_in_record, table.measurements[0] if table.measurements else ()))
    lines = [sentence(table), table.no_margin, over_tasks(table), *repeated, few(table), table.small_parts, data]
    return list(filter(None, lines))


def shown_table(table: ComparisonTable, label: str = "") -> Table:
    """Return the displayed table, with the average below a rule, and notes. label: for LaTeX."""
    return Table(title(table), table.columns(), notes(table), rules=[len(table.rows)] if table.average else (),
                 label=label)


def few(table: ComparisonTable) -> str:
    """Return a sentence on rows with few items and the width of their intervals; "" without any."""
    metric = table.metric
    rows = [(name, row, row.difference.low, row.difference.high) for name, row in table.named]
    return few_items([
        Measurement(name, row.n, None if low is None or high is None else (high - low) / 2,
                    points=metric.scale == 100, digits=metric.digits)
        for name, row, low, high in rows
    ])


def over_tasks(table: ComparisonTable) -> str:
    """Return a sentence with the average's interval over tasks, and how often other tasks would give the same order; ""
    without an average or a difference."""
    over, average, metric = table.over_tasks, table.average, table.metric
    if over is None or average is None or not (over.value or over.sd):
        return ""
    if over.low is None or over.high is None:
        return f"Over other tasks, too: no interval, for {over.why}."
    digits = metric.digits
    line = f"Over other tasks, too: A - B, 95 % interval {over.low:z.{digits}f} to {over.high:z.{digits}f}"
    if over.same_order is None:
        return f"{line}."
    first, tasks = _order(average, metric)[0], counted(over.tasks, "other task")
    how = "higher" if metric.better == "neither" else "ahead"
    # A chance below 100 % is not rounded to it.
    often = "more than 99" if 0.995 <= over.same_order < 1 else f"{100 * over.same_order:.0f}"
    caution = ""
    if metric.scale == 100 and overstated(over.value, over.same_order):
        caution = " Between encoders less than a point apart such shares were too high on MTEB's published scores."
    return f"{line}; on {tasks} of the same kind {first} would be {how} {often} times of 100.{caution}"


def pairing(seeds: tuple[int, int], by_seed: bool) -> str:
    """Return a sentence on whether seeds were paired, for several seeds on a side; "" for one run each."""
    a, b = seeds
    if (a, b) == (1, 1):
        return ""
    if by_seed:
        return f"{a} seeds, compared seed by seed; resamples of the items are those of both."
    single = f" Nothing is known of other seeds of {'A' if a == 1 else 'B'}." if 1 in (a, b) else ""
    few = _FEW_SEEDS if 2 in (a, b) else ""
    return f"{counted(a, 'seed')} of A and {b} of B, not paired; resamples of the items are those of both.{single}{few}"


def title(table: ComparisonTable) -> str:
    """Return a table's title, such as 'sts (similarity dot): spearman, all, x 100', with what makes scores incomparable."""
    setting, labels = table.setting, [record.protocol.label for record in table.records]
    record = table.records[0]
    # Where labels differ, such as a paper's and the protocol's, the protocol's name fits both.
    label = labels[0] if labels[0] == labels[1] else setting.protocol
    changes = changed_settings(record.protocol)
    if overlap := record.protocol.settings.get("without_overlap"):
        changes = "; ".join(filter(None, [changes, f"without the pairs that share a sentence with {', '.join(overlap)}"]))
    what, metric = _score(table), table.metric
    unit = (", x 100" if metric.scale == 100 else ", not x 100") + (", lower is better" if metric.lower else "")
    text_version = {"sample": f" ({SAMPLE})", "raw": " (text version raw)"}.get(setting.text_version, "")
    aside = " (not part of the average)" if table.aside else ""
    return f"{label}{f' ({changes})' if changes else ''}: {what}{unit}{aside}{text_version}"


def _score(table: ComparisonTable) -> str:
    return ", ".join(filter(None, [table.setting.metric, table.setting.aggregation]))


def sentence(table: ComparisonTable) -> str:
    """Return sentences on a table's differences and, with a margin, on practical equality."""
    return " ".join(filter(None, [_difference(table), practically(table)]))


def _difference(table: ComparisonTable) -> str:
    rows, average = table.rows, table.average
    if all(row.a == row.b and not row.difference.high and not row.difference.low for row in rows):
        where = f"on {rows[0].name}" if len(rows) == 1 else f"on each of the {len(rows)} {table.noun}s"
        why = f"; there is no test: {table.no_test}" if table.no_test else ": they do not differ significantly"
        return f"A and B have the same score {where}{why}."
    if table.no_test:
        return f"{_untested(table)}; there is no test: {table.no_test}."
    if len(rows) == 1:
        return _sentence(table, rows[0], f"on {rows[0].name}") + "."
    start = _sentence(table, average, "on average") + "; of" if average else "Of"
    return f"{start} {len(rows)} {table.noun}s {_task_sentence(table, rows)}."


def _sentence(table: ComparisonTable, row: Compared, where: str) -> str:
    """Return 'A is better than B on average by 5.31 points (95 % interval 4.60 to 6.02)'."""
    difference, metric = row.difference, table.metric
    if difference.p is None or difference.low is None or difference.high is None:
        return f"A - B {where} is {_number(difference.value, metric)}, without a test: too many resamples have no score"
    digits = metric.digits
    if difference.p >= 1 - LEVEL:
        bounds = f"{difference.low:z.{digits}f} to {difference.high:z.{digits}f}"
        value = _number(difference.value, metric)
        return f"A and B do not differ significantly {where} (A - B is {value}, 95 % interval {bounds})"
    low, high = sorted((abs(difference.low), abs(difference.high)))  # significant: 0 is outside
    first, second = _order(row, metric)
    size, bounds = _size(difference.value, metric), f"{low:z.{digits}f} to {high:z.{digits}f}"
    return f"{first} is {_word(metric)} than {second} {where} by {size} (95 % interval {bounds})"


def _task_sentence(table: ComparisonTable, rows: Sequence[Compared]) -> str:
    """Return 'A is better on 6, after correcting for 7 comparisons; on SICK-R they do not differ significantly'."""
    metric = table.metric
    tested = [row for row in rows if row.corrected is not None]
    significant = [row for row in tested if row.corrected is not None and row.corrected < 1 - LEVEL]
    undecided = [row for row in tested if row not in significant]
    untested = [row for row in rows if row.corrected is None]
    after = f"after correcting for {counted(len(tested), 'comparison')}"
    won = {side: [row for row in significant if _order(row, metric)[0] == side] for side in "AB"}
    words = []
    if significant:
        many = {side: "all" if len(won[side]) == len(rows) else len(won[side]) for side in "AB"}
        sides = [f"{side} is {_word(metric)} on {many[side]}" for side in "AB" if won[side]]
        words.append(f"{' and '.join(sides)}, {after}")
        if all(won.values()):
            words[-1] += f" (B on {joined(row.name for row in won['B'])})"
        if undecided:
            words.append(f"on {joined(row.name for row in undecided)} they do not differ significantly")
    else:
        words.append(f"there is none on which they differ significantly, {after}")
    if untested:
        words.append(f"on {joined(row.name for row in untested)} there is no test")
    return "; ".join(words)


def _untested(table: ComparisonTable) -> str:
    """Return the differences without a test, in words that do not claim that one encoder is better."""
    metric, rows = table.metric, table.rows
    if len(rows) > 1 and not table.average:
        above = {side: sum(_higher(row) == side for row in rows) for side in "AB"}
        return f"A is higher than B on {above['A']} of {len(rows)} {table.noun}s, B higher than A on {above['B']}"
    row = table.average or rows[0]
    where = "on average" if table.average else f"on {row.name}"
    if not row.difference.value:
        return f"A and B have the same score {where}"
    side = _higher(row)
    return f"{side} is higher than {'BA'['AB'.index(side)]} {where} by {_size(row.difference.value, metric)}"


def _higher(row: Compared) -> str:
    return "A" if row.difference.value > 0 else "B" if row.difference.value < 0 else ""


def _order(row: Compared, metric: Metric) -> tuple[str, str]:
    """Return "A" and "B", the better one first, or the higher one where the metric has no better end."""
    first = (row.difference.value > 0) != metric.lower
    return ("A", "B") if first else ("B", "A")


def _word(metric: Metric) -> str:
    return "higher" if metric.better == "neither" else "better"


def _number(value: float, metric: Metric) -> str:
    return f"{value:z.{metric.digits}f}" + (" points" if metric.scale == 100 else "")


def _size(value: float, metric: Metric) -> str:
    least = 10.0**-metric.digits  # a significant difference may be smaller than the last digit that is shown
    return f"less than {_number(least, metric)}" if abs(value) < least / 2 else _number(abs(value), metric)
