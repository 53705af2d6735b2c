"""What the objects here share: they are tables, for pandas, polars and whatever else reads Arrow."""

from __future__ import annotations

import re
import shutil
import uuid
from abc import ABC, abstractmethod
from os import fspath
from pathlib import Path
from typing import Any

from stsbench.errors import StsbenchError

_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "–": "--"}


class Tabled(ABC):
    """Something with rows. polars.DataFrame(x) and pyarrow.table(x) read it as it is."""

    @property
    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """Column -> value, row by row; a column may be missing in some."""

    @abstractmethod
    def _lines(self) -> list[list[str]]:
        """The cells of its table for people, the header first."""

    def to_frame(self) -> Any:
        """The rows as a DataFrame of pandas. Raises StsbenchError where pandas is not installed."""
        try:
            return self._table().to_pandas()
        except ImportError as error:
            raise StsbenchError("to_frame needs pandas: pip install pandas; polars and pyarrow read it without") from error

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table().__arrow_c_stream__(requested_schema)

    def _table(self) -> Any:
        import pyarrow as pa

        rows = self.rows
        columns = list(dict.fromkeys(column for row in rows for column in row))
        return pa.table({column: [row.get(column) for row in rows] for column in columns})

    def latex(self) -> str:
        """The table that `print` shows, for LaTeX with the package booktabs."""
        header, *lines = (" & ".join(map(_escaped, line)) + r" \\" for line in self._lines())
        form = "l" + "r" * (len(self._lines()[0]) - 1)
        return "\n".join([rf"\begin{{tabular}}{{{form}}}", r"\toprule", header, r"\midrule", *lines, r"\bottomrule",
                          r"\end{tabular}", ""])


class InFolder(Tabled):
    """A table that stands for a folder: wherever a path is meant, the object itself will do."""

    folder: Path

    def __fspath__(self) -> str:
        return fspath(self.folder)

    def save(self, path: str | Path) -> Path:
        """Copy the folder to `path`, which must not be there yet, and stand for it from now on; gives the path back."""
        path = Path(path)
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


def _escaped(cell: str) -> str:
    return re.sub(r"[&%$#_{}\\~^±–]", lambda match: _LATEX.get(match[0], f"\\{match[0]}"), cell)
