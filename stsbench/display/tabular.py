"""Base classes of results: rows for pandas, polars and pyarrow, tables as text, HTML, LaTeX and Markdown, a report."""

from __future__ import annotations

import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from os import fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from stsbench.display.table import Document, csv_table, terminal_width
from stsbench.errors import StsbenchError
from stsbench.files import as_path, new_folder
from stsbench.registry import Suggesting, resolve

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Form = Literal["markdown", "latex"]
_REPORTS = "stsbench.reports"  # entry points: class of a result, in lower case -> function that writes its report


class Rows(Suggesting, ABC):
    """A result with rows, which pandas, polars and pyarrow read."""

    meant: ClassVar = dict.fromkeys(("df", "to_frame", "to_df", "to_dataframe"), "to_pandas()") | {
        "to_polars": "polars.from_arrow(...to_arrow())", "to_csv": "csv()", "to_latex": "latex()", "to_dict": "as_json()",
        "to_markdown": "markdown()", "summary": "print(...), or report() for a paper",
    }

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """Return the rows, at full precision, as an Arrow table."""

    def as_json(self) -> Any:
        """Return the result as plain data, as --json writes it."""
        return self.to_arrow().to_pylist()

    def to_json(self) -> str:
        """Return the result as JSON, as --json writes it."""
        return json.dumps(self.as_json(), indent=1)

    def csv(self) -> str:
        """Return the rows as CSV, at full precision."""
        table = self.to_arrow()
        return csv_table(table.column_names, table.to_pylist())

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a pandas DataFrame. Raises StsbenchError where pandas is not installed."""
        try:
            frame: pd.DataFrame = self.to_arrow().to_pandas()
        except ImportError as error:
            raise StsbenchError("to_pandas needs pandas: pip install pandas; polars and pyarrow read it without") from error
        return frame

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> Any:
        """Return the rows by Arrow's PyCapsule interface, which polars and others read."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)


class Tabular(Rows):
    """A result with rows, and with a document of tables as text, HTML, LaTeX and Markdown."""

    @abstractmethod
    def document(self) -> Document:
        """Return the tables, with the lines above and below them."""

    def omissions(self) -> list[str]:
        """Return a line for each item that failed or was left out, with the reason."""
        return []

    def __str__(self) -> str:
        return self._whole().text(terminal_width()) or repr(self)

    def _repr_html_(self) -> str:
        return self._whole().html() or escape(repr(self))

    def latex(self) -> str:
        """Return the tables as LaTeX, which needs the packages booktabs and graphicx."""
        return self._whole().latex(type(self).__name__.lower())

    def markdown(self) -> str:
        """Return the tables in GitHub's Markdown."""
        return self._whole().markdown()

    def _whole(self) -> Document:
        document = self.document()
        return replace(document, below=(*document.below, *self.omissions()))


class Reported(Tabular):
    """A result with a report for papers."""

    def report(self, form: Form = "markdown") -> str:
        """Return paragraphs and tables for a paper: what was measured, how, and with which results, as far as the records
        say.

        form: "markdown", or "latex", which needs the packages booktabs and graphicx. Raises StsbenchError for another form,
        and where nothing was measured.
        """
        text: str = resolve(_REPORTS, type(self).__name__.lower())(self, form)
        return text


class InFolder(Tabular):
    """A result in a folder, which can be passed wherever a path to the folder is needed."""

    folder: Path

    def __fspath__(self) -> str:
        return fspath(self.folder)

    def save(self, path: str | Path) -> Path:
        """Copy the folder to `path`, which must not exist, make it the folder of this result, and return it.

        Raises StsbenchError where it exists or cannot be written.
        """
        path = as_path(path, "path")
        if path.exists():
            raise StsbenchError(f"{path} is already there: choose another path")
        with new_folder(path) as building:
            shutil.copytree(self.folder, building, dirs_exist_ok=True)
        self.folder = path
        return path


class RowsInFolder(InFolder):
    """A result in a folder whose rows have arbitrary columns."""

    @property
    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """Return the rows, column -> value; a column may be missing in some."""

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return arrow_table(self.rows)


def arrow_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return rows, column -> value, as an Arrow table; a column may be missing in some."""
    import pyarrow as pa

    columns = dict.fromkeys(column for row in rows for column in row)
    return pa.table({column: [row.get(column) for row in rows] for column in columns})
