"""The tests of pairs of rows: files that the page loads when two rows are compared, a file for some rows of a table."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.leaderboard.ranks.board import Tab

from .index_json import SCHEMA

ROWS = 64  # of a file: of 1000 rows, the largest file has 62,000 pairs, some 90 kB gzipped
Floats = NDArray[np.float64]


def pair_files(tab: Tab) -> list[str]:
    """The names of a tab's files, without ending: "pairs/TAB.0", "pairs/TAB.1"; none where nothing was tested."""
    count = len(tab.pairs.rows) if tab.pairs else 0
    return [f"pairs/{tab.id}.{at}" for at in range(-(-count // ROWS))] if count > 1 else []


def pair_shards(tab: Tab) -> dict[str, dict[str, Any]]:
    """File name -> content. Rows stand in the tab's order; each has its pairs with the rows above it."""
    if tab.pairs is None:
        return {}
    index = {row: at for at, row in enumerate(tab.pairs.rows)}
    ranked = [row for row in tab.measured if row.id in index]
    order = [index[row.id] for row in ranked]
    different = tab.pairs.different[np.ix_(order, order)]
    values = np.array([row.cells[tab.lead].value for row in ranked])
    shown = whole_halves(values, tab.pairs.halves[np.ix_(order, order)], tab.digits)
    shards = {}
    for number, name in enumerate(pair_files(tab)):
        some = range(number * ROWS, min((number + 1) * ROWS, len(ranked)))
        shards[name] = {
            "schema_version": SCHEMA, "id": tab.id, "column": tab.lead, "first": some.start,
            "rows": [{"id": ranked[at].id, "different": "".join("01"[value] for value in different[at, :at].tolist()),
                      "half": [None if value < 0 else value for value in shown[at, :at].tolist()]} for at in some],
        }
    return shards


def whole_halves(values: Floats, halves: Floats, digits: int) -> NDArray[np.int64]:
    """(r, r) half widths of intervals of the differences between `values` (r,), in units of the last digit that is shown;
    -1 where there is none.

    Rounded to the nearest, unless the interval then left 0 out, or held it, where the unrounded one does not.
    """
    unit = 10.0**-digits
    # As the page computes a difference: of values with two digits more than are shown.
    rounded = np.round(values, digits + 2)
    sizes = np.round(np.abs(rounded[:, None] - rounded), digits + 2)
    nearest = np.round(halves / unit)
    reach = np.ceil(np.round(sizes / unit, 2))  # the least half width whose interval holds 0
    outside = np.abs(values[:, None] - values) > halves
    kept = np.where(outside, np.clip(nearest, 0, np.maximum(reach - 1, 0)), np.maximum(nearest, reach))
    return np.where(np.isfinite(halves), kept, -1).astype(np.int64)
