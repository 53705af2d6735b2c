"""Plans of the board's tabs before ranking, significance tests of their rows, and `Section`, the interface of extensions.

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

Placed = tuple[LoadedEntry, ScoreLine, tuple[str, ...]]  # an entry, one of its lines, and remarks on the line
Asked = tuple[Sequence[Placed], str, bool]  # lines, the tested column, and whether to compute an interval for each pair
Tested = tuple[tuple[str, ...], Significance]  # rows' ids, and which of them differ significantly
MANY_ROWS = 200  # a test of more rows takes longer than starting a process for it
MOST_UNSCORED = 0.05  # the share of resamples that a ranked row may have no score in; the same as for an interval
GROUP = "stsbench.board_sections"


def tested(tests: Mapping[str, Asked]) -> dict[str, Significance]:
    """Return name -> significance test of the rows of each item of `tests`; deterministic in names and lines."""
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
    # Seeds are redrawn for each tab separately: a seed's effects under two settings differ.
    return significantly_different(scores, [SEED, *name.encode()], intervals=intervals)


@dataclass(frozen=True)
class Plan:
    """A tab before its rows are ranked. number: counts tabs of one title; reasons: for each member why it cannot be ranked,
    "" if it can; able: indices of the members that can."""

    name: str
    number: int
    members: Sequence[Placed]
    columns: tuple[str, ...]
    lead: str
    ranked_by: Metric
    reasons: Sequence[str]
    able: Sequence[int]


def rounded(values: Sequence[float]) -> NDArray[np.float64]:
    """Return (n,) the values, rounded to ten significant digits: means of equal scores summed in another order then tie."""
    return np.array([float(f"{value:.10g}") for value in values])


@dataclass(frozen=True)
class RowExtra:
    """An extension's additions to a measured row. row, rank: fields of its `Row`, of its `Rank`; notes: further marks."""

    row: Mapping[str, Any] = field(default_factory=dict)
    rank: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Section:
    """An extension of the board. Subclasses override the methods for what they add; by default each adds nothing.

    folders: the extension's own folders below the site's, in which a build deletes files that the board no longer has.
    """

    folders: tuple[str, ...] = ()

    def rows(
        self, plans: Sequence[Plan], entries: Sequence[LoadedEntry], lines: Mapping[Path, Sequence[ScoreLine]]
    ) -> Mapping[tuple[str, int], RowExtra]:
        """Return the additions to measured rows: (a plan's name, the index among its members) -> RowExtra.

        lines: run folder -> its lines.
        """
        return {}

    def tabs(self, tabs: list[Tab], root: Path) -> list[Tab]:
        """Return the tabs of the board in the folder `root`, with the extension's rows beside the published ones."""
        return tabs

    def content(self, root: Path, placed: Sequence[Placed], tabs: Sequence[Tab], tests: Mapping[str, Tested]) -> Any:
        """Return the extension's content beside the tabs, made of the board's files and measured lines; None for none.

        tests: tab's id -> the ids of the tested rows, and their test.
        """
        return None

    def index(self, content: Any) -> Mapping[str, Any]:
        """Return the fields that the content adds to index.json."""
        return {}

    def files(self, content: Any) -> Mapping[str, dict[str, Any]]:
        """Return path below the site's folder, without a suffix -> data of the file."""
        return {}

    def published(self, content: Any, entry: Provenance) -> Mapping[str, str]:
        """Return column name -> text: scores that others publish of the model that an entry measures."""
        return {}

    def findings(self, content: Any, board: Board, docs: Path) -> Mapping[Path, str]:
        """Return path -> text of the files below the checkout's docs/ that are made from the board and kept in git.

        content: as returned by `content`; None for none.
        """
        return {}


@cache
def sections() -> Mapping[str, Section]:
    """Return name -> section of every installed extension of the board."""
    return {name: resolve(GROUP, name)() for name in names(GROUP)}
