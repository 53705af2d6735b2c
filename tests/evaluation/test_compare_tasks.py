"""What `compare` says of other tasks, of parts that are too small to rank by, and of what it could not detect."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from sts_runs import sts_run
from test_compare import row

import stsbench
from stsbench.comparison.compare import compare
from stsbench.comparison.wording import notes, over_tasks
from stsbench.metrics.power import detectable_difference

ENCODER = "lexical:token-set"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tasks")
    return compare(sts_run(folder / "a", 0.1), sts_run(folder / "b", 0.5, draw=1), resamples=40)


def test_the_interval_is_the_paired_t_test_over_tasks(made):
    table, = made.tables
    low, high = stats.ttest_rel([row.a for row in table.rows], [row.b for row in table.rows]).confidence_interval()
    read = json.loads(made.to_json())["tables"][0]
    assert [read["over_tasks"][key] for key in ("tasks", "low", "high")] == pytest.approx([7, low, high])
    assert 0.5 < read["over_tasks"]["same_order"] <= 1 and read["small_parts"] is None
    assert read["over_tasks"]["value"] == pytest.approx(table.average.difference.value)
    assert replace(table, average=None).over_tasks is None and not over_tasks(replace(table, average=None))


START, DRAWS = "Over other tasks, too: A - B, 95 % interval ", "on 3 other tasks of the same kind"


@pytest.mark.parametrize(("gaps", "line"), [
    ((2.0, 4, 6), f"{START}-0.97 to 8.97; {DRAWS} A would be ahead 93 times of 100."),
    ((0.2, 0.4, 0.6), f"{START}-0.10 to 0.90; {DRAWS} A would be ahead 93 times of 100. Between encoders "
     "less than a point apart such shares were too high on MTEB's published scores."),
    ((5.0, 5.01, 5.02), f"{START}4.99 to 5.03; {DRAWS} A would be ahead more than 99 times of 100."),
    ((1.0, 0, -1), f"{START}-2.48 to 2.48."),
    ((1.0, 2), "Over other tasks, too: no interval, for 2 tasks cannot show how much tasks differ: 3 are needed."),
    ((0.0, 0, 0), ""),
])
def test_lines(made, gaps, line):
    rows = tuple(row(f"T{i}", gap, gap - 1, gap + 1, 0.01, 0.01) for i, gap in enumerate(gaps))
    table = replace(made.tables[0], rows=rows, average=row("Avg", float(np.mean(gaps)), -1, 1, 0.01))
    assert over_tasks(table) == line and (not line or line in notes(table))


def test_parts_too_small_to_rank_by_are_named_where_an_average_counts_them(tmp_path):
    a, b = sts_run(tmp_path / "a", 0.2, ["STS12", "STS-B"]), sts_run(tmp_path / "b", 0.3, ["STS12", "STS-B"], draw=1)
    said = "STS12 x: 30 items, STS12 y: 30, too few to rank by (under 50); the average of parts counts them as published."
    result = compare(a, b, protocol="sts:mean", resamples=40)
    assert result.tables[0].small_parts == said and said in notes(result.tables[0])
    assert json.loads(result.to_json())["tables"][0]["small_parts"] == said
    assert not compare(a, b, protocol="sts", resamples=40).tables[0].small_parts


def test_what_could_not_be_detected():
    runs = [stsbench.evaluate(model, sample=True, resamples=0, tasks="STS-B,SICK-R") for model in ("lexical:tfidf", ENCODER)]
    table = compare(*runs, protocol="sts", resamples=300).tables[0]
    column, first = table.columns()[-1], table.rows[0]
    assert first.detectable == pytest.approx(detectable_difference(first.difference.error))
    assert column.name == "detectable at 80 % power" and float(column.texts[0]) == pytest.approx(first.detectable, abs=0.01)
    assert any(line.startswith("Few items (2 tasks of 42): the 95 % intervals are ±") for line in notes(table))
    same = compare(runs[0], runs[0], protocol="sts", resamples=300).tables[0]
    assert same.rows[0].detectable is None and same.columns()[-1].texts[0] == ""
    assert "Few items" in stsbench.evaluate(ENCODER, sample=True, resamples=200, tasks="STS-B,SICK-R").latex()
