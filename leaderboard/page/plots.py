"""The picture of a tab's ranked rows, by matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stsbench.display.style import interval_axes
from stsbench.errors import StsbenchError
from stsbench.leaderboard.ranks.board import FLAGS, UNLIKE, Tab

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def ranks_axes(tab: Tab, axes: Axes | None = None) -> Axes:
    """Return the best row at the top, a filled dot where it may be first at 95 %, jointly with all others. Raises
    StsbenchError for a tab without ranked rows."""
    rows = [(row, row.rank, row.cells[tab.lead]) for row in tab.measured if row.rank]
    if not rows:
        raise StsbenchError(f"the tab {tab.id} has no ranked rows: there is nothing to draw")
    cells = [cell for _, _, cell in rows]
    return interval_axes(
        [method_label(row.method, row.flags) for row, _, _ in rows], [cell.value for cell in cells],
        [(cell.low, cell.high) for cell in cells],
        f"{tab.lead} ({tab.title}), 95 % interval; filled: may be first", filled=[rank.first == 1 for _, rank, _ in rows],
        axes=axes,
    )


def method_label(method: str, flags: Sequence[str]) -> str:
    """Return the method, and what makes its score another thing than its neighbours': labels of STS, test texts seen, the
    best of many."""
    labels = [FLAGS[flag][0] for flag in flags if flag in UNLIKE]
    return method + (f" ({', '.join(labels)})" if labels else "")
