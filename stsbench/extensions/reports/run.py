"""The report of a run for a paper: what was measured, how, and the scores."""

from __future__ import annotations

from stsbench.display.tabular import Form
from stsbench.errors import StsbenchError
from stsbench.evaluation.plan import declared_metric
from stsbench.evaluation.protocol import load_protocol
from stsbench.evaluation.records import ScoreRow, Scores
from stsbench.evaluation.result import Result
from stsbench.evaluation.tables import AVERAGES, format_score, interval, main_rows, main_scores, remarks, score_tables
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

_LISTED = 8  # scores that a sentence holds


def run_report(result: Result, form: Form = "markdown") -> str:
    """Return the report of a run; raise StsbenchError for another form, and where nothing was measured.

    >>> from stsbench import evaluate
    >>> run = evaluate("lexical:token-set", sample=True, tasks="STS-B", resamples=0)
    >>> run.report().partition(", ")[0]
    'We measure lexical:token-set: 418 dimensions'
    """
    if not result.records:
        raise StsbenchError("nothing was measured: there is nothing to report")
    subject = str(result.records[0].encoder.spec["name"])
    about = [f"We measure {subject}: {encoder_facts(result.records)}.", fitting_facts(result.records),
             cut_texts(result.records), *training_facts(result.records[:1])]
    paragraphs = [" ".join(filter(None, about)), f"It was measured {version_facts(result.records)}.",
                  " ".join(_sentence(line) for line in [*remarks(result), *result.omissions()])]
    labels = dict.fromkeys(row.protocol for row in result.rows)
    results = [(_in_words(result, label), table) for label, table in zip(labels, score_tables(result), strict=True)]
    return Report(paragraphs, results).text(form)


def _in_words(result: Scores, label: str) -> str:
    """Return a protocol's paragraph: settings, data, and the first score: of the average, or of the tasks where there is
    none."""
    records = [record for record in result.records if record.protocol.label == label]
    rows = list(main_scores(main_rows(result, label)).values())
    lead = rows[0]
    lines = [*dict.fromkeys(map(protocol_facts, records)), score_facts(lead.metric, declared_metric(lead), lead.aggregation),
             data_facts(list({record.data.id: record for record in records}.values()),
                        sum(max(row.n for row in rows if row.task == task)
                            for task in dict.fromkeys(row.task for row in rows) if task not in AVERAGES))]
    if any(row.low is not None for row in rows):
        many = records[0].protocol.settings.get("resamples")
        clause = load_protocol(records[0].protocol.name).resampling
        how = f"from a bootstrap over the items ({many:,} resamples){f'; {clause}' if clause else ''}" if many else ""
        lines.append(f"95 % intervals are {how}." if many else "Intervals are at 95 %.")
    named = [row for row in rows if row.task == "Avg"] or [row for row in rows if row.task not in AVERAGES]
    named = [row for row in named if (row.metric, row.aggregation) == (lead.metric, lead.aggregation)]
    scores = [f"{_row_words(row)} is {format_score(row)}{f' (95 % interval {bounds})' if (bounds := interval(row)) else ''}"
              for row in named]
    return " ".join([*lines, *([f"{_sentence('; '.join(scores))}"] if len(scores) <= _LISTED else [])])


def _row_words(row: ScoreRow) -> str:
    if row.task == "Avg":
        return f"the average ({counted(row.n, 'item')})"
    return f"the score of {row.task}, {row.subset}" if row.subset else f"the score of {row.task}"


def _sentence(line: str) -> str:
    """Return a line of remarks as a sentence of a paragraph."""
    return f"{line[:1].upper()}{line[1:]}{'' if line.endswith('.') else '.'}"
