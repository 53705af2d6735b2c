"""What every result offers: rows for pandas, polars and pyarrow, a table as text and as HTML, a folder that holds it."""

from __future__ import annotations

import csv
import io
import re
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from os import fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stsbench.display.latex import PACKAGES, escaped, latex_table
from stsbench.errors import StsbenchError
from stsbench.files import as_path
from stsbench.wording import csv_cell, printable

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_LEFT, _RIGHT = ' style="text-align: left"', ' style="text-align: right"'  # whatever a page does with cells


class Tabular(ABC):
    """A result with rows, which pandas, polars and pyarrow read."""

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """Its rows as an Arrow table."""

    def to_frame(self) -> pd.DataFrame:
        """Its rows as a pandas DataFrame. Raises StsbenchError where pandas is not installed."""
        try:
            frame: pd.DataFrame = self.to_arrow().to_pandas()
        except ImportError as error:
            raise StsbenchError("to_frame needs pandas: pip install pandas; polars and pyarrow read it without") from error
        return frame

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> Any:
        """The rows, for whoever speaks Arrow's PyCapsule interface."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)


class OneTable(Tabular):
    """A result that people read as one table."""

    @abstractmethod
    def _title(self) -> str:
        """A line above the table."""

    @abstractmethod
    def _lines(self) -> list[list[str]]:
        """Its cells, the header first."""

    def __str__(self) -> str:
        return printable(text_table(self._lines()))

    def _repr_html_(self) -> str:
        return html_table(self._title(), self._lines())

    def latex(self) -> str:
        """The table that `print` shows, for LaTeX with the packages booktabs and graphicx."""
        return PACKAGES + latex_table(self._lines(), escaped(self._title()), type(self).__name__.lower())


class InFolder(Tabular):
    """A result that a folder holds: wherever a path is meant, the object itself will do."""

    folder: Path

    def __fspath__(self) -> str:
        return fspath(self.folder)

    def save(self, path: str | Path) -> Path:
        """Copy the folder to `path`, which must not be there yet, and stand for it from now on; returns the path.

        Raises StsbenchError where it is there, and where it cannot be written.
        """
        path = as_path(path, "path")
        if path.exists():
            raise StsbenchError(f"{path} is already there: choose another path")
        copy = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.tmp")
        try:
            shutil.copytree(self.folder, copy)
            copy.rename(path)  # it is there whole, or not at all
        except OSError as error:
            raise StsbenchError(f"cannot write {path}: {error.strerror or error}") from error
        finally:
            shutil.rmtree(copy, ignore_errors=True)
        self.folder = path
        return path


def arrow_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows, column -> value, as an Arrow table; a column may be missing in some."""
    import pyarrow as pa

    columns = dict.fromkeys(column for row in rows for column in row)
    return pa.table({column: [row.get(column) for row in rows] for column in columns})


def csv_table(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows, column -> value, as CSV under a header of these columns; a column may be missing in some. The only place
    that writes CSV for people: texts stand in it as `csv_cell` makes them."""
    stream = io.StringIO()
    table = csv.DictWriter(stream, columns, lineterminator="\n")
    table.writeheader()
    for row in rows:
        table.writerow({key: csv_cell(value) if isinstance(value, str) else value for key, value in row.items()})
    return stream.getvalue()


def text_table(lines: Sequence[Sequence[str]]) -> str:
    """Lines of cells, the header first, as text: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = ("  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) for line in lines)
    return "\n".join(map(str.rstrip, rows))


def html_table(caption: str, lines: Sequence[Sequence[str]]) -> str:
    """The same as HTML, with a caption above it; columns of words to the left. Colours and borders are the page's."""
    sides = [_LEFT if number == 0 or _words(column) else _RIGHT for number, column in enumerate(zip(*lines, strict=True))]
    rows = [
        "".join(f"<{tag}{side}>{escape(printable(cell))}</{tag}>" for side, cell in zip(sides, line, strict=True))
        for tag, line in zip(["th", *["td"] * (len(lines) - 1)], lines, strict=True)
    ]
    head, *body = (f"<tr>{row}</tr>" for row in rows)
    title = f'<caption style="caption-side: top; text-align: left">{escape(printable(caption))}</caption>'
    return f"<table>{title}<thead>{head}</thead><tbody>{''.join(body)}</tbody></table>"


def _words(column: Sequence[str]) -> bool:
    """Whether what stands below the column's header is words: "unsup", and not "3.70 to 37.51"."""
    cells = list(filter(None, column[1:]))
    return bool(cells) and all(re.search(r"[^\W\d_]{2}", cell.replace(" to ", " ")) for cell in cells)


def html_lines(lines: Sequence[str]) -> str:
    """Remarks beside a table, a paragraph a line."""
    return "".join(f"<p>{escape(printable(line))}</p>" for line in lines)
