"""Which of several rows differ significantly in one column: what ranks, pairs and intervals over prompts follow from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from stsbench.comparison.comparability import SeedPairs
from stsbench.evaluation.measure import SEED
from stsbench.leaderboard.records.entries import LoadedEntry
from stsbench.metrics.noise import Scores
from stsbench.metrics.ranks import Significance, significantly_different
from stsbench.processes import cores

from .lines import ScoreLine
from .processes import across

Placed = tuple[LoadedEntry, ScoreLine, tuple[str, ...]]  # a line, whose it is, and what is odd about it
Asked = tuple[Sequence[Placed], str, bool]  # lines, the column that is tested, and whether pairs need their own intervals
MANY_ROWS = 200  # of a tab: with more, its test takes longer than a process does to start


def tested(asked: Mapping[str, Asked]) -> dict[str, Significance]:
    """The test of each of these, by name. Of equal names and lines the result is the same."""
    items = [(name, _scores(members, column), intervals) for name, (members, column, intervals) in asked.items()]
    workers = min(cores(), sum(len(members) > MANY_ROWS for members, _, _ in asked.values()))
    return dict(zip(asked, across(_test, items, workers), strict=True))


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
