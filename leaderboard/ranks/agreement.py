"""Do the protocols agree? The order of the same measured rows by STS, by trained heads, by retrieval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stsbench.evaluation.protocol import kinds

from .board import Row, Tab
from .sensitivity import rows_in_all, short_names

LEAST = 3  # rows; of two, an order says nothing


@dataclass(frozen=True)
class Agreement:
    """tabs: one a protocol; names: row id -> its name; scores: of each tab, row id -> the tab's lead score.

    tau: Kendall's tau-b of tab i's and tab j's order of the rows, None where all rows of one have the same score.
    """

    tabs: tuple[Tab, ...]
    names: dict[str, str]
    scores: tuple[dict[str, float], ...]
    tau: tuple[tuple[float | None, ...], ...]


def agreement(tabs: Sequence[Tab]) -> Agreement | None:
    """The rows that are ranked under every protocol of the board, by the first tab of each in which more is better; None
    for fewer than two protocols or `LEAST` rows. Rows that are never ranked (the best of several seeds) are left out."""
    chosen = [tab for group in kinds() if (tab := _first(tabs, group))]
    rows = rows_in_all(chosen)
    if len(chosen) < 2 or len(rows) < LEAST:
        return None
    by_id: list[dict[str, Row]] = [{row.id: row for row in tab.measured} for tab in chosen]
    scores = tuple(
        {row.id: round(of_tab[row.id].cells[tab.lead].value, 6) for row in rows}
        for tab, of_tab in zip(chosen, by_id, strict=True)
    )
    tau = tuple(tuple(_tau(one, other) for other in scores) for one in scores)
    return Agreement(tuple(chosen), short_names(rows), scores, tau)


def _first(tabs: Sequence[Tab], group: str) -> Tab | None:
    usable = (tab for tab in tabs if tab.group == group and tab.known and not tab.sample)
    ranked = (tab for tab in usable if any(not row.unranked for row in tab.measured))
    return next((tab for tab in ranked if tab.direction(tab.lead) == "higher"), None)


def _tau(one: dict[str, float], other: dict[str, float]) -> float | None:
    from scipy.stats import kendalltau

    tau = float(kendalltau(list(one.values()), [other[id] for id in one], variant="b")[0])
    return round(tau, 6) if math.isfinite(tau) else None
