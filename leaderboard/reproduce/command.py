"""`stsbench reproduce`: a paper's table, printed beside what was measured here, with the command of every row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stsbench.cli.output.json_file import write_json
from stsbench.cli.output.messages import echo
from stsbench.registry import names, resolve

if TYPE_CHECKING:
    from rich.console import Console

    from .table import Line

STUDIES = "stsbench.reproduce_studies"  # entry points: a function of the authors' result files, None where none are given


@click.command("reproduce", short_help="Print a paper's table, what was measured of it here, and each row's command.")
@click.argument("table", required=False, metavar="[PAPER[:TABLE[:ROW]]]")
@click.option("--runs", type=click.Path(path_type=Path, exists=True, file_okay=False), help="Where runs of `stsbench train` "
              "and `stsbench eval` are looked for, in all folders below (default: ./runs, where there is one).")
@click.option("--board", type=click.Path(path_type=Path), help="The board whose measured entries count (default: "
              "./leaderboard, where there is one).")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Data in SentEval's layout; the commands name it, too.")
@click.option("--results", type=click.Path(path_type=Path, exists=True), help="For a study "
              f"({', '.join(names(STUDIES)) or 'none is installed'}): its result files, a clone of its authors' repository.")
@click.option("--format", "form", type=click.Choice(["table", "latex", "markdown", "csv"]), default="table",
              show_default=True, help="latex, markdown: tables to paste; csv: a line each figure.")
@click.option("--json", "json_target", metavar="FILE|-", help="Write the rows as JSON; - makes stdout pure JSON.")
def reproduce(
    table: str | None, runs: Path | None, board: Path | None, data_dir: Path | None, results: Path | None, form: str,
    json_target: str | None,
) -> None:
    """What a paper's table prints, what was measured of it here, and how each row is run.

    PAPER:TABLE is a table, as simcse:5; PAPER lists a paper's tables; without it the papers are listed. A row counts as
    reproduced only by its very recipe or command, under the table's protocol and metric, on the catalog's data.

    A study by its name, with --results, has its figures and claims recomputed from its authors' result files. No model is
    run.
    """
    from .api import reproduce as reproduce_table

    if table in names(STUDIES):
        _study(table, results, form, json_target)
        return
    if results is not None:
        raise click.UsageError(f"--results goes with {' or '.join(names(STUDIES)) or 'a study, and none is installed'}")
    if table is None or ":" not in table:
        if json_target or form != "table":
            raise click.UsageError("--json and --format go with a table, PAPER:TABLE")
        _list(table)
        return
    made = reproduce_table(table, runs=runs, board=board, data_dir=data_dir)
    if json_target != "-":
        print_lines(made.lines, form)
    if json_target:
        write_json(made.as_json(), json_target)


def _study(name: str, results: Path | None, form: str, json_target: str | None) -> None:
    """A study, from its result files."""
    from stsbench.cli.output.grid import Column, print_columns, print_text

    made = resolve(STUDIES, name)(results)
    if json_target:
        write_json(made.as_json(), json_target)
    if json_target == "-":
        return
    if form != "table":
        echo({"latex": made.latex, "markdown": made.markdown, "csv": made.csv}[form](), nl=False)
        return
    console = _console()
    for title, (header, *cells) in made.tables():
        print_text(console, title)
        columns = zip(header, zip(*cells, strict=True), strict=True)
        print_columns(console, [Column(name, column, not at) for at, (name, column) in enumerate(columns)])
    for line in made.remarks():
        print_text(console, line)


def _list(paper: str | None) -> None:
    """The tables of a paper, or all papers, with the numbers of rows that a recipe or a command makes."""
    from rich.table import Table

    from stsbench.cli.output.grid import plain

    from .api import papers

    grid = Table()
    grid.add_column("paper" if paper is None else "table", no_wrap=True)
    grid.add_column("what", overflow="fold")
    for name in ("rows", "by a\nrecipe", "by stsbench\neval", "not\nhere"):
        grid.add_column(name, justify="right", no_wrap=True)
    listed = papers(paper).rows
    for name, what, number in listed:
        numbers = (number.rows, number.recipe, number.eval, number.without)
        grid.add_row(plain(name), plain(what), *map(str, numbers))
    if paper is None:
        columns = zip(*((made.rows, made.recipe, made.eval, made.without) for _, _, made in listed), strict=True)
        grid.add_row("all", "", *map(str, map(sum, columns)))
    _console().print(grid)


def print_lines(lines: Sequence[Line], form: str) -> None:
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
