"""What every result offers: rows for pandas, polars and pyarrow, tables in every form that people read, a report."""

from __future__ import annotations

import json
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from os import fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from stsbench.config import shorten
from stsbench.display.markup import PACKAGES, caption, plain_markdown
from stsbench.display.table import Document, Table, csv_table, terminal_width
from stsbench.errors import StsbenchError
from stsbench.files import as_path
from stsbench.registry import Suggesting
from stsbench.wording import visible

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Form = Literal["markdown", "latex"]


class Rows(Suggesting, ABC):
    """A result with rows, which pandas, polars and pyarrow read."""

    meant: ClassVar = dict.fromkeys(("df", "to_frame", "to_df", "to_dataframe"), "to_pandas()") | {
        "to_polars": "polars.from_arrow(...to_arrow())", "to_csv": "csv()", "to_latex": "latex()", "to_dict": "as_json()",
        "to_markdown": "markdown()", "summary": "print(...), or report() for a paper",
    }

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """Return its rows, at full precision, as an Arrow table."""

    def as_json(self) -> Any:
        """Return what --json writes, as plain data."""
        return self.to_arrow().to_pylist()

    def to_json(self) -> str:
        """Return what --json writes."""
        return json.dumps(self.as_json(), indent=1)

    def csv(self) -> str:
        """Return its rows as CSV, at full precision."""
        table = self.to_arrow()
        return csv_table(table.column_names, table.to_pylist())

    def to_pandas(self) -> pd.DataFrame:
        """Return its rows as a pandas DataFrame. Raises StsbenchError where pandas is not installed."""
        try:
            frame: pd.DataFrame = self.to_arrow().to_pandas()
        except ImportError as error:
            raise StsbenchError("to_pandas needs pandas: pip install pandas; polars and pyarrow read it without") from error
        return frame

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> Any:
        """Return the rows to whoever speaks Arrow's PyCapsule interface."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)


class Tabular(Rows):
    """A result with rows, and with a document of tables, which people read as text, HTML, LaTeX and Markdown."""

    @abstractmethod
    def document(self) -> Document:
        """Return its tables, with the lines above and below them."""

    def omissions(self) -> list[str]:
        """Return a line for whatever failed or was left out, and why."""
        return []

    def __str__(self) -> str:
        return self._whole().text(terminal_width()) or repr(self)

    def _repr_html_(self) -> str:
        return self._whole().html() or escape(repr(self))

    def latex(self) -> str:
        """Return its tables for LaTeX with the packages booktabs and graphicx."""
        return self._whole().latex(type(self).__name__.lower())

    def markdown(self) -> str:
        """Return its tables as GitHub's Markdown."""
        return self._whole().markdown()

    def _whole(self) -> Document:
        document = self.document()
        return replace(document, below=(*document.below, *self.omissions()))


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


class RowsInFolder(InFolder):
    """A result whose rows are of any columns, in a folder."""

    @property
    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """Return column -> value, row by row; a column may be missing in some."""

    def to_arrow(self) -> pa.Table:
        """Return the rows."""
        return arrow_table(self.rows)


def arrow_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return rows, column -> value, as an Arrow table; a column may be missing in some."""
    import pyarrow as pa

    columns = dict.fromkeys(column for row in rows for column in row)
    return pa.table({column: [row.get(column) for row in rows] for column in columns})


@dataclass(frozen=True)
class Report:
    """What was measured and how, in paragraphs of plain text; then the results: a paragraph and a table each."""

    paragraphs: Sequence[str]
    results: Sequence[tuple[str, Table]]

    def text(self, form: Form = "markdown") -> str:
        """Return the report as Markdown, or as LaTeX that needs the packages booktabs and graphicx.

        Raises StsbenchError for another form.

        >>> from stsbench.display.tabular import Report
        >>> from stsbench.display.table import Column, Table
        >>> table = Table("scores x 100", [Column("task", ["STS-B"]), Column("A", [1])])
        >>> print(Report(["A is a_b."], [("A scores 1.", table)]).text())
        A is a_b.
        <BLANKLINE>
        A scores 1.
        <BLANKLINE>
        **Table 1.** scores x 100
        <BLANKLINE>
        | task | A |
        | --- | ---: |
        | STS-B | 1 |
        <BLANKLINE>
        """
        if form not in get_args(Form):
            raise StsbenchError(f"form={shorten(form)}: a report is 'markdown' or 'latex'")
        return self._latex() if form == "latex" else self._markdown()

    def _markdown(self) -> str:
        parts = [*map(plain_markdown, self.paragraphs)]
        for number, (paragraph, table) in enumerate(self.results, 1):
            grid = replace(table, title="", notes=()).markdown().rstrip("\n")
            parts += [plain_markdown(paragraph), f"**Table {number}.** {plain_markdown(table.title)}", grid]
        return "\n\n".join(filter(None, parts)) + "\n"

    def _latex(self) -> str:
        parts = [caption(visible(text)) for text in self.paragraphs]
        for number, (paragraph, table) in enumerate(self.results, 1):
            parts += [caption(visible(paragraph)), replace(table, notes=(), label=f"report-{number}").latex()]
        return PACKAGES + "\n" + "\n\n".join(filter(None, parts))
