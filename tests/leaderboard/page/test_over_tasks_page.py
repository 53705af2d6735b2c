"""An average's interval over tasks on the board: in an entry's file and in the tables, apart from that over items."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest
from board_example import TASKS, board
from scipy import stats

from stsbench.leaderboard.page.site import site
from stsbench.leaderboard.page.tables import csv_table
from stsbench.leaderboard.ranks.board import Board

WHOLE = board(published=3)
TAB = replace(WHOLE.tabs[0], averaged=TASKS)
MADE = Board((TAB, *WHOLE.tabs[1:]), WHOLE.entries, None)


def of_tasks(row):
    return [row.cells[task].value for task in TASKS]


def close(row, other, share):
    near = abs(row.cells["Avg"].value - other.cells["Avg"].value) < 1
    return {"overstated": True} if near and share >= 0.7 else {}


def test_the_interval_is_students_and_published_rows_have_none() -> None:
    for row in TAB.measured:
        over = TAB.over_tasks(row)
        assert (over.low, over.high) == pytest.approx(stats.ttest_1samp(of_tasks(row), 0).confidence_interval())
        assert WHOLE.tabs[0].over_tasks(row) is None
    assert [TAB.over_tasks(row) for row in TAB.published] == [None] * 3
    part = replace(TAB.measured[0], cells={name: cell for name, cell in TAB.measured[0].cells.items() if name != "STS13"})
    assert TAB.over_tasks(part) is None


def test_neighbours_are_the_ranked_rows_above_and_below() -> None:
    ranked = [row for row in TAB.measured if row.rank]
    assert [other.id for other, _ in TAB.neighbours(ranked[3])] == [ranked[2].id, ranked[4].id]
    assert [other.id for other, _ in TAB.neighbours(ranked[0])] == [ranked[1].id]
    assert TAB.neighbours(next(row for row in TAB.measured if not row.rank)) == []
    gaps = np.subtract(of_tasks(ranked[3]), of_tasks(ranked[2]))
    scale = gaps.std(ddof=1) * (2 / 7) ** 0.5
    assert TAB.neighbours(ranked[3])[0][1] == pytest.approx(stats.t.cdf(abs(gaps.mean()) / scale, 6))
    twins = replace(TAB, measured=(ranked[0], replace(ranked[0], id="twin")))
    assert twins.neighbours(ranked[0]) == []


def test_an_entrys_file_holds_them_and_the_first_table_does_not_grow() -> None:
    files, before = site(MADE), site(Board(WHOLE.tabs, WHOLE.entries, None))
    assert files[f"tabs/{TAB.id}.json"] == before[f"tabs/{TAB.id}.json"]
    for entry in MADE.entries:  # this example's entries have several rows in a tab: a line each
        lines = json.loads(files[f"entries/{entry}.json"])["over_tasks"]
        its = [row for row in TAB.measured if row.entry == entry]
        for line, row in zip(lines, its, strict=True):
            over, order = TAB.over_tasks(row), TAB.neighbours(row)
            assert [line[key] for key in ("tab", "n", "low", "high", "sd")] == [
                TAB.id, 7, round(over.low, 2), round(over.high, 2), round(over.sd, 2)]
            expected = [{"id": other.id, "same_order": round(share, 4), **close(row, other, share)}
                        for other, share in order]
            assert line.get("neighbours", []) == expected
        assert "over_tasks" not in json.loads(before[f"entries/{entry}.json"])


def test_the_csv_has_both_intervals_in_the_leads_lines_only() -> None:
    lines = [line for line in csv.DictReader(io.StringIO(csv_table(MADE))) if line["tab"] == TAB.id]
    for row in TAB.measured:
        its = {line["column"]: line for line in lines if line["id"] == row.id}
        over = TAB.over_tasks(row)
        bounds = [float(its["Avg"][key]) for key in ("over_tasks_low", "over_tasks_high")]
        assert bounds == pytest.approx([over.low, over.high], abs=1e-6)
        assert float(its["Avg"]["low"]) == pytest.approx(row.cells["Avg"].low, abs=1e-6)
        assert {its[task]["over_tasks_low"] for task in TASKS} == {""}
    assert {line["over_tasks_high"] for line in lines if line["kind"] == "published"} == {""}
