"""What `compare` gives: the differences of two encoders, setting by setting, to look at and to go on with; and the report of
what was measured, how, and what came out of it, for a paper."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from stsbench.comparison.comparability import same_encoder
from stsbench.comparison.differences import Compared, ComparisonTable, margin_columns, margin_json
from stsbench.comparison.shared import Reasons
from stsbench.comparison.wording import limits, notes, over_tasks, pairing, sentence, short_title, shown_table, title
from stsbench.config import shorten
from stsbench.display.table import Document, Table
from stsbench.display.tabular import Form, Report, Tabular, arrow_table
from stsbench.errors import StsbenchError
from stsbench.evaluation.protocol import load_protocol
from stsbench.evaluation.provenance import (
    cut_texts,
    data_facts,
    encoder_facts,
    fitting_facts,
    protocol_facts,
    score_facts,
    training_facts,
    version_facts,
)
from stsbench.evaluation.records import Record
from stsbench.evaluation.tables import SAMPLE, encoder_name, encoders_in_words, task_prompts
from stsbench.registry import did_you_mean, match_name
from stsbench.wording import counted

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes

SAME = "A and B name the same encoder"


@dataclass
class Comparison(Tabular):
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

    def report(self, form: Form = "markdown") -> str:
        """Return paragraphs and tables for a paper: what was measured, how, and what came out of it, as far as the records
        say it.

        form: "markdown", or "latex", which needs the packages booktabs and graphicx. Raises StsbenchError for another form,
        and where nothing was compared.

        >>> from stsbench import compare, evaluate
        >>> asked = {"sample": True, "tasks": "STS-B", "resamples": 0}
        >>> runs = [evaluate(model, **asked) for model in ("lexical:tfidf", "lexical:token-set")]
        >>> compare(*runs, resamples=100).report().splitlines()[-1][:33]
        '| STS-B | 42 | 27.01 | 9.48 | +17'
        """
        if not self.tables:
            raise StsbenchError("nothing was compared: there is nothing to report")
        return comparison_report(self).text(form)

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


def comparison_report(comparison: Comparison) -> Report:
    """Return the report of a comparison: encoders, training, tests and versions in paragraphs, then each setting's
    results."""
    sides = [[record for table in comparison.tables for record in table.measurements[side]] for side in range(2)]
    paragraphs = [*_encoders(comparison, sides), _tests(comparison), _versions(sides)]
    return Report(list(filter(None, paragraphs)), [_results(table) for table in comparison.tables])


def _encoders(comparison: Comparison, sides: Sequence[Sequence[Record]]) -> list[str]:
    """Return a paragraph for each side: what it is, how it reads, how it was trained."""
    paragraphs = []
    for letter, records, seeds in zip("AB", sides, comparison.seeds, strict=True):
        runs = _fullest_records(records)
        names = list(dict.fromkeys(map(encoder_name, runs)))
        of = f" ({counted(seeds, 'run')}, whose scores are averaged)" if seeds > 1 else ""
        lines = [f"{letter} is {', '.join(names)}{of}: {encoder_facts(records)}."]
        lines += [f"Texts were read behind {how} under {label}." for label, how in task_prompts(records).items()]
        lines += [fitting_facts(records), cut_texts(records), *training_facts(runs)]
        paragraphs.append(" ".join(filter(None, lines)))
    if comparison.same:
        paragraphs.append("A and B are the same encoder.")
    return paragraphs


def _fullest_records(records: Sequence[Record]) -> list[Record]:
    """Return a record of each run: that which says most of its training."""
    by_run: dict[str, Record] = {}
    for record in records:
        known = by_run.setdefault(record.encoder.fingerprint, record)
        if len(record.provenance) > len(known.provenance):
            by_run[record.encoder.fingerprint] = record
    return list(by_run.values())


def _tests(comparison: Comparison) -> str:
    """Return how the differences were tested; "" where none was."""
    rows = [row for table in comparison.tables for _, row in table.named]
    if all(row.difference.p is None for row in rows):
        return ""
    draws = f"{counted(comparison.resamples, 'resample')}, seed {comparison.seed}"
    if comparison.seeds == (1, 1):
        lines = [f"Differences are tested by a paired bootstrap over the items ({draws}): both encoders are scored on the "
                 "same resamples."]
    else:
        lines = ["Differences of the means over runs are tested over items and seeds: what they may deviate by is that of a"
                 f" bootstrap over the items ({draws}) plus {_of_seeds(comparison)}.",
                 pairing(comparison.seeds, comparison.by_seed)]
    clauses = dict.fromkeys(load_protocol(table.setting.protocol).resampling for table in comparison.tables)
    lines += [f"{clause[0].upper()}{clause[1:]}." for clause in clauses if clause]
    lines.append("Intervals are of A - B, at 95 %.")
    sizes = {sum(row.corrected is not None for row in table.rows) for table in comparison.tables} - {0}
    if sizes == {1}:
        lines.append("Every test is of one task: there is nothing to correct for.")
    else:
        nouns = " or ".join(dict.fromkeys(f"{table.noun}s" for table in comparison.tables))
        over = f"the {max(sizes)} {nouns} of the table" if len(comparison.tables) == 1 else f"the {nouns} of each table"
        averages = " That of an average is not corrected." if any(table.average for table in comparison.tables) else ""
        lines.append(f"The p-values are corrected by Holm's method over {over}.{averages}")
    if len(comparison.tables) > 1:
        lines.append("Nothing is corrected across the tables.")
    if comparison.margin is not None and any(row.equivalence for row in rows):
        lines.append(f"Practical equality within the margin of {comparison.margin:g} is tested by two one-sided tests "
                     "(TOST) at 5 %, which give 90 % intervals; their p-values of tasks are corrected in the same way.")
    if any(row.detectable is not None for row in rows):
        lines.append("The minimum detectable difference is the true difference that would be significant in 80 % of such "
                     "experiments, at 5 % and before any correction.")
    if any(table.over_tasks is not None and table.over_tasks.low is not None and over_tasks(table)
           for table in comparison.tables):
        lines.append("The interval over tasks is Student's interval of the mean of the tasks' differences. How often another"
                     " draw of tasks keeps the order is predicted by Student's distribution, too (Geisser 1993).")
    return " ".join([*filter(None, lines), limits(comparison.seeds)])


def _of_seeds(comparison: Comparison) -> str:
    """Return the test over seeds, where a side has several."""
    a, b = comparison.seeds
    if comparison.by_seed:
        return f"Student's t of the seeds' paired differences ({a - 1} degrees of freedom)"
    if 1 in (a, b):
        return f"Student's t of the seeds of {'B' if a == 1 else 'A'}"
    if a == b:
        return "Student's t of the seeds, with degrees of freedom by which it errs in 5 % whatever the two variances"
    return "a Student's t of each side's seeds (Behrens and Fisher's test)"


def _versions(sides: Sequence[Sequence[Record]]) -> str:
    """Return versions, device and dates: one sentence where both sides have the same."""
    a, b = (version_facts(records) for records in sides)
    return f"A and B were measured {a}." if a == b else f"A was measured {a}. B was measured {b}."


def _results(table: ComparisonTable) -> tuple[str, Table]:
    """Return a setting's results: protocol, data and scores, the sentence of the comparison and its notes; then its
    table."""
    records, metric, digits = table.measurements[0], table.metric, table.metric.digits
    sets = [next(group) for _, group in groupby(records, key=lambda record: record.data.id)]
    lines = [protocol_facts(records[0]), score_facts(table.setting.metric, metric, table.setting.aggregation),
             data_facts(sets, sum(row.n for row in table.rows))]
    if table.setting.text_version == "sample":
        lines.append(f"{SAMPLE.capitalize()}.")
    if table.average:
        lines.append(f"On average A scores {table.average.a:.{digits}f} and B {table.average.b:.{digits}f} "
                     f"({counted(table.average.n, 'item')}, the mean of {len(table.rows)} unrounded scores).")
    elif len(table.rows) == 1:
        row = table.rows[0]
        lines.append(f"On {row.name} A scores {row.a:.{digits}f} and B {row.b:.{digits}f} ({counted(row.n, 'item')}).")
    lines += notes(table)
    return " ".join([*lines, _detectable(table)]).strip(), shown_table(table)


def _detectable(table: ComparisonTable) -> str:
    """Return the minimum detectable differences: the average's, and the tasks' from the least to the largest."""
    digits, points = table.metric.digits, " points" if table.metric.scale == 100 else ""
    of_rows = sorted(row.detectable for row in table.rows if row.detectable is not None)
    average = table.average.detectable if table.average else None
    parts = [] if average is None else [f"{average:.{digits}f}{points} on average"]
    if of_rows:
        ends = dict.fromkeys(f"{end:.{digits}f}" for end in (of_rows[0], of_rows[-1]))
        parts.append(f"{' to '.join(ends)}{points} on {'a single' if len(table.rows) > 1 else 'this'} {table.noun}")
    return f"The minimum detectable difference is {' and '.join(parts)}." if parts else ""
