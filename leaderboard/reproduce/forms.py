"""Reproduced tables in forms to paste: LaTeX and Markdown as people read them, CSV rows for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from stsbench.display.latex import PACKAGES, comment, escaped, latex_table
from stsbench.display.report import markdown_cell
from stsbench.display.tabular import csv_table
from stsbench.leaderboard.publications.model import Heading

from .cells import FOOT, grid
from .measured import columns_of, printed
from .table import Line, by_heading, missing_of

COLUMNS = ("row", "method", "backbone", "protocol", "aggregation", "metric", "split", "column", "published", "name",
           "measured", "sd", "n")


def as_csv(lines: Sequence[Line]) -> str:
    """A line each column of a row, and one each measurement of it: published and measured stand in columns of their own."""
    return csv_table(COLUMNS, (row for line in lines for row in figures(line)))


def figures(line: Line) -> Iterator[dict[str, Any]]:
    """A row, by COLUMNS, for each published figure, then for each measurement of it; without what does not apply."""
    row, heading = line.row, line.row.heading
    about = {"row": row.id, "method": row.method, "backbone": row.backbone, "protocol": heading.protocol,
             "aggregation": heading.aggregation, "metric": heading.metric, "split": heading.split}
    for column in columns_of(row):
        yield {**about, "column": column, "published": printed(row, column)}
        for reproduction in line.measured:
            if mean := reproduction.figures.get(column):
                figures = {"measured": mean.mean, "sd": mean.sd, "n": mean.n}
                yield {**about, "column": column, "name": reproduction.name, **figures}


def markdown(lines: Sequence[Line]) -> str:
    """A table each heading, then its rows' commands."""
    parts = []
    for heading, group in by_heading(lines):
        header, cells = grid(group)
        rules = ["---" if at < 3 else "---:" for at in range(len(header))]
        parts += [f"**{heading.paper.id}:{heading.name}**: {about(heading)}\n"]
        parts += ["| " + " | ".join(map(markdown_cell, row)) + " |" for row in (header, rules, *cells)]
        parts.append("")
        for line in group:
            notes = [*(f"`{command}`" for command in line.commands), *remarks(line)]
            parts.append(f"- {line.row.row} {line.row.method}" + (f": {'; '.join(notes)}" if notes else ""))
        parts += ["", *(f"- {sentence}" for sentence in missing(group)), ""]
    return "\n".join(parts) + "\n"


def latex(lines: Sequence[Line]) -> str:
    """A booktabs table each heading, as wide as both columns of a page, with its rows' commands as comments."""
    parts = [PACKAGES.rstrip()]
    for heading, group in by_heading(lines):
        header, cells = grid(group)
        caption = f"{escaped(title(heading))}. {escaped(FOOT)}"
        parts += [
            "", latex_table([header, *cells], caption, f"{heading.paper.id}:{heading.name}", left=3).rstrip(),
            *(comment(f"{line.row.row} {line.row.method}: {text}") for line in group
              for text in (*line.commands, *remarks(line))),
            *map(comment, missing(group)),
        ]
    return "\n".join(parts) + "\n"


def title(heading: Heading) -> str:
    """"simcse:5: sts, spearman, all, test"."""
    return f"{heading.paper.id}:{heading.name}: {about(heading)}"


def about(heading: Heading) -> str:
    """"sts, spearman, all, test"."""
    words = (heading.protocol, heading.task, heading.metric, heading.aggregation, heading.split, heading.unit)
    return ", ".join(word for word in words if word)


def remarks(line: Line) -> list[str]:
    """What a reader must know of a row: its note, and what was measured and does not count."""
    texts = [f"note: {line.way.note}"] if line.way and line.way.note else []
    return texts + [f"no reproduction: {change}" for change in line.changed]


def missing(lines: Sequence[Line]) -> list[str]:
    """"missing for 7, 11: training text ..." of rows that share a heading."""
    return [f"missing for {', '.join(str(row.row) for row in rows)}: {what}" for what, rows in missing_of(lines).items()]
