"""What extensions add to a board, as entry points of the group `stsbench.board_sections`: subclasses of `Section`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from stsbench.leaderboard.records.entries import LoadedEntry
from stsbench.registry import names, resolve

from .board import Tab
from .lines import ScoreLine
from .plan import Plan
from .significance import Placed

GROUP = "stsbench.board_sections"


@dataclass(frozen=True)
class RowExtra:
    """What an extension adds to a measured row: fields of its `Row` and of its `Rank`, and sentences among its marks."""

    row: Mapping[str, Any] = field(default_factory=dict)
    rank: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Section:
    """What an extension adds to a board: each method adds nothing until it is overridden.

    folders: those below the site's that hold files of it alone, where a build deletes what the board no longer has.
    """

    folders: tuple[str, ...] = ()

    def rows(
        self, plans: Sequence[Plan], entries: Sequence[LoadedEntry], lines: Mapping[Path, Sequence[ScoreLine]]
    ) -> Mapping[tuple[str, int], RowExtra]:
        """Return what is added to measured rows: (a plan's name, the position among its members) -> what.

        lines: run folder -> its lines.
        """
        return {}

    def tabs(self, tabs: list[Tab], root: Path) -> list[Tab]:
        """Return the tabs of the board in the folder `root`, with rows of one's own beside the published ones."""
        return tabs

    def content(self, root: Path, placed: Sequence[Placed]) -> Any:
        """Return what is shown beside the tabs, made of files of the board and its measured lines; None where nothing is."""
        return None

    def index(self, content: Any) -> Mapping[str, Any]:
        """Return the fields that the content has in index.json."""
        return {}

    def files(self, content: Any) -> Mapping[str, dict[str, Any]]:
        """Return the data of files below the site's folder, by their paths without a suffix."""
        return {}

    def findings(self, content: Any) -> Mapping[str, str]:
        """Return the Markdown of pages below docs/findings, by their names: they stand in git."""
        return {}


@cache
def sections() -> Mapping[str, Section]:
    """Return what is installed, by its name."""
    return {name: resolve(GROUP, name)() for name in names(GROUP)}
