"""Scores in forms to paste: LaTeX and Markdown tables as papers print them, CSV rows for programs."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Container, Sequence
from typing import Any

from stsbench.cli.output.messages import echo
from stsbench.cli.output.tables import altered_tasks, main_rows, print_scores, remarks, shown, title_of
from stsbench.encoders.prompt.prompt import described
from stsbench.evaluation.measure import Result
from stsbench.evaluation.plan import changed_settings
from stsbench.evaluation.records import Record, ScoreRow
from stsbench.publish.latex import escaped
from stsbench.wording import csv_cell

ORIGIN = ("encoder", "pooler", "data", "view", "known", "settings")  # CSV columns behind those of a row


def print_report(result: Result, form: str) -> None:
    """Write every score to stdout as a LaTeX or Markdown table, or as CSV rows."""
    if form == "table":
        print_scores(result)
    else:
        writer = {"latex": latex, "markdown": markdown, "csv": as_csv}[form]
        echo(writer(result), nl=False)


def as_csv(result: Result) -> str:
    """Every row at full precision: the keys of the JSON rows, then ORIGIN, whatever makes two scores incomparable.

    settings: those that are not the default. An average has what its protocol's records have in common, else "mixed".
    """
    stream = io.StringIO()
    table = csv.DictWriter(stream, [*ScoreRow.model_fields, *ORIGIN], lineterminator="\n")
    table.writeheader()
    origins = [_origin(record) for record in result.records]
    for record, origin in zip(result.records, origins, strict=True):
        table.writerows(_cells({**row.model_dump(), **origin}) for row in record.scores)
    for row in result.summaries:
        pairs = zip(result.records, origins, strict=True)
        measured = [origin for record, origin in pairs if record.protocol.label == row.protocol]
        common = {key: _common([origin[key] for origin in measured]) for key in ORIGIN}
        table.writerow(_cells({**row.model_dump(), **common}))
    return stream.getvalue()


def _cells(row: dict[str, Any]) -> dict[str, Any]:
    return {key: csv_cell(value) if isinstance(value, str) else value for key, value in row.items()}


def _origin(record: Record) -> dict[str, Any]:
    spec, data = record.encoder.spec, record.data
    overlap = record.protocol.settings.get("without_overlap")
    settings = [changed_settings(record.protocol), f"without_overlap {' '.join(overlap)}" if overlap else ""]
    values = (spec["name"], spec.get("pooler"), data.id, data.text_version, data.known, ", ".join(filter(None, settings)))
    return dict(zip(ORIGIN, values, strict=True))


def _common(values: Sequence[Any]) -> Any:
    return values[0] if len(set(values)) == 1 else "mixed"


def markdown(result: Result) -> str:
    """One table a protocol: a line a metric, tasks across."""
    parts = [f"Encoder: {_encoder(result)}\n"]
    for _, title, header, lines in _grids(result):
        cells = [header, ["---", *["---:"] * (len(header) - 1)], *lines]
        table = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in cells)
        parts.append(f"**{title}**\n\n{table}\n")
    return "\n".join([*parts, *(f"{line}\n" for line in remarks(result))])


def latex(result: Result) -> str:
    """One booktabs table a protocol, as wide as both columns of a page: a line a metric, tasks across."""
    parts = ["% \\usepackage{booktabs}\n"]
    for protocol, title, header, lines in _grids(result):
        body = "\n".join("    " + " & ".join(map(escaped, line)) + r" \\" for line in lines)
        caption = escaped(title).replace("x 100", r"$\times$ 100")
        parts.append(
            "\\begin{table*}\n  \\centering\n  \\small\n"
            f"  \\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}\n    \\toprule\n"
            f"    {' & '.join(map(escaped, header))} \\\\\n    \\midrule\n{body}\n    \\bottomrule\n  \\end{{tabular}}\n"
            f"  \\caption{{{escaped(_encoder(result))}. {caption}}}\n  \\label{{tab:{_key(protocol)}}}\n\\end{{table*}}\n"
        )
    return "\n".join([*parts, *(f"% {line}\n" for line in remarks(result))])


def _key(protocol: str) -> str:
    """A protocol's label in characters that \\label takes."""
    return re.sub(r"[^A-Za-z0-9.:]+", "-", protocol).strip("-")


def _grids(result: Result) -> list[tuple[str, str, list[str], list[list[str]]]]:
    """(protocol, title, header, lines) of each protocol, without `Avg-full`: papers print one average."""
    grids = []
    for protocol in dict.fromkeys(row.protocol for row in result.rows):
        rows = [row for row in main_rows(result, protocol) if row.task != "Avg-full"]
        columns = list(dict.fromkeys((row.task, row.subset) for row in rows))
        altered = altered_tasks(result, protocol)
        cell = {(row.metric, row.aggregation, row.task, row.subset): shown(row) for row in rows}
        lines = []
        for metric, how in dict.fromkeys((row.metric, row.aggregation) for row in rows):
            name = f"{metric} ({how})" if how else metric
            lines.append([name, *(cell.get((metric, how, *column), "") for column in columns)])
        grids.append((protocol, title_of(result, protocol), ["", *_headers(columns, altered)], lines))
    return grids


def _headers(columns: Sequence[tuple[str, str | None]], altered: Container[str]) -> list[str]:
    marked = [(task + "*" if task in altered else task, subset) for task, subset in columns]
    return [f"{task} {subset}" if subset else task for task, subset in marked]


def _encoder(result: Result) -> str:
    """The encoder as its records name it: with the pooler, without which the name says little."""
    if not result.records:
        return ""
    spec = result.records[0].encoder.spec
    extra = [f"{key} {spec[key]}" for key in ("pooler", "template", "dtype") if spec.get(key) not in (None, "float32")]
    return ", ".join([str(spec["name"]), *extra, *described(spec.get("options") or {})])
