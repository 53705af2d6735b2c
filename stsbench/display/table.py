"""`Table`: columns of cells, rendered as text of any width, HTML, Markdown, LaTeX, CSV and as rows for programs."""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from itertools import groupby, zip_longest
from math import isnan
from typing import Any

from stsbench.display.markup import PACKAGES, caption, comment, latex_table, plain_markdown
from stsbench.wording import break_lines, csv_cell, display_width, printable, visible

_GAP = 2  # spaces between two columns
_WORDS = 24  # a cell of words is not made narrower than this, in columns of a terminal
_NUMBER = re.compile(r"[-+±<>~(\[]*\.?\d")  # the beginning of a cell that is read as a number
# A line may be broken after a word, after brackets with their content, and after a character of a script without spaces.
_PIECE = re.compile(r"\[[^\[\]]{1,40}\]\s*|[\u2e80-\u9fff\uac00-\ud7af\uff00-\uffef]\s*|"
                    r"[^\s\u2e80-\u9fff\uac00-\ud7af\uff00-\uffef]+\s*")
_SIDES = {True: ' style="text-align: left"', False: ' style="text-align: right"'}  # overrides the style of the page


@dataclass(frozen=True)
class Estimate:
    """A value with the ends of its interval, "82.03 [81.17, 82.85]"; only the value where these are None, and only the
    interval where the value is None."""

    value: float | None
    low: float | None = None
    high: float | None = None

    def __format__(self, form: str) -> str:
        value = "" if self.value is None else _number(self.value, form)
        if self.low is None or self.high is None:
            return value
        ends = form.removeprefix("+")
        return f"{value} [{self.low:{ends}}, {self.high:{ends}}]".lstrip()


Cell = str | int | float | Estimate | None


