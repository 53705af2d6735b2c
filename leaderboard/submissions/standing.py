"""Reports on the ranks of new or changed entries, for submitters and reviewers."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from stsbench.display.markup import pipes, plain_markdown
from stsbench.display.tabular import Rows
from stsbench.leaderboard.ranks.board import Board, Cell, Row, Tab, span
from stsbench.parsing import TooLargeError, load_yaml
from stsbench.wording import counted

from .checkout import EntryChange

if TYPE_CHECKING:
    from pyarrow import Table

Standing = tuple[Tab, Row]
COLUMNS = ("entry", "new", "tab", "protocol", "column", "value", "low", "high", "first", "last", "ranked", "unranked")
_LISTED = 10  # the most files that a report names


@dataclass(frozen=True, repr=False)
class Placement(Rows):
    """The ranks of new or changed entries on a board. others: changed files that are not of an entry."""

    board: Board
    changes: tuple[EntryChange, ...]
    others: tuple[str, ...] = ()

    def __repr__(self) -> str:
        names = ", ".join(change.entry for change in self.changes) or "no entry"
        return f"<Placement of {names}; print it for where they rank>"

    def __str__(self) -> str:
        return report(self.board, self.changes, self.others)

    def _repr_markdown_(self) -> str:
        return str(self)

    def to_arrow(self) -> Table:
        """Return a table with a row for each entry and tab: the lead score with its 95 % interval, the 95 % interval of the
        rank and the number of ranked rows, or why the row has no rank."""
        import pyarrow

        columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
        for change in self.changes:
            for tab, row in standings(self.board, change.entry):
                cell, rank = row.cells.get(tab.lead), row.rank
                scores = (cell.value, cell.low, cell.high) if cell else (None, None, None)
                ranks = (rank.first, rank.last, _ranked(tab), "") if rank else (None, None, _ranked(tab), _reason(row))
                line = (change.entry, change.new, tab.id, tab_protocol(tab), tab.lead, *scores, *ranks)
                for name, value in zip(COLUMNS, line, strict=True):
                    columns[name].append(value)
        return pyarrow.table(columns)


def standings(board: Board, entry: str) -> list[Standing]:
    """Return the tabs with a row of an entry, each with that row, in the board's order. An entry of prompts has the rows of
    its encoder's entry."""
    of = next((key for key, about in board.entries.items() if entry in about.prompt_entries), entry)
    return [(tab, row) for tab in board.tabs for row in tab.measured if row.entry == of]


def headline(standing: Standing) -> str:
    """Return "rank 4-7 of 35 under sts:all (Spearman, all; Avg 75.97, 95 % interval 74.54 to 77.40)", a row's rank."""
    tab, row = standing
    where = f"under {tab_protocol(tab)} ({tab.title}; {_score(tab, row)})"
    return f"rank {_rank(tab, row)} {where}" if row.rank else f"not be ranked {where}: {_reason(row)}"


def tab_protocol(tab: Tab) -> str:
    """Return a tab's protocol as the value of --protocol: "sts:all"."""
    return ":".join(filter(None, (tab.group, tab.aggregation)))


def report(board: Board, changes: Sequence[EntryChange], others: Sequence[str] = ()) -> str:
    """Return the summary of a pull request as Markdown: where each new or changed entry would rank, how its description
    changes, and which other files change, on which the board may depend."""
    parts = [_section(board, change) for change in changes] or ["No measured entry is new or changed."]
    if others:
        files = ", ".join(map(plain_markdown, others[:_LISTED]))
        rest = f" and {len(others) - _LISTED} more" if len(others) > _LISTED else ""
        parts.append(f"**Not only entries change**, but also {counted(len(others), 'other file')}: {files}{rest}.")
    return "\n\n".join(parts) + "\n"


def _section(board: Board, change: EntryChange) -> str:
    lines = [f"### {plain_markdown(change.entry)} ({_described(change)})"]
    if change.described:
        lines.append("Its description changes:\n\n" + "\n".join(_differences(*map(_fields, change.described))))
    placed = standings(board, change.entry)
    if not placed:
        return "\n\n".join([*lines, "This entry is no longer on the board."])
    of = placed[0][1].entry
    whose = "Your entry" if change.new else "This entry"
    whose = whose if of == change.entry else f"The row of {of}, whose prompts these are,"
    lines.append(f"**{plain_markdown(whose)} would {plain_markdown(headline(placed[0]))}.**")
    if placed[1:]:
        grid = [["Protocol", "Tab", "Score", "Rank"]]
        grid += [[tab_protocol(tab), plain_markdown(tab.title), plain_markdown(_score(tab, row)),
                  plain_markdown(_rank(tab, row) if row.rank else _reason(row))] for tab, row in placed[1:]]
        lines.append(pipes(grid, 4))
    if notes := list(dict.fromkeys(mark for _, row in placed for mark in row.marks)):
        lines.append("\n".join(f"- {plain_markdown(note)}" for note in notes))
    return "\n\n".join(lines)


def _fields(text: str) -> dict[str, Any]:
    """Return the fields of an entry.yaml; {} for a text that is not a mapping."""
    try:
        fields = load_yaml(text)
    except (yaml.YAMLError, TooLargeError):
        fields = None
    return fields if isinstance(fields, dict) else {}


def _differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return a Markdown bullet for each field that differs."""
    names = [name for name in dict.fromkeys([*before, *now]) if before.get(name) != now.get(name)]
    lines = [f"{name}: {_value_text(before.get(name))} → {_value_text(now.get(name))}" for name in names]
    return [f"- {plain_markdown(line)}" for line in lines or ["its form, and nothing it says"]]


def _value_text(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)
    return textwrap.shorten(text, 120, placeholder=" …") or "nothing"


def _described(change: EntryChange) -> str:
    if change.new:
        return f"new, {counted(change.added, 'file')}"
    counts = {"added": change.added, "changed": change.changed, "deleted": change.deleted}
    return "on the board already; " + ", ".join(f"{counted(n, 'file')} {what}" for what, n in counts.items() if n)


def _rank(tab: Tab, row: Row) -> str:
    assert row.rank is not None
    over = f" (over prompts {span(*row.rank.prompts)})" if row.rank.prompts else ""
    return f"{row.rank.interval} of {_ranked(tab)}{over}"


def _ranked(tab: Tab) -> int:
    return sum(row.rank is not None for row in tab.measured)


def _reason(row: Row) -> str:
    return row.unranked.removeprefix("not ranked: ") or "its rows are never ranked"


def _score(tab: Tab, row: Row) -> str:
    cell = row.cells.get(tab.lead)
    return f"{tab.lead} {_figures(cell, tab.digits)}{_over_prompts(tab, row)}" if cell else f"no {tab.lead}"


def _over_prompts(tab: Tab, row: Row) -> str:
    if (over := row.prompts) is None:
        return ""
    return f"; {over.lowest:.{tab.digits}f} to {over.highest:.{tab.digits}f} over {counted(over.n, 'prompt')}"


def _figures(cell: Cell, digits: int) -> str:
    value = f"{cell.value:.{digits}f}"
    if cell.low is None or cell.high is None:
        return value
    return f"{value}, 95 % interval {cell.low:.{digits}f} to {cell.high:.{digits}f}"
