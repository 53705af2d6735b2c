"""Imported results on a board: rows beside the published ones."""

from __future__ import annotations

from pathlib import Path

from stsbench.leaderboard.ranks.board import Tab
from stsbench.leaderboard.ranks.section import Section

from .imported_rows import with_imported
from .model import FOLDER, load_imported


class ImportedResults(Section):
    """What lies in imported/ of a board."""

    def tabs(self, tabs: list[Tab], root: Path) -> list[Tab]:
        """Return the tabs with a row of each import."""
        return with_imported(tabs, load_imported(root / FOLDER))
