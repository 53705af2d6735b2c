"""Scores in forms to paste: LaTeX and Markdown tables as papers print them, CSV rows for programs."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence

from stsbench.cli.tables import main_rows, print_scores, remarks, shown, title_of
from stsbench.evaluation import Result
from stsbench.records import ScoreRow

FORMATS = ("table", "latex", "markdown", "csv")
_LATEX = {"\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
          "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}  # fmt: skip


def print_report(result: Result, form: str) -> None:
    """Write every score to stdout in one of FORMATS."""
    if form == "table":
        print_scores(result)
    else:
        writer = {"latex": latex, "markdown": markdown, "csv": as_csv}[form]
        print(writer(result), end="")


def as_csv(result: Result) -> str:
    """Every row at full precision, with the keys of the JSON rows."""
    stream = io.StringIO()
    table = csv.DictWriter(stream, list(ScoreRow.model_fields), lineterminator="\n")
    table.writeheader()
    table.writerows(row.model_dump() for row in result.rows)
    return stream.getvalue()


def markdown(result: Result) -> str:
    """One table a protocol: a line a metric, tasks across."""
    parts = [f"Encoder: {_encoder(result)}\n"]
    for title, header, lines in _grids(result):
        cells = [header, ["---", *["---:"] * (len(header) - 1)], *lines]
        table = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in cells)
        parts.append(f"**{title}**\n\n{table}\n")
    return "\n".join([*parts, *(f"{line}\n" for line in remarks(result))])


def latex(result: Result) -> str:
    """One booktabs table a protocol: a line a metric, tasks across."""
    parts = ["% \\usepackage{booktabs}\n"]
    for title, header, lines in _grids(result):
        body = "\n".join("    " + " & ".join(map(_escaped, line)) + r" \\" for line in lines)
        parts.append(
            "\\begin{table}\n  \\centering\n"
            f"  \\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}\n    \\toprule\n"
            f"    {' & '.join(map(_escaped, header))} \\\\\n    \\midrule\n{body}\n    \\bottomrule\n  \\end{{tabular}}\n"
            f"  \\caption{{{_escaped(_encoder(result))}. {_escaped(title)}}}\n\\end{{table}}\n"
        )
    return "\n".join([*parts, *(f"% {line}\n" for line in remarks(result))])


def _grids(result: Result) -> list[tuple[str, list[str], list[list[str]]]]:
    """(title, header, lines) of each protocol. `Avg-full` is left to the other formats: papers print one average."""
    grids = []
    for protocol in dict.fromkeys(row.protocol for row in result.rows):
        rows = [row for row in main_rows(result, protocol) if row.task != "Avg-full"]
        columns = list(dict.fromkeys((row.task, row.subset) for row in rows))
        cell = {(row.metric, row.aggregation, row.task, row.subset): shown(row) for row in rows}
        lines = []
        for metric, how in dict.fromkeys((row.metric, row.aggregation) for row in rows):
            name = f"{metric} ({how})" if how else metric
            lines.append([name, *(cell.get((metric, how, *column), "") for column in columns)])
        grids.append((title_of(result, protocol), ["", *_headers(columns)], lines))
    return grids


def _headers(columns: Sequence[tuple[str, str | None]]) -> list[str]:
    return [f"{task} {subset}" if subset else task for task, subset in columns]


def _encoder(result: Result) -> str:
    """The encoder as its records name it: with the pooler, without which the name says little."""
    if not result.records:
        return ""
    spec = result.records[0].encoder.spec
    extra = [f"{key} {spec[key]}" for key in ("pooler", "template", "dtype") if spec.get(key) not in (None, "float32")]
    return ", ".join([str(spec["name"]), *extra])


def _escaped(text: str) -> str:
    return re.sub(r"[\\&%$#_{}~^]", lambda found: _LATEX[found.group()], text)
