"""The ranked rows of a tab as matplotlib axes: score, 95 % interval, and which of them may be first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stsbench.errors import StsbenchError
from stsbench.leaderboard.ranks.board import FLAGS, UNLIKE, Row, Tab
from stsbench.plots.style import COLOURS, GREY, PAGE, new_figure, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROW = 0.22  # inches that a row takes


def ranks_axes(tab: Tab) -> Axes:
    """The best row at the top, a filled dot where it may be first at 95 %, jointly with all others. Raises StsbenchError for
    a tab without ranked rows."""
    rows = [(row, row.rank, row.cells[tab.lead]) for row in tab.measured if row.rank]
    if not rows:
        raise StsbenchError(f"the tab {tab.id} has no ranked rows: there is nothing to draw")
    with style():
        axes: Axes = new_figure(PAGE, 0.7 + ROW * len(rows)).subplots()
        for y, (_, rank, cell) in enumerate(rows):
            if cell.low is not None and cell.high is not None:
                axes.plot([cell.low, cell.high], [y, y], color=COLOURS[0], linewidth=1.2)
            fill = COLOURS[0] if rank.first == 1 else "white"
            axes.plot([cell.value], [y], "o", color=COLOURS[0], markerfacecolor=fill, markersize=4, linestyle="")
        axes.set_yticks(range(len(rows)), [_label(row) for row, _, _ in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.grid(axis="x", color=GREY, alpha=0.25, linewidth=0.5)
        axes.set_xlabel(f"{tab.lead} ({tab.title}), 95 % interval; filled: may be first")
    return axes


def _label(row: Row) -> str:
    """The method, and what makes its score another thing than its neighbours': labels of STS, test texts seen."""
    labels = [FLAGS[flag][0] for flag in row.flags if flag in UNLIKE]
    return row.method + (f" ({', '.join(labels)})" if labels else "")
