"""`stsbench reproduce`: a paper's table, printed beside what was measured here, with the command of every row."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from stsbench.cli.output.json_file import write_json
from stsbench.cli.output.messages import echo

if TYPE_CHECKING:
    from rich.console import Console

    from .table import Line


@click.command("reproduce")
@click.argument("table", required=False, metavar="[PAPER[:TABLE[:ROW]]]")
@click.option("--runs", type=click.Path(path_type=Path, exists=True, file_okay=False), help="Where runs of `stsbench train` "
              "and `stsbench eval` are looked for, in all folders below (default: ./runs, where there is one).")
@click.option("--board", type=click.Path(path_type=Path), help="The board whose measured entries count (default: "
              "./leaderboard, where there is one).")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Data in SentEval's layout; the commands name it, too.")
@click.option("--format", "form", type=click.Choice(["table", "latex", "markdown", "csv"]), default="table",
              show_default=True, help="latex, markdown: tables to paste; csv: a line each figure.")
@click.option("--json", "json_target", metavar="FILE|-", help="Write the rows as JSON; - makes stdout pure JSON.")
def reproduce(
    table: str | None, runs: Path | None, board: Path | None, data_dir: Path | None, form: str, json_target: str | None
) -> None:
    """What a paper's table prints, what was measured of it here, and how each row is run.

    PAPER:TABLE is a table, as simcse:5; PAPER lists a paper's tables; without it the papers are listed. A row counts as
    reproduced only by its very recipe or command, under the table's protocol and metric, on the catalog's data.
    """
    from stsbench.leaderboard.publications.load import load_publications
    from stsbench.leaderboard.reproduce import table as rows_of

    if table is None or ":" not in table:
        if json_target or form != "table":
            raise click.UsageError("--json and --format go with a table, PAPER:TABLE")
        _list(table)
        return
    publications = load_publications()
    rows = rows_of.find_rows(table, publications)
    lines = rows_of.lines_of(publications, rows, runs=runs or Path("runs"), board=_board(board), data_dir=data_dir)
    if json_target != "-":
        print_lines(lines, form)
    if json_target:
        write_json([line.as_json() for line in lines], json_target)


def _board(named: Path | None) -> Path | None:
    """The board's folder, None where none is named and none is here. StsbenchError: what is named is none."""
    from stsbench.leaderboard.records.paths import find_board

    return find_board(named) if named is not None or Path("leaderboard", "measured").is_dir() else None


def _list(paper: str | None) -> None:
    """The tables of a paper, or all papers, with the numbers of rows that a recipe or a command makes."""
    from rich.table import Table

    from stsbench.cli.output.grid import plain
    from stsbench.leaderboard.reproduce import table as rows_of

    from .forms import about

    publications, resolved = rows_of.all_ways()
    grid = Table()
    grid.add_column("paper" if paper is None else "table", no_wrap=True)
    grid.add_column("what", overflow="fold")
    for name in ("rows", "by a\nrecipe", "by stsbench\neval", "not\nhere"):
        grid.add_column(name, justify="right", no_wrap=True)
    if paper is None:
        groups = [(publication.paper.id, publication.paper.title, list(publication.rows)) for publication in publications]
    else:
        chosen = rows_of.find_paper(paper, publications)
        groups = [(f"{paper}:{heading.name}", about(heading), rows) for heading, rows in rows_of.headings(chosen.rows)]
    for name, what, rows in groups:
        number = rows_of.count(rows, resolved)
        numbers = (number.rows, number.recipe, number.eval, number.without)
        grid.add_row(plain(name), plain(what), *map(str, numbers))
    if paper is None:
        whole = rows_of.count([row for publication in publications for row in publication.rows], resolved)
        grid.add_row("all", "", *map(str, (whole.rows, whole.recipe, whole.eval, whole.without)))
    _console().print(grid)


def print_lines(lines: list[Line], form: str) -> None:
    """Write rows to stdout as a table for people, or in a form to paste."""
    from stsbench.cli.output.grid import print_text
    from stsbench.leaderboard.reproduce import forms

    from .cells import FOOT, grid
    from .table import by_heading

    if form != "table":
        echo({"latex": forms.latex, "markdown": forms.markdown, "csv": forms.as_csv}[form](lines), nl=False)
        return
    console = _console()
    for heading, group in by_heading(lines):
        print_text(console, forms.title(heading))
        if heading.note:
            print_text(console, heading.note)
        _table(console, *grid(group))
        for line in group:
            _how(console, line)
        for sentence in forms.missing(group):
            print_text(console, sentence)
    print_text(console, FOOT)


def _table(console: Console, header: list[str], cells: list[list[str]]) -> None:
    from stsbench.cli.output.grid import Column, print_columns

    columns = zip(header, zip(*cells, strict=True), strict=True)
    print_columns(console, [Column(name, column, at < 3, 30) for at, (name, column) in enumerate(columns)], repeated=3)


def _how(console: Console, line: Line) -> None:
    from stsbench.cli.output.grid import plain, print_text
    from stsbench.leaderboard.reproduce import forms

    row = line.row
    print_text(console, f"{row.row} {row.method}" + (f", {row.backbone}" if row.backbone else ""))
    for command in line.commands:
        console.print(plain(f"    {command}"), soft_wrap=True)
    for remark in forms.remarks(line):
        print_text(console, f"    {remark}")


def _console() -> Console:
    from stsbench.cli.output.grid import console_of

    return console_of(markup=False)
