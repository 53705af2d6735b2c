"""`stsbench reproduce`: a paper's table, printed beside what was measured here, with the command of every row."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stsbench.files import atomic_write

if TYPE_CHECKING:
    from rich.console import Console

    from stsbench.leaderboard.publications.model import Heading
    from stsbench.leaderboard.reproduce.table import Line


@click.command("reproduce")
@click.argument("table", required=False, metavar="[PAPER[:TABLE[:ROW]]]")
@click.option("--runs", type=click.Path(path_type=Path), default=Path("runs"), show_default=True,
              help="Where runs of `stsbench train` and `stsbench eval` are looked for, in all folders below.")  # fmt: skip
@click.option("--board", type=click.Path(path_type=Path), help="The board whose measured entries count (default: "
              "./leaderboard, where there is one).")  # fmt: skip
@click.option("--data-dir", type=click.Path(path_type=Path), help="Data in SentEval's layout; the commands name it, too.")
@click.option("--format", "form", type=click.Choice(["table", "markdown"]), default="table", show_default=True)
@click.option("--json", "json_target", metavar="FILE|-", help="Write the rows as JSON; - makes stdout pure JSON.")
def reproduce(
    table: str | None, runs: Path, board: Path | None, data_dir: Path | None, form: str, json_target: str | None
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
    place = board or Path("leaderboard")
    measured = place if board is not None or (place / "measured").is_dir() else None
    lines = rows_of.lines_of(publications, rows, runs=runs, board=measured, data_dir=data_dir)
    if json_target != "-":
        _print(lines, form)
    if json_target:
        text = json.dumps([line.as_json() for line in lines], indent=1) + "\n"
        if json_target == "-":
            click.echo(text, nl=False)
            return
        with atomic_write(Path(json_target)) as stream:
            stream.write(text)


def _list(paper: str | None) -> None:
    """The tables of a paper, or all papers, with the numbers of rows that a recipe or a command makes."""
    from rich.table import Table
    from rich.text import Text

    from stsbench.leaderboard.reproduce import table as rows_of

    publications, ways = rows_of.all_ways()
    grid = Table("paper" if paper is None else "table", "what")
    for name in ("rows", "by a recipe", "by stsbench eval", "not here"):
        grid.add_column(name, justify="right")
    if paper is None:
        groups = [(each.paper.id, each.paper.title, list(each.rows)) for each in publications]
    else:
        chosen = rows_of.find_paper(paper, publications)
        groups = [(f"{paper}:{heading.name}", _about(heading), rows) for heading, rows in rows_of.headings(chosen.rows)]
    for name, what, rows in groups:
        number = rows_of.count(rows, ways)
        numbers = (number.rows, number.recipe, number.eval, number.without)
        grid.add_row(Text(name), Text(what), *map(str, numbers))
    if paper is None:
        whole = rows_of.count([row for each in publications for row in each.rows], ways)
        grid.add_row("all", "", *map(str, (whole.rows, whole.recipe, whole.eval, whole.without)))
    _console().print(grid)


def _print(lines: list[Line], form: str) -> None:
    from stsbench.leaderboard.reproduce.cells import FOOT, grid
    from stsbench.leaderboard.reproduce.table import headings

    console, by_id = _console(), {line.row.id: line for line in lines}
    for heading, rows in headings(line.row for line in lines):
        mine = [by_id[row.id] for row in rows]
        header, cells = grid(mine)
        name = f"{heading.paper.id}:{heading.name}"
        if form == "markdown":
            _markdown(f"**{name}**: {_about(heading)}", header, cells, mine)
            continue
        console.print(f"{name}: {_about(heading)}", soft_wrap=True)
        if heading.note:
            console.print(heading.note, soft_wrap=True)
        _table(console, header, cells)
        for line in mine:
            _how(console, line)
        for said in _missing(mine):
            console.print(said, soft_wrap=True)
    if form == "table":
        console.print(FOOT, soft_wrap=True)


def _table(console: Console, header: list[str], cells: list[list[str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for at, name in enumerate(header):
        table.add_column(Text(name), justify="left" if at < 3 else "right", no_wrap=at >= 3)
    for line in cells:
        table.add_row(*map(Text, line))
    console.print(table)


def _how(console: Console, line: Line) -> None:
    row = line.row
    console.print(f"{row.row} {row.method}" + (f", {row.backbone}" if row.backbone else ""), soft_wrap=True)
    for command in line.commands:
        console.print(f"    {command}", soft_wrap=True)
    for said in _said(line):
        console.print(f"    {said}", soft_wrap=True)


def _said(line: Line) -> list[str]:
    said = [f"note: {line.way.note}"] if line.way and line.way.note else []
    return said + [f"no reproduction: {each}" for each in line.changed]


def _missing(lines: list[Line]) -> list[str]:
    """"missing for 7, 11: training text ..." of rows that share a heading."""
    from stsbench.leaderboard.reproduce.table import missing_of

    return [f"missing for {', '.join(str(row.row) for row in rows)}: {what}" for what, rows in missing_of(lines).items()]


def _markdown(title: str, header: list[str], cells: list[list[str]], lines: list[Line]) -> None:
    rules = ["---" if at < 3 else "---:" for at in range(len(header))]
    click.echo(f"{title}\n")
    for row in (header, rules, *cells):
        click.echo("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
    click.echo()
    for line in lines:
        said = [*(f"`{each}`" for each in line.commands), *_said(line)]
        click.echo(f"- {line.row.row} {line.row.method}" + (f": {'; '.join(said)}" if said else ""))
    click.echo()
    for each in _missing(lines):
        click.echo(f"- {each}")
    click.echo()


def _about(heading: Heading) -> str:
    """"sts, spearman, all, test"."""
    words = (heading.protocol, heading.task, heading.metric, heading.aggregation, heading.split, heading.unit)
    return ", ".join(word for word in words if word)


def _console() -> Console:
    from rich.console import Console

    # A pipe or a file gets room for the whole table: a wrapped number is a wrong number.
    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else 200, highlight=False, markup=False)
