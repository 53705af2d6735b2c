"""A table of the board before its rows are ranked: its lines, the tests of its rows, and what extensions add to it.

Extensions are entry points of the group `stsbench.board_sections`: subclasses of `Section`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.comparison.comparability import SeedPairs
from stsbench.evaluation.measure import SEED
from stsbench.evaluation.schema import Metric
from stsbench.leaderboard.records.entries import LoadedEntry
from stsbench.metrics.noise import Scores
from stsbench.metrics.ranks import Significance, significantly_different
from stsbench.processes import cores
from stsbench.registry import names, resolve

from .board import Board, Provenance, Tab
from .lines import ScoreLine
from .scored import across

Placed = tuple[LoadedEntry, ScoreLine, tuple[str, ...]]  # a line, whose it is, and what is odd about it
Asked = tuple[Sequence[Placed], str, bool]  # lines, the column that is tested, and whether pairs need their own intervals
Tested = tuple[tuple[str, ...], Significance]  # rows' ids, and which of them differ
MANY_ROWS = 200  # beyond so many rows a tab's test takes longer than a process does to start
MOST_UNSCORED = 0.05  # a share of the resamples, as for an interval
GROUP = "stsbench.board_sections"


def tested(tests: Mapping[str, Asked]) -> dict[str, Significance]:
    """Return the test of each of these, by name. Of equal names and lines the result is the same."""
    items = [(name, _scores(members, column), intervals) for name, (members, column, intervals) in tests.items()]
    workers = min(cores(), sum(len(members) > MANY_ROWS for members, _, _ in tests.values()))
    return dict(zip(tests, across(_test, items, workers), strict=True))


def _scores(members: Sequence[Placed], column: str) -> Scores:
    entries, lines = [entry for entry, _, _ in members], [line for _, line, _ in members]
    pairs = SeedPairs([[[item.record for item in run.records] for run in entry.runs] for entry in entries])
    seeds = [line.seeds[column][pairs.order(i)] if column in line.seeds else np.empty(0) for i, line in enumerate(lines)]
    values = np.array([line.cells[column].value for line in lines])
    return Scores(values, np.stack([line.draws[column] for line in lines]), seeds, np.array(pairs.groups))


def _test(item: tuple[str, Scores, bool]) -> Significance:
    name, scores, intervals = item
    # Seeds are redrawn for each tab by itself: a seed's effect under one setting is not all of its effect under another.
    return significantly_different(scores, [SEED, *name.encode()], intervals=intervals)


@dataclass(frozen=True)
class Plan:
    """A tab before its rows are ranked. number: among tabs of one title; reasons: why each member has no rank, or "";
    able: those that have one."""

    name: str
    number: int
    members: Sequence[Placed]
    columns: tuple[str, ...]
    lead: str
    ranked_by: Metric
    reasons: Sequence[str]
    able: Sequence[int]


def rounded(values: Sequence[float]) -> NDArray[np.float64]:
    """To ten digits: two means of the same seeds in another order are one score, however small the metric's numbers are."""
    return np.array([float(f"{value:.10g}") for value in values])


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

    def content(self, root: Path, placed: Sequence[Placed], tabs: Sequence[Tab], tests: Mapping[str, Tested]) -> Any:
        """Return what is shown beside the tabs, made of files of the board and its measured lines; None where nothing is.

        tests: of a tab, by its id, which rows were tested and how.
        """
        return None

    def index(self, content: Any) -> Mapping[str, Any]:
        """Return the fields that the content has in index.json."""
        return {}

    def files(self, content: Any) -> Mapping[str, dict[str, Any]]:
        """Return the data of files below the site's folder, by their paths without a suffix."""
        return {}

    def published(self, content: Any, entry: Provenance) -> Mapping[str, str]:
        """Return what others publish of the model that an entry measures, under names of columns."""
        return {}

    def findings(self, content: Any, board: Board, docs: Path) -> Mapping[Path, str]:
        """Return the files below the checkout's docs/ that are made from the board, and stand in git.

        content: None where the board has none.
        """
        return {}


@cache
def sections() -> Mapping[str, Section]:
    """Return what is installed, by its name."""
    return {name: resolve(GROUP, name)() for name in names(GROUP)}