@dataclass(frozen=True)
class Column:
    """A header, with its unit, and a cell for each row; "[95 % interval]" is added to the displayed header of estimates.

    digits: decimals of numbers, or those of each row; signed: whether positive numbers show their sign; words: whether cells
    are left-aligned (None: unless they are numbers); detail: level of detail, 0 for the headline. Where a table is too wide,
    columns of one level are kept together, the headline first."""

    header: str
    cells: Sequence[Cell]
    digits: int | Sequence[int] = 2
    signed: bool = False
    words: bool | None = None
    detail: int = 0

    @cached_property
    def name(self) -> str:
        """Return the displayed header."""
        estimates = [cell for cell in self.cells if isinstance(cell, Estimate)]
        bounded = any(None not in (cell.value, cell.low, cell.high) for cell in estimates)
        return visible(f"{self.header} [95 % interval]" if bounded else self.header)

    @cached_property
    def texts(self) -> list[str]:
        """Return the displayed cells, each of one line."""
        digits = [self.digits] * len(self.cells) if isinstance(self.digits, int) else self.digits
        sign = "+" if self.signed else ""
        return [_text(cell, f"{sign}z.{count}f") for cell, count in zip(self.cells, digits, strict=True)]

    @cached_property
    def left(self) -> bool:
        """Return whether the cells are left-aligned."""
        if self.words is not None:
            return self.words
        return not any(map(_NUMBER.match, self.texts)) and bool(re.search(r"[^\W\d_]", "".join(self.texts)))

    @cached_property
    def longest(self) -> int:
        """Return the width of the widest cell, in columns of a terminal."""
        return max(map(display_width, self.texts), default=0)

    @cached_property
    def least(self) -> int:
        """Return the least width without broken words and numbers, and with at most three lines of header."""
        header = max(-(-display_width(self.name) // 3), *_pieces(self.name))
        if not self.left:
            return max(header, self.longest)
        words = (width for text in self.texts for width in _pieces(text))
        return max(header, min(self.longest, max(_WORDS, *words)))


@dataclass(frozen=True)
class Table:
    """Columns under a title, with notes below them; a note that begins with four spaces is a command, which is never broken.

    names: the number of first columns that name the rows; they are repeated in each part of a table that is too wide.
    rules: indices of rows that follow a line; strong: indices of bold rows; label: of LaTeX's \\label.

    >>> from stsbench.display.table import Column, Estimate, Table
    >>> scores = [Estimate(82.0341, 81.17, 82.85), Estimate(7.5)]
    >>> print(Table("sts: scores x 100", [Column("task", ["STS-B", "Avg"]), Column("spearman", scores)]).text())
    sts: scores x 100
    task   spearman [95 % interval]
    -----  ------------------------
    STS-B      82.03 [81.17, 82.85]
    Avg                        7.50
    """

    title: str
    columns: Sequence[Column]
    notes: Sequence[str] = ()
    names: int = 1
    rules: Collection[int] = ()
    label: str = ""
    strong: Collection[int] = ()

    @classmethod
    def from_rows(cls, title: str, header: Sequence[str], rows: Iterable[Sequence[Cell]], **about: Any) -> Table:
        """Return a table from rows of cells. about: further fields of the table, such as notes."""
        cells = list(zip(*rows, strict=True)) or [()] * len(header)
        return cls(title, [Column(name, its) for name, its in zip(header, cells, strict=True)], **about)

    @cached_property
    def lines(self) -> list[list[str]]:
        """Return the displayed cells row by row, the header first."""
        names = [column.name for column in self.columns]
        return [names, *map(list, zip(*(column.texts for column in self.columns), strict=True))]

    @cached_property
    def left(self) -> list[bool]:
        """Return for each column whether it is left-aligned: columns of words, and the first `names` unless they set
        `words`."""
        return [column.left or (at < self.names and column.words is None) for at, column in enumerate(self.columns)]

    def text(self, width: int | None = None, bold: bool = False) -> str:
        """Return the table as text of at most `width` columns, in several parts where it is wider; None: in one part.

        bold: whether the strong rows are bold, by codes of terminals. A part leaves out rows without a cell in it.
        """
        parts = [self._part([self.columns[at] for at in part], [self.left[at] for at in part], width, bold)
                 for part in self.parts(width)]
        about = [_fit(line, width) for line in self.notes]
        return "\n".join(filter(None, [_fit(self.title, width), "\n\n".join(parts), *about]))

    def parts(self, width: int | None) -> list[list[int]]:
        """Return the indices of the columns of each part: one part if all fit in `width`, else the headline first, and in
        each part the names of the rows. Columns of one level of detail stay together where they fit."""
        numbers = list(range(len(self.columns)))
        if width is None or self._fits(numbers, width):
            return [numbers]
        names, parts = numbers[: self.names], [numbers[:0]]
        rest = sorted(numbers[self.names :], key=lambda at: self.columns[at].detail)
        for _, group in groupby(rest, key=lambda at: self.columns[at].detail):
            level = list(group)
            if parts[-1] and not self._fits([*names, *parts[-1], *level], width):
                parts.append([])
            for at in level:
                if parts[-1] and not self._fits([*names, *parts[-1], at], width):
                    parts.append([])
                parts[-1].append(at)
            if parts[-1] == level[-1:] and len(level) > 3 and self._fits([*names, *level[-2:]], width):
                parts[-1].insert(0, parts[-2].pop())  # so that the last part does not have a single column
        return [[*names, *part] for part in parts]

    def _fits(self, numbers: Sequence[int], width: int) -> bool:
        return sum(self.columns[at].least + _GAP for at in numbers) - _GAP <= width

    def _part(self, columns: Sequence[Column], left: Sequence[bool], width: int | None, bold: bool) -> str:
        if width is None:
            widths = [max(column.longest, display_width(column.name)) for column in columns]
        else:
            widths = [column.least for column in columns]
            room = width - sum(widths) - _GAP * (len(widths) - 1)
            for at, column in enumerate(columns):  # remaining room goes first to cells that would be broken
                more = max(0, min(room, column.longest - widths[at]))
                widths[at], room = widths[at] + more, room - more
            for at, column in enumerate(columns):  # then to headers of more than two lines, or more than one for words
                while room > 0 and len(_wrapped(column.name, widths[at])) > (1 if left[at] else 2):
                    widths[at], room = widths[at] + 1, room - 1
        rule = (" " * _GAP).join("-" * size for size in widths)
        header = [_wrapped(column.name, size) for column, size in zip(columns, widths, strict=True)]
        tall = max(map(len, header))
        lines = [*_aligned([[""] * (tall - len(name)) + name for name in header], widths, left), rule]
        for row in range(len(columns[0].cells)):
            if row in self.rules:
                lines.append(rule)
            here, everywhere = (any(column.texts[row] for column in some[self.names :]) for some in (columns, self.columns))
            if everywhere and not here:
                continue
            cells = [_wrapped(column.texts[row], size) for column, size in zip(columns, widths, strict=True)]
            line = _aligned(cells, widths, left)
            lines += (f"\x1b[1m{text}\x1b[0m" for text in line) if bold and row in self.strong else line
        return "\n".join(lines)

    def html(self) -> str:
        """Return an HTML table with its title above and its notes below; colours and borders are left to the page."""
        head, *body = (
            "".join(f"<{tag}{_SIDES[side]}>{escape(cell)}</{tag}>" for side, cell in zip(self.left, line, strict=True))
            for tag, line in zip(["th", *["td"] * (len(self.lines) - 1)], self.lines, strict=True)
        )
        title = f'<caption style="caption-side: top; text-align: left">{escape(printable(self.title))}</caption>'
        rows = "".join(f'<tr style="font-weight: bold">{row}</tr>' if at in self.strong else f"<tr>{row}</tr>"
                       for at, row in enumerate(body))
        return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{html_lines(self.notes)}"

    def markdown(self) -> str:
        """Return the table in GitHub's Markdown, below its title, with a paragraph for each note."""
        rule = ["---" if side else "---:" for side in self.left]
        head, *body = ([cell if re.fullmatch(r"[-+\d., %\[\]]*", cell) else plain_markdown(cell) for cell in line]
                       for line in self.lines)  # cells of numbers contain nothing to escape
        grid = "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *body))
        return "\n\n".join([*([f"**{plain_markdown(self.title)}**"] if self.title else []), grid,
                            *map(_markdown_line, self.notes)]) + "\n"

    def latex(self, label: str = "", about: str = "") -> str:
        """Return a booktabs table, no wider than both columns of a page, with title and notes as its caption.

        Commands are comments. label: used where the table has none; about: the beginning of the caption.
        """
        notes = [line for line in self.notes if not line.startswith("    ")]
        what = ". ".join(filter(None, [*([about] if about else []), self.title, " ".join(notes)]))
        commands = [f"{comment(line.strip())}\n" for line in self.notes if line.startswith("    ")]
        table = latex_table(self.lines, caption(printable(what)), self.label or label, self.left)
        return "".join([table, *commands])

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows, header -> cell at full precision, of estimates also "HEADER low" and "HEADER high". Raises
        ValueError where two columns have the same header."""
        if len({column.header for column in self.columns}) < len(self.columns):
            raise ValueError(f"two columns of '{self.title}' have one header: programs would read one of them alone")
        columns: dict[str, Sequence[Any]] = {}
        for column in self.columns:
            columns[column.header] = [cell.value if isinstance(cell, Estimate) else cell for cell in column.cells]
            if any(isinstance(cell, Estimate) for cell in column.cells):
                for end in ("low", "high"):
                    columns[f"{column.header} {end}"] = [getattr(cell, end, None) for cell in column.cells]
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def csv(self) -> str:
        """Return the rows of `rows` as CSV."""
        rows = self.rows()
        return csv_table(list(rows[0]) if rows else [column.header for column in self.columns], rows)


@dataclass(frozen=True)
class Document:
    """The displayed content of a result: lines above, tables, and lines below."""

    tables: Sequence[Table] = ()
    above: Sequence[str] = ()
    below: Sequence[str] = ()

    def text(self, width: int | None = None, bold: bool = False) -> str:
        """Return the document as text of at most `width` columns; None: any width. bold: as for `Table.text`."""
        above, below = ("\n".join(_fit(line, width) for line in some) for some in (self.above, self.below))
        return "\n\n".join(filter(None, [above, *(table.text(width, bold) for table in self.tables), below]))

    def html(self) -> str:
        """Return the document as a part of an HTML page."""
        return "".join([html_lines(self.above), *(table.html() for table in self.tables), html_lines(self.below)])

    def markdown(self) -> str:
        """Return the document in GitHub's Markdown."""
        above, below = ([f"{_markdown_line(line)}\n" for line in some] for some in (self.above, self.below))
        return "\n".join([*above, *(table.markdown() for table in self.tables), *below])

    def latex(self, label: str = "table") -> str:
        """Return booktabs tables, whose captions begin with the lines above, and the lines below as comments. They need the
        packages booktabs and graphicx. label: for a table that has none."""
        tables = [table.latex(f"{label}-{number}" if len(self.tables) > 1 else label, ". ".join(self.above))
                  for number, table in enumerate(self.tables)]
        return "\n".join([PACKAGES, *tables, *(f"{comment(line.strip())}\n" for line in self.below)])


def terminal_width() -> int | None:
    """Return the width of the terminal of stdout; for a file or a pipe, that in COLUMNS, None where it is not set."""
    is_terminal = getattr(sys.stdout, "isatty", bool)  # a replaced stdout, as in a notebook, may lack the method
    return shutil.get_terminal_size().columns if is_terminal() or os.environ.get("COLUMNS", "").isdecimal() else None


def csv_table(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows, column -> value, as CSV under a header of `columns`, which may be missing in some rows. All CSV for
    people is written here, as `csv_cell` prevents that spreadsheets take texts for formulas."""
    stream = io.StringIO()
    table = csv.DictWriter(stream, columns, lineterminator="\n")
    for row in ({column: column for column in columns}, *rows):
        table.writerow({key: csv_cell(value) if isinstance(value, str) else value for key, value in row.items()})
    return stream.getvalue()


def html_lines(lines: Sequence[str]) -> str:
    """Return lines beside a table as HTML: a paragraph for each, commands preformatted."""
    return "".join(f"<pre>{escape(printable(line.strip()))}</pre>" if line.startswith("    ") else
                   f"<p>{escape(printable(line))}</p>" for line in lines)


def _markdown_line(line: str) -> str:
    return f"    {visible(line.strip())}" if line.startswith("    ") else plain_markdown(line)


def _fit(line: str, width: int | None) -> str:
    line = printable(line)
    return line if width is None or line.startswith("    ") else break_lines(line, width)


def _text(cell: Cell, form: str) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return _number(cell, form)
    return f"{cell:{form}}" if isinstance(cell, Estimate) else visible(str(cell), "\u200c\u200d")


def _number(value: float, form: str) -> str:
    if isnan(value):
        return ""
    return "0" if form.startswith("+") and not value else f"{value:{form}}"


def _pieces(text: str) -> list[int]:
    """Return the widths of the pieces of a text that are never broken."""
    return [0, *(display_width(piece.rstrip()) for piece in _PIECE.findall(text))]


def _wrapped(text: str, width: int) -> list[str]:
    """Return the lines of a cell of this width; a word is never broken, even if it is wider."""
    if display_width(text) <= width:
        return [text]
    lines = [""]
    for piece in _PIECE.findall(text):
        if lines[-1] and display_width(lines[-1] + piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return [line.rstrip() for line in lines]


def _aligned(cells: Sequence[Sequence[str]], widths: Sequence[int], left: Sequence[bool]) -> Iterator[str]:
    """Yield the lines of a row, with its cells aligned and padded; cells may have different numbers of lines."""
    for line in zip_longest(*cells, fillvalue=""):
        blanks = [" " * (size - display_width(text)) for text, size in zip(line, widths, strict=True)]
        yield (" " * _GAP).join(text + pad if side else pad + text
                        for text, pad, side in zip(line, blanks, left, strict=True)).rstrip()
