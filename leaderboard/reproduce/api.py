"""`reproduce` and `papers`: papers' tables beside what was measured here, for Python."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stsbench.display.table import Document, Table
from stsbench.display.tabular import Tabular
from stsbench.errors import StsbenchError
from stsbench.leaderboard.publications.load import load_publications
from stsbench.leaderboard.records.paths import find_board
from stsbench.wording import counted

from . import forms
from .cells import FOOT
from .table import Count, Line, all_ways, by_heading, count, find_paper, find_rows, headings, lines_of

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, repr=False)
class PaperTable(Tabular):
    """A paper's table, or some of its rows: what was published, what was measured here, and how each row is run."""

    name: str  # "simcse:5", as it was asked for
    lines: tuple[Line, ...]

    def __repr__(self) -> str:
        measured = sum(bool(line.measured) for line in self.lines)
        return f"<PaperTable {self.name}: {counted(len(self.lines), 'row')}, {measured} measured here; print it>"

    def document(self) -> Document:
        """Return a table for each heading, with each row's commands and what is missing to run them."""
        groups = by_heading(self.lines)
        missing = [line for _, group in groups for line in forms.missing(group)]
        return Document([forms.shown_table(heading, group) for heading, group in groups], below=[*missing, FOOT])

    def to_arrow(self) -> pa.Table:
        """Return a row for each figure that is published, and one for each measurement of it, as --format csv."""
        import pyarrow

        rows = [row for line in self.lines for row in forms.figures(line)]
        return pyarrow.table({name: [row.get(name) for row in rows] for name in forms.COLUMNS})

    def as_json(self) -> list[dict[str, Any]]:
        """What --json writes, as plain data."""
        return [line.as_json() for line in self.lines]


@dataclass(frozen=True, repr=False)
class Papers(Tabular):
    """The papers whose tables are held, or the tables of one: (name, what it is, how many rows are made how)."""

    paper: str | None
    rows: tuple[tuple[str, str, Count], ...]

    def __repr__(self) -> str:
        what = "Papers" if self.paper is None else f"Papers: tables of {self.paper}"
        return f"<{what}: {', '.join(name for name, _, _ in self.rows)}>"

    def to_arrow(self) -> pa.Table:
        """Return the columns name, what, how many rows there are, and how many a recipe, `evaluate` and nothing makes."""
        import pyarrow

        header, *lines = self._values()
        return pyarrow.table(dict(zip(header, map(list, zip(*lines, strict=True)), strict=True)))

    def _values(self) -> list[list[Any]]:
        header: list[Any] = ["name", "what", "rows", "by_recipe", "by_eval", "not_here"]
        return [header, *([name, what, made.rows, made.recipe, made.eval, made.without] for name, what, made in self.rows)]

    def document(self) -> Document:
        """Return a row each, and of all papers one of all."""
        kind, title = ("paper", "papers") if self.paper is None else ("table", f"tables of {self.paper}")
        _, *lines = self._values()
        if self.paper is None:
            lines.append(["all", "", *map(sum, list(zip(*lines, strict=True))[2:])])
        header = [kind, "what", "rows", "by a recipe", "by stsbench eval", "not here"]
        return Document([Table.of(title, header, lines, rules=[len(self.rows)] if self.paper is None else ())])


def reproduce(
    table: str, *, runs: str | Path | None = None, board: str | Path | None = None, data_dir: str | Path | None = None
) -> PaperTable:
    """A paper's table beside what was measured of it here, with the command of each row, as `stsbench reproduce`.

    table: PAPER:TABLE, as "simcse:5", or PAPER:TABLE:ROW; `stsbench.leaderboard.papers` lists them. runs: where runs are
    looked for, in all folders below (./runs, where there is one). board: the board whose entries count (./leaderboard, where
    there is one). data_dir: data in SentEval's layout, which the commands then name. A row counts as reproduced only by its
    very recipe or command, under the table's protocol and metric. Raises StsbenchError for an unknown table, folders that
    are not there, and records that were edited.

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
    lines = lines_of(publications, rows, runs=Path(runs or "runs"), board=_board(board),
                     data_dir=None if data_dir is None else Path(data_dir))
    return PaperTable(table, tuple(lines))


def papers(paper: str | None = None) -> Papers:
    """The papers whose tables `reproduce` knows, or the tables of `paper`, with how many of their rows are made how.

    Raises StsbenchError, with the nearest one, for a paper that is not held.

    >>> from stsbench import leaderboard
    >>> leaderboard.papers("bert-flow")
    <Papers: tables of bert-flow: bert-flow:2, bert-flow:3>
    """
    publications, resolved = all_ways()
    if paper is None:
        groups = [(publication.paper.id, publication.paper.title, list(publication.rows)) for publication in publications]
    else:
        chosen = find_paper(paper, publications)
        groups = [(f"{paper}:{heading.name}", forms.about(heading), rows) for heading, rows in headings(chosen.rows)]
    return Papers(paper, tuple((name, what, count(rows, resolved)) for name, what, rows in groups))


def _board(named: str | Path | None) -> Path | None:
    """The board's folder, None where none is named and none is here. StsbenchError: what is named is none."""
    looked_for = named is not None or Path("leaderboard", "measured").is_dir()
    return find_board(None if named is None else Path(named)) if looked_for else None
