"""The picture of a board's entries on one backbone: a point for each seed, a bar at their mean, the best at the top."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stsbench.display.style import COLOURS, GREY, PAGE, new_figure
from stsbench.errors import StsbenchError
from stsbench.evaluation.schema import Metric
from stsbench.leaderboard.ranks.board import FLAGS, UNLIKE
from stsbench.leaderboard.ranks.lines import AVERAGE, ScoreLine
from stsbench.leaderboard.ranks.provenance import flags_of
from stsbench.leaderboard.ranks.scored import scored_entries
from stsbench.leaderboard.ranks.wording import metric_of, slug
from stsbench.leaderboard.records.entries import LoadedEntry
from stsbench.registry import did_you_mean

TAB = "sts-spearman-all"
ROW = 0.22  # inches that an entry takes


def figure(
    root: Path, backbone: str, tab: str = TAB, column: str = AVERAGE, records: str | None = None
) -> Any:
    """A matplotlib figure of one column of a tab, of the entries of the board `root` that have this backbone. records: where
    its runs lie, as `records_folder` takes it.

    Raises StsbenchError where the board has no such backbone, or no entry on it has that column in that tab.
    """
    entries, lines = scored_entries(root, records)
    chosen = of_backbone(entries, backbone, root)
    rows = [(entry_label(entry), [*scores.values()]) for entry in chosen
            if (scores := entry_scores(entry, lines, tab, column))]
    metric = next((metric_of(line, column) for of_run in lines.values() for line in of_run
                   if slug(line) == tab and column in line.cells), Metric())
    if not rows:
        raise StsbenchError(f"no entry of {root} on {backbone} has the column '{column}' of the tab '{tab}'")
    rows.sort(key=lambda row: -metric.sign * float(np.mean(row[1])))  # the best at the top
    lower = "; lower is better" if metric.lower else ""
    return _drawn(rows, f"{column} on {backbone} ({tab}{lower})", metric.digits)


def of_backbone(entries: Sequence[LoadedEntry], backbone: str, root: Path) -> list[LoadedEntry]:
    """Those of a board's entries that have this backbone. Raises StsbenchError where none has."""
    chosen = [entry for entry in entries if entry.entry.backbone == backbone]
    if not chosen:
        known = sorted({entry.entry.backbone for entry in entries})
        raise StsbenchError(f"no entry of {root} has the backbone '{backbone}'{did_you_mean(backbone, known)}")
    return chosen


def entry_label(entry: LoadedEntry) -> str:
    """The method, and what a reader must know before comparing: the labels of STS, test texts seen, the best of many."""
    labels = [FLAGS[flag][0] for flag in flags_of(entry) if flag in UNLIKE]
    return entry.entry.method + (f" ({', '.join(labels)})" if labels else "")


def entry_scores(
    entry: LoadedEntry, lines: Mapping[Path, Sequence[ScoreLine]], tab: str, column: str
) -> dict[Path, float]:
    """Run folder -> an entry's score in a column of a tab, in the tab's unit; {} where it was not measured so."""
    return {run.folder: line.cells[column].value for run in entry.runs for line in lines[run.folder]
            if slug(line) == tab and column in line.cells}


def _drawn(rows: Sequence[tuple[str, list[float]]], title: str, digits: int) -> Any:
    drawing = new_figure(PAGE, 0.7 + ROW * len(rows))
    axes = drawing.subplots()
    for y, (_, scores) in enumerate(rows):
        mean = float(np.mean(scores))
        axes.plot(scores, [y] * len(scores), "o", color=COLOURS[0], markersize=4, alpha=0.6, zorder=3, linestyle="")
        axes.plot([mean, mean], [y - 0.3, y + 0.3], color=COLOURS[1], linewidth=1.6, zorder=4)
        axes.annotate(f"{mean:.{digits}f}", (1.01, y), xycoords=("axes fraction", "data"), va="center", fontsize=7)
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.grid(axis="x", color=GREY, alpha=0.25, linewidth=0.5)
    axes.set_xlabel(title)
    return drawing
