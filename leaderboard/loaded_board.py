"""A loaded board for notebooks and programs: its leading table, a data frame of all scores, a plot, LaTeX, JSON, files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stsbench.display.table import Document
from stsbench.display.tabular import Tabular
from stsbench.errors import StsbenchError
from stsbench.leaderboard.page.site import index, tab_shard
from stsbench.leaderboard.page.tables import CSV_COLUMNS, SAMPLE, latex, latex_tables, lead_tab, lead_table, score_rows
from stsbench.leaderboard.ranks import board as ranks
from stsbench.registry import did_you_mean
from stsbench.wording import counted

from .board_files import below, outputs, write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pyarrow import Table

SHOWN = 20  # rows of the leading table
FRAME = (*CSV_COLUMNS, "clear_lead", "protocol", "metric", "aggregation", "better")  # the columns of `Board.to_pandas`


@dataclass(frozen=True, repr=False)
class Board(ranks.Board, Tabular):
    """A board, as `stsbench.leaderboard.load` returns it: tabs of ranked measured rows, with published rows beside them."""

    folder: Path

    def __repr__(self) -> str:
        entries = f"{len(self.entries)} {'entry' if len(self.entries) == 1 else 'entries'}"
        return f"<Board {self.folder}: {entries}, {counted(len(self.tabs), 'tab')}; print it for the leading one>"

    def document(self) -> Document:
        """Return the leading tab's best 20 rows, and remarks on the rows and tabs that are left out."""
        tab = lead_tab(self)
        return Document() if tab is None else Document([lead_table(tab, SHOWN)], below=self._remarks(tab))

    def tab(self, name: str | None = None) -> ranks.Tab:
        """Return the tab whose id is `name` ("sts-spearman-all", as in the page's address); the leading tab for None.

        Raises StsbenchError for an unknown name, and on an empty board.
        """
        tab = lead_tab(self) if name is None else next((tab for tab in self.tabs if tab.id == name), None)
        if tab is None:
            which = f" '{name}'{did_you_mean(name, [tab.id for tab in self.tabs])}" if name else ""
            raise StsbenchError(f"the board {self.folder} has no tab{which}")
        return tab

    def to_arrow(self) -> Table:
        """Return a table with a row for each score of each row of each tab: the columns of leaderboard.csv, and five more.

        The five are clear_lead (whether this row alone may be first, at 95 %, jointly with all others; None without a rank),
        protocol, metric, aggregation, and better (which end of the column is). Scores and intervals are in the tab's unit.
        """
        import pyarrow

        tabs = {tab.id: tab for tab in self.tabs}
        columns: dict[str, list[Any]] = {name: [] for name in FRAME}
        for row in score_rows(self):
            tab = tabs[row["tab"]]
            more = (row["last"] and row["last"] == 1, tab.group, tab.metric, tab.aggregation, tab.direction(row["column"]))
            for name, value in zip(FRAME, (*row.values(), *more), strict=True):
                columns[name].append(value)
        return pyarrow.table(columns)

    def plot(self, tab: str | None = None, *, axes: Axes | None = None) -> Axes:
        """Return Matplotlib axes with the ranked rows of a tab (the leading one), the best at the top: lead score, 95 %
        interval and a filled dot where the row may be first. axes: to draw on. Raises StsbenchError where nothing is
        ranked."""
        from stsbench.display.style import interval_axes

        shown = self.tab(tab)
        rows = [(row, row.rank, row.cells[shown.lead]) for row in shown.measured if row.rank]
        if not rows:
            raise StsbenchError(f"the tab {shown.id} has no ranked rows: there is nothing to draw")
        return interval_axes(
            [method_label(row.method, row.flags) for row, _, _ in rows], [cell.value for _, _, cell in rows],
            [(cell.low, cell.high) for _, _, cell in rows],
            f"{shown.lead} ({shown.title}), 95 % interval; filled: may be first",
            filled=[rank.first == 1 for _, rank, _ in rows], axes=axes,
        )

    def latex(self, tab: str | None = None) -> str:
        """Return a LaTeX (booktabs) table of the tab named `tab`, or of all tabs as in leaderboard.tex."""
        return latex_tables(self) if tab is None else latex(self.tab(tab))

    def to_json(self) -> str:
        """Return a JSON text of the page's index.json, with the content of tabs/*.json in its list of tabs."""
        whole = index(self)
        tabs = [{**about, **tab_shard(self, tab)} for about, tab in zip(whole["tabs"], self.tabs, strict=True)]
        return json.dumps({**whole, "tabs": [{name: tab[name] for name in tab if name not in ("file", "pairs")}
                                             for tab in tabs]}, ensure_ascii=False, allow_nan=False)

    def save(self, path: str | Path) -> tuple[Path, ...]:
        """Write the page and the tables below the folder `path`, as `stsbench leaderboard build --output` does, and return
        the files that changed."""
        return write(below(Path(path), outputs(self)))

    def _remarks(self, tab: ranks.Tab) -> list[str]:
        rows = tab.measured or tab.published
        return [
            *([SAMPLE] if tab.sample else []),
            *([f"{counted(len(rows) - SHOWN, 'row')} further down left out"] if len(rows) > SHOWN else []),
            *(f"{row.method}: {row.unranked}" for row in tab.measured if row.unranked),
            *([f"{counted(len(tab.published), 'published row')}: never ranked"] if tab.published else []),
            *self._other_tabs(tab),
        ]

    def _other_tabs(self, tab: ranks.Tab) -> list[str]:
        """Return a line that names the other tabs with measured rows, and counts those of published rows alone."""
        others = [other for other in self.tabs if other is not tab]
        named = [other.id for other in others if other.measured]
        published = len(others) - len(named)
        counts = [f"{counted(published, 'tab')} of published rows alone"] if published else []
        return [f"other tabs: {', '.join([*named, *counts])}"] if others else []


def method_label(method: str, flags: Sequence[str]) -> str:
    """Return the method's name with, in brackets, the flags that make its score incomparable with others': trained with STS
    labels or on test texts, the best of several seeds."""
    labels = [ranks.FLAGS[flag][0] for flag in flags if flag in ranks.UNLIKE]
    return method + (f" ({', '.join(labels)})" if labels else "")
