"""The report of a comparison: encoders, training, tests, versions, and the results of each setting."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from stsbench.comparison.comparison import Comparison, limits, notes, over_tasks, pairing, shown_table
from stsbench.comparison.differences import ComparisonTable
from stsbench.display.table import Table
from stsbench.display.tabular import Form
from stsbench.errors import StsbenchError
from stsbench.evaluation.protocol import load_protocol
from stsbench.evaluation.records import Record
from stsbench.evaluation.tables import SAMPLE, encoder_name, task_prompts
from stsbench.extensions.reports.facts import (
    Report,
    cut_texts,
    data_facts,
    encoder_facts,
    fitting_facts,
    protocol_facts,
    score_facts,
    training_facts,
    version_facts,
)
from stsbench.wording import counted


def comparison_report(comparison: Comparison, form: Form = "markdown") -> str:
    """Return the report of a comparison: encoders, training, tests and versions in paragraphs, then each setting's results.

    Raises StsbenchError for another form, and where nothing was compared.

    >>> from stsbench import compare, evaluate
    >>> asked = {"sample": True, "tasks": "STS-B", "resamples": 0}
    >>> runs = [evaluate(model, **asked) for model in ("lexical:tfidf", "lexical:token-set")]
    >>> compare(*runs, resamples=100).report().splitlines()[-1][:33]
    '| STS-B | 42 | 27.01 | 9.48 | +17'
    """
    if not comparison.tables:
        raise StsbenchError("nothing was compared: there is nothing to report")
    sides = [[record for table in comparison.tables for record in table.measurements[side]] for side in range(2)]
    paragraphs = [*_encoders(comparison, sides), _tests(comparison), _versions(sides)]
    return Report(list(filter(None, paragraphs)), [_results(table) for table in comparison.tables]).text(form)


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
