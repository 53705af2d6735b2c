"""index.json: what the board holds and in which file, for the page and for programs (docs/reference/board-api.md)."""

from __future__ import annotations

import re
from typing import Any

from stsbench.leaderboard.ranks.board import FLAGS, Board, Row, Tab
from stsbench.leaderboard.ranks.wording import group_title

SCHEMA = 1  # raised when a field changes its meaning or goes
CELL = ("value", "low", "high", "sd", "n")  # what a score's list holds, in this order
SETTINGS = {
    "unsup": "no labels", "semi": "labels of natural language inference, through a classifier",
    "sup": "labels used otherwise, by the backbone of a measured row, too; or what a paper calls supervised",
}


def index(board: Board) -> dict[str, Any]:
    """The index as plain data. Tabs and entries stand in the order of the board, and name their files."""
    return {
        "schema_version": SCHEMA,
        "updated": updated(board), **({"name": board.name} if board.name else {}),
        "cell": list(CELL),
        "settings": SETTINGS,
        "flags": {
            key: {"label": FLAGS.get(key, (key, key))[0], "about": FLAGS.get(key, (key, key))[1]} for key in _flags(board)
        },
        "groups": [{"id": name, "title": group_title(name)} for name in dict.fromkeys(tab.group for tab in board.tabs)],
        "tabs": [_tab(tab) for tab in board.tabs],
        "entries": {key: {"name": board.entries[key].name, "file": f"entries/{key}.json"} for key in sorted(board.entries)},
    }


def updated(board: Board) -> str | None:
    """When the newest record was measured (ISO 8601, UTC); None for a board without measured rows."""
    dates = [moment for entry in board.entries.values() for run in entry.runs for moment in run.get("measured", ())]
    return max(dates, default=None)


def form(tab: Tab) -> str:
    """What a tab's title says behind metric and aggregation: "raw text"; "" for a protocol's defaults."""
    if tab.form is not None:
        return tab.form
    _, *rest = re.split(r", ", tab.title)
    return ", ".join(part for part in rest if part != tab.aggregation)


def _tab(tab: Tab) -> dict[str, Any]:
    prompted = sum(row.prompts is not None for row in tab.measured)
    return {
        "id": tab.id, "group": tab.group, "title": tab.title, "about": tab.about, "metric": tab.metric,
        "aggregation": tab.aggregation, "form": form(tab), "lead": tab.lead, "digits": tab.digits,
        "columns": [{"name": column, "better": tab.direction(column), "lower_is_better": tab.lower(column),
                     **({"digits": tab.finer[column]} if column in tab.finer else {})}
                    for column in _columns(tab)],
        "sample": tab.sample, "known_data": tab.known, "measured": len(tab.measured), "published": len(tab.published),
        "file": f"tabs/{tab.id}.json", **({"prompts": prompted} if prompted else {}),
        **({"user_set": tab.user_set} if tab.user_set else {}), **({"language": tab.language} if tab.language else {}),
    }


def _columns(tab: Tab) -> list[str]:
    """An average first, so that it is in sight on a phone; else in the tab's order."""
    first = [column for column in tab.columns if column == tab.lead == "Avg"]
    return [*first, *(column for column in tab.columns if column not in first)]


def _flags(board: Board) -> list[str]:
    """Flags that some row has, those of FLAGS first."""
    used = {flag for row in _rows(board) for flag in row.flags}
    return [*(flag for flag in FLAGS if flag in used), *sorted(used - set(FLAGS))]


def _rows(board: Board) -> list[Row]:
    return [row for tab in board.tabs for row in (*tab.measured, *tab.published)]
