"""The functions `reproduce` and `papers`: papers' tables, in which each published row is followed by the measurements here
that reproduce it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stsbench.display.table import Document, Table
from stsbench.display.tabular import Tabular
from stsbench.errors import StsbenchError
from stsbench.leaderboard.records.paths import find_board
from stsbench.leaderboard.records.publications import Heading, PublishedRow, load_publications
from stsbench.wording import counted

from .runs import AVERAGE, Mean, Reproduction, printed, table_columns
from .table import (
    Count,
    Line,
    all_ways,
    by_heading,
    count,
    find_paper,
    find_rows,
    headings,
    missing_requirements,
    table_lines,
)

if TYPE_CHECKING:
    import pyarrow as pa

FOOT = (
    "published: as printed, ± over the paper's runs; measured: here, ± over seeds (n - 1); difference: measured minus "
    "published. A changed recipe, other data and another protocol are no reproduction."
)
COLUMNS = ("row", "method", "backbone", "protocol", "aggregation", "metric", "split", "column", "published", "name",
           "measured", "sd", "n")


def grid(lines: Sequence[Line]) -> tuple[list[str], list[list[str]]]:
    """Return the header and the lines of cells for rows that share a heading."""
    heading = lines[0].row.heading
    columns = list(dict.fromkeys(column for line in lines for column in table_columns(line.row)))
    header = ["row", "method", "what", *(heading.average if column == AVERAGE and heading.average else column
                                        for column in columns)]
    cells = []
    for line in lines:
        row = line.row
        method = row.method + (f", {row.backbone}" if row.backbone else "")
        cells.append([str(row.row), method, "published", *(_published(row, column) for column in columns)])
        for reproduction in line.measured:
            cells += _measured(row, reproduction, columns)
    return header, cells


def _published(row: PublishedRow, column: str) -> str:
    figure = printed(row, column)
    if figure is None:
        return ""
    columns = row.heading.columns
    sd = row.average_sd if column not in columns else row.sd[columns.index(column)] if row.sd else None
    return f"{figure:.{row.printed_decimals}f}" + ("" if sd is None else f" ± {sd:g}")


def _measured(row: PublishedRow, reproduction: Reproduction, columns: Sequence[str]) -> list[list[str]]:
    """Return the line of cells of a measurement, and that of its differences from the published figures."""
    seeds = max(mean.n for mean in reproduction.figures.values())
    what = "measured" if seeds == 1 else f"measured, {seeds} seeds"
    digits = max(2, row.printed_decimals)
    means = [reproduction.figures.get(column) for column in columns]
    differences = [_difference(row, column, mean, digits) for column, mean in zip(columns, means, strict=True)]
    return [
        ["", reproduction.name, what, *("" if mean is None else _mean_text(mean, digits) for mean in means)],
        ["", "", "difference", *differences],
    ]


def _mean_text(mean: Mean, digits: int) -> str:
    return f"{mean.mean:.{digits}f}" + (f" ± {mean.sd:.{digits}f}" if mean.sd is not None else "")


def _difference(row: PublishedRow, column: str, mean: Mean | None, digits: int) -> str:
    figure = printed(row, column)
    return "" if figure is None or mean is None else f"{mean.mean - figure:+.{digits}f}"


def figures(line: Line) -> Iterator[dict[str, Any]]:
    """Yield a mapping of some COLUMNS for each published figure, followed by one for each measurement of it."""
    row, heading = line.row, line.row.heading
    about = {"row": row.id, "method": row.method, "backbone": row.backbone, "protocol": heading.protocol,
             "aggregation": heading.aggregation, "metric": heading.metric, "split": heading.split}
    for column in table_columns(row):
        yield {**about, "column": column, "published": printed(row, column)}
        for reproduction in line.measured:
            if mean := reproduction.figures.get(column):
                figures = {"measured": mean.mean, "sd": mean.sd, "n": mean.n}
                yield {**about, "column": column, "name": reproduction.name, **figures}


def shown_table(heading: Heading, lines: Sequence[Line]) -> Table:
    """Return the table of rows that share a heading, with the commands of each row as notes below it."""
    header, cells = grid(lines)
    notes = [*([heading.note] if heading.note else []), *(text for line in lines for text in _how(line))]
    name = f"{heading.paper.id}:{heading.name}"
    return Table.from_rows(f"{name}: {about(heading)}", header, cells, notes=notes, names=3, label=name)


def _how(line: Line) -> list[str]:
    """Return lines with the commands of a row and remarks on it."""
    row = line.row
    name = f"{row.row} {row.method}" + (f", {row.backbone}" if row.backbone else "")
    return [f"    {name}", *(f"        {text}" for text in (*line.commands, *remarks(line)))]


def about(heading: Heading) -> str:
    """Return a description of a heading, as in "sts, spearman, all, test"."""
    words = (heading.protocol, heading.task, heading.metric, heading.aggregation, heading.split, heading.unit)
    return ", ".join(word for word in words if word)


def remarks(line: Line) -> list[str]:
    """Return remarks on a row: its note, and the measurements that do not count as reproductions."""
    texts = [f"note: {line.way.note}"] if line.way and line.way.note else []
    return texts + [f"no reproduction: {change}" for change in line.changed]


def missing(lines: Sequence[Line]) -> list[str]:
    """Return a line for each missing requirement of rows that share a heading: "missing for 7, 11: training text ..."."""
    missing = missing_requirements(lines)
    return [f"missing for {', '.join(str(row.row) for row in rows)}: {what}" for what, rows in missing.items()]


@dataclass(frozen=True, repr=False)
class PaperTable(Tabular):
    """A paper's table, or some of its rows: published figures, figures measured here, and the command of each row."""

    name: str  # as given to `reproduce`: "simcse:5"
    lines: tuple[Line, ...]

    def __repr__(self) -> str:
        measured = sum(bool(line.measured) for line in self.lines)
        return f"<PaperTable {self.name}: {counted(len(self.lines), 'row')}, {measured} measured here; print it>"

    def document(self) -> Document:
        """Return a table for each heading, with each row's commands and what is missing to run them."""
        groups = by_heading(self.lines)
        lacking = [line for _, group in groups for line in missing(group)]
        return Document([shown_table(heading, group) for heading, group in groups], below=[*lacking, FOOT])

    def to_arrow(self) -> pa.Table:
        """Return a table with a row for each published figure and one for each measurement of it, as --format csv."""
        import pyarrow

        rows = [row for line in self.lines for row in figures(line)]
        return pyarrow.table({name: [row.get(name) for row in rows] for name in COLUMNS})

    def as_json(self) -> list[dict[str, Any]]:
        """Return what --json writes, as plain data."""
        return [line.as_json() for line in self.lines]


