"""Reproduced tables: what people read of them, and rows for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from stsbench.display.table import Table
from stsbench.leaderboard.publications.model import Heading

from .cells import grid
from .measured import columns_of, printed
from .table import Line, missing_of

COLUMNS = ("row", "method", "backbone", "protocol", "aggregation", "metric", "split", "column", "published", "name",
           "measured", "sd", "n")


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


def shown_table(heading: Heading, lines: Sequence[Line]) -> Table:
    """Return the table of rows that share a heading; below it how each is run."""
    header, cells = grid(lines)
    notes = [*([heading.note] if heading.note else []), *(text for line in lines for text in _how(line))]
    return Table.of(title(heading), header, cells, notes=notes, names=3, label=f"{heading.paper.id}:{heading.name}")


def _how(line: Line) -> list[str]:
    """How a row is run, and what must be known of it."""
    row = line.row
    name = f"{row.row} {row.method}" + (f", {row.backbone}" if row.backbone else "")
    return [f"    {name}", *(f"        {text}" for text in (*line.commands, *remarks(line)))]


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
