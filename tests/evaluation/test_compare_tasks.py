"""What `compare` says of other tasks, and of parts that are too small to rank by."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from clirun import cli, place  # noqa: F401
from scipy import stats
from sts_runs import sts_run
from test_compare import row

from stsbench.comparison.compare import compare
from stsbench.comparison.wording import notes, over_tasks


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tasks")
    return compare(sts_run(folder / "a", 0.2), sts_run(folder / "b", 0.3, draw=1), resamples=40).tables[0]


def test_the_line_is_the_paired_t_test_over_tasks(tmp_path, cli):
    a, b = sts_run(tmp_path / "a", 0.1, name="one"), sts_run(tmp_path / "b", 0.5, draw=1, name="two")
    made, = compare(a, b, resamples=40).tables
    low, high = stats.ttest_rel([row.a for row in made.rows], [row.b for row in made.rows]).confidence_interval()
    code, out, _ = cli("compare", a, b, "--resamples", 40)
    assert code == 0 and f"\nOver other tasks, too: A - B, 95 % interval {low:.2f} to {high:.2f}; on 7 other tasks " in out
    assert re.search(r"of the same kind A would be ahead (more than )?\d+ times of 100\.\n", out)
    read = json.loads(cli("compare", a, b, "--resamples", 40, "--json", "-")[1])["tables"][0]
    assert [read["over_tasks"][key] for key in ("tasks", "low", "high")] == pytest.approx([7, low, high])
    assert 0.5 < read["over_tasks"]["same_order"] <= 1 and read["small_parts"] is None
    assert read["over_tasks"]["value"] == pytest.approx(made.average.difference.value)
    single, = compare(a, b, protocol="sts", resamples=40, metric="pearson").tables
    assert replace(single, average=None).over_tasks is None and not over_tasks(replace(single, average=None))


START, DRAWS = "Over other tasks, too: A - B, 95 % interval ", "on 3 other tasks of the same kind"


@pytest.mark.parametrize(("gaps", "line"), [
    ((2.0, 4, 6), f"{START}-0.97 to 8.97; {DRAWS} A would be ahead 93 times of 100."),
    ((-2.0, -4, -6), f"{START}-8.97 to 0.97; {DRAWS} B would be ahead 93 times of 100."),
    ((0.2, 0.4, 0.6), f"{START}-0.10 to 0.90; {DRAWS} A would be ahead 93 times of 100. Between encoders "
     "less than a point apart such shares were too high on MTEB's published scores."),
    ((5.0, 5.01, 5.02), f"{START}4.99 to 5.03; {DRAWS} A would be ahead more than 99 times of 100."),
    ((1.0, 0, -1), f"{START}-2.48 to 2.48."),
    ((1.0, 2), "Over other tasks, too: no interval, for 2 tasks cannot show how much tasks differ: 3 are needed."),
    ((0.0, 0, 0), ""),
])
def test_lines(table, gaps, line):
    rows = tuple(row(f"T{i}", gap, gap - 1, gap + 1, 0.01, 0.01) for i, gap in enumerate(gaps))
    made = replace(table, rows=rows, average=row("Avg", float(np.mean(gaps)), -1, 1, 0.01))
    assert over_tasks(made) == line and (not line or line in notes(made))


def test_parts_too_small_to_rank_by_are_named_where_an_average_counts_them(tmp_path, cli):
    a, b = sts_run(tmp_path / "a", 0.2, ["STS12", "STS-B"]), sts_run(tmp_path / "b", 0.3, ["STS12", "STS-B"], draw=1)
    said = "STS12 x: 30 items, STS12 y: 30, too few to rank by (under 50); the average of parts counts them as published."
    mean, = compare(a, b, protocol="sts:mean", resamples=40).tables
    assert mean.small_parts == said and said in notes(mean)
    pooled, = compare(a, b, protocol="sts", resamples=40).tables
    assert not pooled.small_parts
    assert json.loads(cli("compare", a, b, "--protocol", "sts:mean", "--json", "-")[1])["tables"][0]["small_parts"] == said
