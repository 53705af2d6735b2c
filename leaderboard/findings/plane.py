"""The function `leaderboard.plot`: a scatter plot of the entries on one backbone by two scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stsbench.display.pareto import FAR, place_labels
from stsbench.display.style import COLOURS, GREY, PAGE, new_figure, save, style, targets
from stsbench.errors import StsbenchError
from stsbench.leaderboard.loaded_board import method_label
from stsbench.leaderboard.ranks.lines import AVERAGE, ScoreLine
from stsbench.leaderboard.ranks.provenance import entry_flags
from stsbench.leaderboard.ranks.scored import scored_entries
from stsbench.leaderboard.ranks.wording import slug
from stsbench.leaderboard.records.entries import LoadedEntry
from stsbench.leaderboard.records.paths import find_board
from stsbench.registry import did_you_mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TAB = "sts-spearman-all"
LINE = 0.155  # height of a name below the plot, in inches
LONGEST = 44  # characters of a name


def plot(
    backbone: str, against: tuple[str, str], *, board: str | Path | None = None, records: str | Path | None = None,
    tab: str = "sts-spearman-all", column: str = "Avg", output: str | Path | None = None,
) -> Axes:
    """Draw a scatter plot of the measured entries on one backbone by two scores: a point per seed, a number at each mean.

    backbone: as the entries name it. tab, column: the score on the x axis, with the tab's id in the page's address; against:
    (tab, column) of the score on the y axis. board, records: as in `load`. output: a .png or .svg file to write; both if it
    has no suffix. Returns matplotlib axes. Raises StsbenchError where no entry on the backbone has both scores.

    >>> from stsbench import leaderboard
    >>> leaderboard.plot("BERT-base", ("transfer-accuracy", "Avg"), board="board")
    Traceback (most recent call last):
    stsbench.errors.StsbenchError: board is not a board: it has neither measured/ nor published/; ...
    """
    target = None if output is None else Path(output)
    if target:
        targets(target)  # refuses a wrong suffix before the board is read
    with style():
        drawing = figure(find_board(board), backbone, against, tab, column, records)
        if target:
            save(drawing, target)
    axes: Axes = drawing.axes[0]
    return axes


@dataclass(frozen=True)
class _Entry:
    """An entry's runs with both scores. across, up: (n,) scores of the runs on the x and y axis; of: number of all runs."""

    name: str
    of: int
    across: NDArray[np.float64]
    up: NDArray[np.float64]

    @property
    def mean(self) -> tuple[float, float]:
        return float(self.across.mean()), float(self.up.mean())

    @property
    def whole(self) -> bool:
        """Return whether every run has both scores."""
        return len(self.across) == self.of

    @property
    def label(self) -> str:
        part = "" if self.whole else f", {len(self.across)} of {self.of} seeds"
        most = LONGEST - len(part)
        return (self.name if len(self.name) <= most else f"{self.name[: most - 1]}…") + part


def figure(
    root: Path, backbone: str, against: tuple[str, str], tab: str = TAB, column: str = AVERAGE,
    records: str | Path | None = None,
) -> Any:
    """Return a matplotlib figure of the entries of the board `root` on this backbone: a column of `tab` on the x axis, and
    `against`, a (tab, column), on the y axis. Runs with one of the two scores only are left out; the mean of such an entry
    is that of its other runs, and its point is hollow.

    The entries are numbered by the score on the x axis, highest first. records: as in `records_folder`. Raises StsbenchError
    where the board has no such backbone, or no entry on it has both scores.
    """
    entries, lines = scored_entries(root, records)
    chosen = _of_backbone(entries, backbone, root)
    rows = []
    for entry in chosen:
        across, up = (entry_scores(entry, lines, name, of) for name, of in ((tab, column), against))
        if both := [run for run in across if run in up]:
            scores = np.array([(across[run], up[run]) for run in both]).T
            rows.append(_Entry(method_label(entry.entry.method, entry_flags(entry)), len(entry.runs), *scores))
    if not rows:
        raise StsbenchError(f"no run on {backbone} of {root} has both '{column}' of the tab '{tab}' and "
                            f"'{against[1]}' of the tab '{against[0]}'")
    rows.sort(key=lambda row: -row.mean[0])
    return _draw(rows, (f"{column} ({tab})", f"{against[1]} ({against[0]})"), backbone)


def _of_backbone(entries: Sequence[LoadedEntry], backbone: str, root: Path) -> list[LoadedEntry]:
    """Return the entries with this backbone. Raises StsbenchError where there are none."""
    chosen = [entry for entry in entries if entry.entry.backbone == backbone]
    if not chosen:
        known = sorted({entry.entry.backbone for entry in entries})
        raise StsbenchError(f"no entry of {root} has the backbone '{backbone}'{did_you_mean(backbone, known)}")
    return chosen


def entry_scores(
    entry: LoadedEntry, lines: Mapping[Path, Sequence[ScoreLine]], tab: str, column: str
) -> dict[Path, float]:
    """Return run folder -> score of an entry's runs in a column of a tab, in the tab's unit, for runs that have it."""
    return {run.folder: line.cells[column].value for run in entry.runs for line in lines[run.folder]
            if slug(line) == tab and column in line.cells}


def _draw(rows: Sequence[_Entry], labels: tuple[str, str], backbone: str) -> Any:
    names = 0.3 + LINE * -(-len(rows) // 2)  # the height of the names, in two columns
    drawing = new_figure(PAGE, 4.6 + names)
    axes, below = drawing.subplots(2, 1, height_ratios=(4.6, names))
    for row in rows:
        x, y = row.mean
        for seed in zip(row.across, row.up, strict=True):
            axes.plot((x, seed[0]), (y, seed[1]), "-", color=GREY, linewidth=0.5, alpha=0.5, zorder=1)
        axes.plot(row.across, row.up, "o", color=COLOURS[0], markersize=2.5, alpha=0.6, linestyle="", zorder=2)
        axes.plot([x], [y], "o", color=COLOURS[1], markersize=4.5, zorder=3,
                  markerfacecolor=COLOURS[1] if row.whole else "white")
    axes.margins(0.05)
    axes.grid(color=GREY, alpha=0.2, linewidth=0.5)
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    axes.set_title(f"{backbone}: each seed (small) and the mean of an entry's\n(large, numbered; hollow: not of all seeds)",
                   loc="left")
    _list_names(below, rows)
    seeds = [[(x, y)] * 2 for row in rows for x, y in zip(row.across, row.up, strict=True)]  # numbers must not cover points
    place_labels(drawing, axes, [row.mean for row in rows], [str(number) for number in range(1, len(rows) + 1)],
                 reaches=FAR, lines=seeds, lead=True)
    return drawing


def _list_names(axes: Any, rows: Sequence[_Entry]) -> None:
    """Draw the list of numbers, means and names of the entries, in two columns."""
    axes.set_axis_off()
    half = -(-len(rows) // 2)
    for number, row in enumerate(rows):
        x, y = 0.5 * (number // half), 1 - (number % half + 0.5) / half
        means = "  ".join(f"{value:.2f}" for value in row.mean)
        axes.text(x, y, f"{number + 1}", transform=axes.transAxes, fontsize=6.5, ha="right", va="center")
        axes.text(x + 0.01, y, f"{means}  {row.label}", transform=axes.transAxes, fontsize=6.5, va="center")
