"""`compare` with a margin: the tests task by task, and what is said where."""

from __future__ import annotations

import json

import numpy as np
import pytest
from geometry_runs import make_run
from sts_runs import pairs, sts_run, two  # noqa: F401

from stsbench.comparison.compare import compare
from stsbench.comparison.wording import sentence
from stsbench.metrics.equivalence import equivalence
from stsbench.metrics.paired import holm
from stsbench.protocols.sts import TASKS, StsProtocol


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sides")
    return sts_run(folder / "a", 0.3), sts_run(folder / "b", 0.31, draw=1)


def test_every_task_has_the_test_of_its_draws(runs):
    """Which tests/metrics/test_equivalence.py holds against a counting loop."""
    table, = compare(*runs, resamples=60, margin=12).tables
    for row in table.rows:
        several = ("x", "y") if row.task in ("STS12", "STS13") else ("all",)
        sides = pairs(row.task, 0.3, several), pairs(row.task, 0.31, several, draw=1)
        draws = (StsProtocol({}).draws(side, TASKS[row.task], 60, 0)[None, "all", "spearman"] for side in sides)
        assert row.equivalence == equivalence(row.a, row.b, *draws, margin=12)
    assert [row.equivalence_corrected for row in table.rows] == holm([row.equivalence.p for row in table.rows])
    assert table.average.equivalence_corrected is None and table.average.equivalence.p < 0.05


def test_the_difference_is_as_without_a_margin(runs):
    plain, named = compare(*runs, resamples=40), compare(*runs, resamples=40, margin=5)
    assert "margin" not in plain.to_json() and "equivalence" not in plain.to_json() and "verdict" not in str(plain)
    stripped = json.loads(named.to_json())
    assert stripped.pop("margin") == 5
    for table in stripped["tables"]:
        for row in (*table["rows"], table["average"]):
            assert set(row.pop("equivalence")) == {"margin", "low", "high", "p_low", "p_high", "p", "p_holm", "verdict"}
    for table, other in zip(stripped["tables"], json.loads(plain.to_json())["tables"], strict=True):
        assert table.pop("sentence").startswith(other.pop("sentence"))
        assert table == other
    assert plain.to_arrow().column_names == named.to_arrow().column_names[: len(plain.to_arrow().column_names)]
    assert named.to_arrow().column_names[-1] == "verdict"


def test_different_yet_within_and_different(tmp_path):
    a, b = sts_run(tmp_path / "a", 0.1), sts_run(tmp_path / "b", 0.3, draw=1)
    within, = compare(a, b, resamples=100, margin=90).tables
    assert within.average.verdict == "different, yet within"
    assert "Different on average, yet within 90 points: 90 % interval" in sentence(within)
    beyond, = compare(a, b, resamples=100, margin=1).tables
    assert beyond.average.verdict == "different" and "Different on average: the 90 % interval, " in sentence(beyond)


def test_several_seeds(two):
    (a, b), (good, poor) = two
    table, = compare(a, b, resamples=200, margin=90).tables
    row, = table.rows
    assert row.equivalence.low < np.mean(good) - np.mean(poor) < row.equivalence.high
    low, high = row.difference.low, row.difference.high
    assert low < row.equivalence.low and row.equivalence.high < high  # 90 % inside 95 %
    assert row.equivalence.p < 0.05 and "within 90 points" in sentence(table)


def test_points_are_not_the_unit_of_other_scores(tmp_path):
    runs = [make_run(tmp_path / name, shift, ("geometry", "sts")) for name, shift in (("a", 0.0), ("b", 0.05))]
    tables = {table.setting.protocol: table for table in compare(*runs, resamples=60, margin=1).tables}
    assert tables["sts"].margin == 1 and tables["geometry"].margin is None
    assert tables["geometry"].rows[0].equivalence is None and "points" in tables["geometry"].no_margin
