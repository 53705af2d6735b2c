"""Where an entry stands on the board, in words: for whoever adds it, and for whoever reviews it."""

from __future__ import annotations

from collections.abc import Sequence

from stsbench.leaderboard.checkout import EntryChange
from stsbench.leaderboard.page.markdown_text import pipes, plain_markdown
from stsbench.leaderboard.ranks.board import Board, Cell, Row, Tab
from stsbench.wording import counted

Standing = tuple[Tab, Row]


def standings(board: Board, entry: str) -> list[Standing]:
    """The tabs that an entry stands in, with its row of each, in the board's order."""
    return [(tab, row) for tab in board.tabs for row in tab.measured if row.entry == entry]


def headline(standing: Standing) -> str:
    """"rank 4-7 of 35 under sts:all (Spearman, all; Avg 75.97, 95 % interval 74.54 to 77.40)"."""
    tab, row = standing
    where = f"under {protocol_of(tab)} ({tab.title}; {_score(tab, row)})"
    return f"rank {_place(tab, row)} {where}" if row.rank else f"not be ranked {where}: {_reason(row)}"


def protocol_of(tab: Tab) -> str:
    """A tab's protocol as an option has it: "sts:all"."""
    return ":".join(filter(None, (tab.group, tab.aggregation)))


def report(board: Board, changes: Sequence[EntryChange]) -> str:
    """Markdown, for the summary of a pull request: where each new or changed entry would stand."""
    if not changes:
        return "No measured entry is new or changed.\n"
    return "\n\n".join(_section(board, each) for each in changes) + "\n"


def _section(board: Board, change: EntryChange) -> str:
    lines = [f"### {plain_markdown(change.entry)} ({_described(change)})"]
    placed = standings(board, change.entry)
    if not placed:
        return "\n\n".join([*lines, "This entry is no longer on the board."])
    lines.append(f"**Your entry would {plain_markdown(headline(placed[0]))}.**")
    if placed[1:]:
        grid = [["Protocol", "Tab", "Score", "Rank"]]
        grid += [[protocol_of(tab), plain_markdown(tab.title), plain_markdown(_score(tab, row)),
                  plain_markdown(_place(tab, row) if row.rank else _reason(row))] for tab, row in placed[1:]]  # fmt: skip
        lines.append(pipes(grid, 4))
    if notes := list(dict.fromkeys(mark for _, row in placed for mark in row.marks)):
        lines.append("\n".join(f"- {plain_markdown(note)}" for note in notes))
    return "\n\n".join(lines)


def _described(change: EntryChange) -> str:
    if change.new:
        return f"new, {counted(change.added, 'file')}"
    counts = {"added": change.added, "changed": change.changed, "deleted": change.deleted}
    return "on the board already; " + ", ".join(f"{counted(n, 'file')} {what}" for what, n in counts.items() if n)


def _place(tab: Tab, row: Row) -> str:
    assert row.rank is not None
    ranked = sum(other.rank is not None for other in tab.measured)
    first, last = row.rank.first, row.rank.last
    return f"{first if first == last else f'{first}-{last}'} of {ranked}"


def _reason(row: Row) -> str:
    return row.unranked.removeprefix("not ranked: ") or "its rows are never ranked"


def _score(tab: Tab, row: Row) -> str:
    cell = row.cells.get(tab.lead)
    return f"{tab.lead} {_figures(cell, tab.digits)}" if cell else f"no {tab.lead}"


def _figures(cell: Cell, digits: int) -> str:
    value = f"{cell.value:.{digits}f}"
    if cell.low is None or cell.high is None:
        return value
    return f"{value}, 95 % interval {cell.low:.{digits}f} to {cell.high:.{digits}f}"
