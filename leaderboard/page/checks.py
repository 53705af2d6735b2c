"""What a board must be before it is shown: a wrong one is refused in one line, never drawn."""

from __future__ import annotations

import math
import re

from stsbench.errors import StsbenchError
from stsbench.leaderboard.ranks.board import Board, Row, Tab

# http, https, or a path beside the page: a colon elsewhere could begin another scheme (javascript:).
_LINK = re.compile(r"https?://[^\x00-\x20\x7f\\]+|[^\x00-\x20\x7f\\:]+", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)


def check(board: Board) -> None:
    """Raises StsbenchError where two tabs share an id, a name is unfit for a file, a score is not finite, or an entry is not
    in the board."""
    taken: set[str] = set()
    for tab in board.tabs:
        # Files of one name in another case are one file on some systems.
        if tab.id.lower() in taken or not _NAME.fullmatch(tab.id):
            raise StsbenchError(
                f"tab '{tab.id}' ({tab.title}): its id is taken or unfit for a file and a link; give it another"
            )
        taken.add(tab.id.lower())
        if tab.lead not in tab.columns:
            raise StsbenchError(f"tab '{tab.id}': its lead '{tab.lead}' is not one of its columns")
        for row in (*tab.measured, *tab.published):
            _check_row(board, tab, row)
    names: set[str] = set()
    for name in board.entries:
        if name.lower() in names or not _NAME.fullmatch(name):
            raise StsbenchError(f"entry '{name}': its name is taken or unfit for a file and a link; rename its folder")
        names.add(name.lower())


def _check_row(board: Board, tab: Tab, row: Row) -> None:
    for name, cell in (*row.cells.items(), *row.subsets.items()):
        if not all(math.isfinite(x) for x in (cell.value, cell.low, cell.high, cell.sd) if x is not None):
            raise StsbenchError(f"tab '{tab.id}', row '{row.id}', {name}: not a finite number")
    if row.entry and row.entry not in board.entries:
        raise StsbenchError(f"tab '{tab.id}', row '{row.id}': no entry '{row.entry}' stands behind it")


def safe_link(link: str) -> str:
    """`link` where it is http, https or relative, else ""."""
    return link if _LINK.fullmatch(link) else ""
