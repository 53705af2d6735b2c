"""The rows of a paper's table with their commands, missing requirements and measurements here; search for papers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stsbench.errors import StsbenchError
from stsbench.leaderboard.records.paths import records_folder
from stsbench.leaderboard.records.publications import Heading, Publication, PublishedRow, load_publications
from stsbench.registry import did_you_mean, names
from stsbench.training.recipes.methods import GROUP
from stsbench.training.recipes.recipes import recipe_names

from .commands import Surroundings, commands, protocol_option
from .runs import Reproduction, Run, board_runs, changed, local_runs, printed, reproductions, table_columns
from .ways import Way, load_ways, resolve

NO_WAY = "no recipe holds these figures, and no command is stated for them"


@dataclass(frozen=True)
class Line:
    """A row of a paper's table. way: how it is made, None if unknown; needs: what is missing to run its commands."""

    row: PublishedRow
    way: Way | None
    commands: tuple[str, ...]
    needs: tuple[str, ...]
    measured: tuple[Reproduction, ...]
    changed: tuple[str, ...] = field(default=())

    def as_json(self) -> dict[str, Any]:
        """Return the row as --json writes it, with published and measured figures in separate fields."""
        row, heading, way = self.row, self.row.heading, self.way
        columns = table_columns(row)
        return {
            "row": row.id, "method": row.method, "backbone": row.backbone, "protocol": heading.protocol,
            "metric": heading.metric, "aggregation": heading.aggregation, "split": heading.split,
            "published": {column: printed(row, column) for column in columns}, "published_runs": row.runs,
            "measured": [
                {"name": reproduction.name, "scores": {column: vars(mean) for column, mean in reproduction.figures.items()}}
                for reproduction in self.measured
            ],
            "recipe": way.recipe if way else None, "commands": list(self.commands), "missing": list(self.needs),
            "note": way.note if way else None, "changed": list(self.changed),
        }


def table_lines(
    publications: Sequence[Publication], rows: Sequence[PublishedRow], *, runs: Path, board: Path | None,
    data_dir: Path | None,
) -> list[Line]:
    """Return a line for each of `rows`. runs: folder of local runs; board: the board's folder, None for none.

    Raises StsbenchError, naming the file, for records that were edited.
    """
    resolved = resolve(publications, load_ways())
    made = [resolved[row.id] for row in rows if row.id in resolved]
    protocols = {(protocol_option(row.heading) or "").partition(":")[0] for row in rows}
    measured = local_runs(runs, protocols)
    if board is not None:
        measured += board_runs(records_folder(board, None) / "measured", made, protocols, measured)
    here = Surroundings(data_dir)
    return [_line(row, resolved.get(row.id), measured, here) for row in rows]


def _line(row: PublishedRow, way: Way | None, runs: Sequence[Run], surroundings: Surroundings) -> Line:
    if way is None:
        return Line(row, None, (), (NO_WAY,), ())
    return Line(
        row, way, tuple(commands(row, way, surroundings.data_dir)), tuple(surroundings.missing(way, row.heading)),
        tuple(reproductions(row, way, runs)), tuple(changed(way, runs)),
    )


def find_rows(text: str, publications: Sequence[Publication]) -> list[PublishedRow]:
    """Return the rows of PAPER:TABLE (all parts), of PAPER:TABLE/PART, or of PAPER:TABLE:ROW (that row of each part).

    Raises StsbenchError, naming the most similar paper or table, where there is none.
    """
    paper, _, rest = text.strip().partition(":")
    table, _, number = rest.partition(":")
    publication = find_paper(paper, publications)
    parts = {row.heading.table for row in publication.rows} | {row.heading.name for row in publication.rows}
    if table not in parts:
        hint = did_you_mean(table, sorted(parts))
        raise StsbenchError(f"{paper} has no table '{table}' (stsbench reproduce {paper} lists them){hint}")
    rows = [row for row in publication.rows if table in (row.heading.table, row.heading.name)]
    if not number:
        return rows
    if chosen := [row for row in rows if str(row.row) == number]:
        return chosen
    numbers = ", ".join(map(str, sorted({row.row for row in rows})))
    raise StsbenchError(f"table {table} of {paper} has no row '{number}'; its rows: {numbers}")


def find_paper(name: str, publications: Sequence[Publication]) -> Publication:
    """Return the publication with the id `name`. Raises StsbenchError, naming the most similar id, if there is none."""
    for publication in publications:
        if publication.paper.id == name:
            return publication
    hint = did_you_mean(name, [item.paper.id for item in publications])
    raise StsbenchError(f"no published table is held of '{name}' (stsbench reproduce lists the papers){hint}")


def headings(rows: Iterable[PublishedRow]) -> list[tuple[Heading, list[PublishedRow]]]:
    """Return (heading, rows) pairs: a table that is split into parts or aggregations has several headings."""
    groups: list[tuple[Heading, list[PublishedRow]]] = []
    for row in rows:
        if not groups or groups[-1][0] is not row.heading:
            groups.append((row.heading, []))
        groups[-1][1].append(row)
    return groups


def by_heading(lines: Sequence[Line]) -> list[tuple[Heading, list[Line]]]:
    """Return (heading, lines) pairs, as `headings` groups the lines' rows."""
    by_id = {line.row.id: line for line in lines}
    return [(heading, [by_id[row.id] for row in rows]) for heading, rows in headings(line.row for line in lines)]


@dataclass(frozen=True)
class Count:
    """Numbers of rows: all, those made by a recipe, and those made by a command of `stsbench eval` alone."""

    rows: int
    recipe: int
    eval: int

    @property
    def without(self) -> int:
        """Return the number of rows that neither a recipe nor a command makes."""
        return self.rows - self.recipe - self.eval


def count(rows: Sequence[PublishedRow], resolved: Mapping[str, Way]) -> Count:
    """Return the numbers of `rows` by how they are made. A row whose recipe does not exist here counts as not made."""
    made = [resolved[row.id] for row in rows if row.id in resolved]
    here = {f"{method}/{name}" for method in names(GROUP) for name in recipe_names(method)}
    untrained = sum(way.eval is not None and not way.recipes for way in made)
    return Count(len(rows), sum(bool(way.recipes) and here.issuperset(way.recipes) for way in made), untrained)


def missing_requirements(lines: Sequence[Line]) -> dict[str, list[PublishedRow]]:
    """Return missing requirement -> the rows that need it, in their order."""
    needed_by: dict[str, list[PublishedRow]] = {}
    for line in lines:
        for need in line.needs:
            needed_by.setdefault(need, []).append(line.row)
    return needed_by


def all_ways() -> tuple[list[Publication], dict[str, Way]]:
    """Return every publication, and row id -> way of all rows that have one."""
    publications = load_publications()
    return publications, resolve(publications, load_ways())
