"""What the objects here share: each is a table of rows that a folder holds."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from stsbench.display.tabular import InFolder, OneTable, arrow_table

if TYPE_CHECKING:
    import pyarrow as pa


class TableInFolder(OneTable, InFolder):
    """A table that stands for a folder: wherever a path is meant, the object itself will do."""

    @property
    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """Column -> value, row by row; a column may be missing in some."""

    def to_arrow(self) -> pa.Table:
        """The rows."""
        return arrow_table(self.rows)