@dataclass(frozen=True, repr=False)
class Papers(Tabular):
    """The papers whose tables are known, or one paper's tables. rows: (name, description, numbers of rows) of each."""

    paper: str | None
    rows: tuple[tuple[str, str, Count], ...]

    def __repr__(self) -> str:
        what = "Papers" if self.paper is None else f"Papers: tables of {self.paper}"
        return f"<{what}: {', '.join(name for name, _, _ in self.rows)}>"

    def to_arrow(self) -> pa.Table:
        """Return a table with the columns name, what, and numbers of rows: rows (all), by_recipe, by_eval, not_here."""
        import pyarrow

        header, *lines = self._values()
        return pyarrow.table(dict(zip(header, map(list, zip(*lines, strict=True)), strict=True)))

    def _values(self) -> list[list[Any]]:
        header: list[Any] = ["name", "what", "rows", "by_recipe", "by_eval", "not_here"]
        return [header, *([name, what, made.rows, made.recipe, made.eval, made.without] for name, what, made in self.rows)]

    def document(self) -> Document:
        """Return a table with a row for each paper or table and, for papers, a row of totals."""
        kind, title = ("paper", "papers") if self.paper is None else ("table", f"tables of {self.paper}")
        _, *lines = self._values()
        if self.paper is None:
            lines.append(["all", "", *map(sum, list(zip(*lines, strict=True))[2:])])
        header = [kind, "what", "rows", "by a recipe", "by stsbench eval", "not here"]
        return Document([Table.from_rows(title, header, lines, rules=[len(self.rows)] if self.paper is None else ())])


def reproduce(
    table: str, *, runs: str | Path | None = None, board: str | Path | None = None, data_dir: str | Path | None = None
) -> PaperTable:
    """Return a paper's table with the measurements here that reproduce it and each row's command, as `stsbench reproduce`.

    table: PAPER:TABLE, as "simcse:5", or PAPER:TABLE:ROW; `stsbench.leaderboard.papers` lists them. runs: the folder below
    which runs are searched for (./runs, if it exists). board: the board whose entries count (./leaderboard, if it exists).
    data_dir: data in SentEval's layout, which the commands then name. A row counts as reproduced only by exactly its recipe
    or command, under its table's protocol and metric. Raises StsbenchError for unknown tables, folders or edited records.

    >>> import stsbench
    >>> stsbench.reproduce("simcse:5:7")
    <PaperTable simcse:5:7: 1 row, 0 measured here; print it>
    """
    if ":" not in table:
        raise StsbenchError(f"'{table}' names no table: write PAPER:TABLE, as simcse:5; stsbench.leaderboard.papers() lists "
                            f"the papers, papers('simcse') the tables of one")
    if runs is not None and not Path(runs).is_dir():
        raise StsbenchError(f"{runs}: there is no such folder")
    publications = load_publications()
    rows = find_rows(table, publications)
    lines = table_lines(publications, rows, runs=Path(runs or "runs"), board=_board(board),
                     data_dir=None if data_dir is None else Path(data_dir))
    return PaperTable(table, tuple(lines))


def papers(paper: str | None = None) -> Papers:
    """Return the papers whose tables `reproduce` knows, or the tables of `paper`, with numbers of rows by how they are made.

    Raises StsbenchError, naming the most similar one, for an unknown paper.

    >>> from stsbench import leaderboard
    >>> leaderboard.papers("bert-flow")
    <Papers: tables of bert-flow: bert-flow:2, bert-flow:3>
    """
    publications, resolved = all_ways()
    if paper is None:
        groups = [(publication.paper.id, publication.paper.title, list(publication.rows)) for publication in publications]
    else:
        chosen = find_paper(paper, publications)
        groups = [(f"{paper}:{heading.name}", about(heading), rows) for heading, rows in headings(chosen.rows)]
    return Papers(paper, tuple((name, what, count(rows, resolved)) for name, what, rows in groups))


def _board(board: str | Path | None) -> Path | None:
    """Return the board's folder: `board`, else ./leaderboard, None if that has no measured/. Raises StsbenchError if `board`
    is not a board."""
    looked_for = board is not None or Path("leaderboard", "measured").is_dir()
    return find_board(board) if looked_for else None
