"""Tables of scores that fit where they are printed: never a wrapped number, which reads as another one."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TextIO

from rich.console import Console, JustifyMethod
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from stsbench.wording import printable

WIDTH = 200  # of a pipe or a file, which has no width of its own


@dataclass(frozen=True)
class Column:
    """A header, of one or two lines, and a cell a row. left: words; most: their width, beyond which they are wrapped."""

    header: str
    cells: Sequence[str]
    left: bool = False
    most: int | None = None


def console_of(stream: TextIO | None = None, *, markup: bool = True) -> Console:
    """A console on `stream` (stdout), as wide as the terminal; a pipe or a file gets `WIDTH`."""
    target = stream or sys.stdout
    return Console(file=target, width=None if target.isatty() else WIDTH, highlight=False, markup=markup)


def plain(text: str, style: str = "") -> Text:
    """Foreign text as it is: neither rich's markup nor what a terminal obeys has an effect."""
    return Text(printable(text), style)


def print_text(console: Console, text: str) -> None:
    """A paragraph: between words it goes on in the next line of a terminal; of a pipe or a file it is one line."""
    console.print(plain(text), soft_wrap=not console.is_terminal)


def print_columns(
    console: Console, columns: Sequence[Column], *, repeated: int = 1, lines_above: Collection[int] = ()
) -> None:
    """One table; on a narrower terminal one without spaces beside its lines or, where that is too wide as well, several
    with the first `repeated` columns in each and at least two others.

    `lines_above` has the rows that get a line above them.
    """
    tight = _table(columns, lines_above, padding=0)
    if _width(console, _table(columns, lines_above)) > console.width >= _width(console, tight):
        console.print(tight)
        return
    names, rest = list(columns[:repeated]), list(columns[repeated:])
    while rest:
        many = len(rest)
        while many > 1 and _width(console, _table([*names, *rest[:many]], lines_above)) > console.width:
            many -= 1
        if many == len(rest) - 1 > 2:  # the last column would be a table of its own
            many -= 1
        console.print(_table([*names, *rest[:many]], lines_above))
        rest = rest[many:]


def _table(columns: Sequence[Column], lines_above: Collection[int], padding: int = 1) -> Table:
    table = Table(padding=(0, padding))
    for column in columns:
        justify: JustifyMethod = "left" if column.left else "right"
        table.add_column(plain(column.header), justify=justify, max_width=column.most, overflow="fold")
    for index, cells in enumerate(zip(*(column.cells for column in columns), strict=True)):
        if index in lines_above:
            table.add_section()
        table.add_row(*(plain(cell) for cell in cells))
    return table


def _width(console: Console, table: Table) -> int:
    return Measurement.get(console, console.options.update(max_width=10_000), table).maximum
