"""Several seeds against several: their means, what is paired with what, and what is refused. What `compare` says of other
tasks, of parts that are too small to rank by, and of what it could not detect."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from clirun import refuses
from scipy import stats
from sts_runs import seed_run, sts_run, two  # noqa: F401
from test_compare import row

import stsbench
from stsbench.comparison.comparability import SeedPairs
from stsbench.comparison.compare import compare
from stsbench.comparison.comparison import notes, over_tasks, pairing, sentence
from stsbench.errors import StsbenchError
from stsbench.metrics.power import detectable_difference

ENCODER = "lexical:token-set"
START, DRAWS = "Over other tasks, too: A - B, 95 % interval ", "on 3 other tasks of the same kind"


def test_means_and_sure_intervals_over_seeds(two):
    folders, (good, poor) = two
    result = compare(*folders, resamples=100)
    (table,) = result.tables
    (row,) = table.rows
    assert (row.a, row.b) == pytest.approx((np.mean(good), np.mean(poor)))
    assert row.difference.value == pytest.approx(np.mean(good) - np.mean(poor))
    assert result.seeds == (3, 3) and not result.by_seed
    alone = compare(*(side[0] for side in folders), resamples=100).tables[0].rows[0].difference
    assert row.difference.high - row.difference.low > 0.5 * (alone.high - alone.low)
    paired = compare(*folders, resamples=100, by_seed=True)
    assert paired.by_seed and paired.tables[0].rows[0].difference.value == row.difference.value
    assert paired.tables[0].rows[0].difference.p != row.difference.p


def test_a_margin_over_several_seeds(two):
    (a, b), (good, poor) = two
    table, = compare(a, b, resamples=200, margin=90).tables
    row, = table.rows
    assert row.equivalence.low < np.mean(good) - np.mean(poor) < row.equivalence.high
    low, high = row.difference.low, row.difference.high
    assert low < row.equivalence.low and row.equivalence.high < high  # 90 % inside 95 %
    assert row.equivalence.p < 0.05 and "within 90 points" in sentence(table)


def side(name, seeds=(1, 2), **provenance):
    """A record of each run of a side; `provenance`: name -> its value by the seed."""
    return [[SimpleNamespace(encoder=SimpleNamespace(spec={"name": name, "weights": f"{name} {seed}", "pooler": "mean"}),
                             provenance={"seed": seed, **{key: value(seed) for key, value in provenance.items()}})]
            for seed in seeds]


def are_pairs(*sides):
    groups = SeedPairs(sides).groups
    return groups[0] == groups[1] >= 0


def test_what_is_a_pair_is_read_from_the_records(tmp_path):
    """One record's proof is enough: those of what was fitted behind a model name no backbone."""
    start = {"from": lambda seed: {"weights": f"stage before, seed {seed}", "stage": "first"}}
    same = {"backbone": lambda seed: "b" * 64, "data": lambda seed: {"main": "d"}}
    plain, unknown = side("plain", **same), side("unknown")
    assert are_pairs(plain, side("other", **same))
    assert not are_pairs(plain, side("moved", backbone=lambda seed: "c" * 64, data=same["data"]))
    assert not are_pairs(plain, unknown) and not are_pairs(plain, side("seeds", seeds=(2, 3), **same))
    assert are_pairs(side("went-on", **start), side("went-on-too", **start, data=lambda seed: {"x": "y"}))
    assert are_pairs(plain, [[*other, *one] for other, one in zip(unknown, side("unknown", **same), strict=True)])
    runs = [[seed_run(tmp_path / name / str(seed), seed, 0.3, **{key: value(seed) for key, value in same.items()})
             for seed in (1, 2)] for name in ("one", "other")]
    assert compare(*runs, resamples=40).by_seed


def test_runs_that_are_no_seeds_of_one_encoder_are_refused(two, tmp_path):
    (a, b), _ = two
    refuses(StsbenchError, "differ in more than their seed", compare, [*a, b[0]], b)
    refuses(StsbenchError, "does not count twice", compare, [*a, a[0].parent / "42"], b)
    for one, other in ((a, a[1:2]), (a[:1], a), (a, [*b, a[2]])):
        refuses(StsbenchError, r"one side only|more than their seed", compare, one, other)
    refuses(StsbenchError, "different seeds", compare, a[:2], b[1:], by_seed=True)


def test_two_seeds_on_a_side_are_said_to_show_little(two):
    (a, b), _ = two
    assert "Two seeds hardly show" in " ".join(str(compare(a[:2], b, resamples=40)).split())
    for seeds, few in (((3, 2), True), ((3, 3), False), ((1, 3), False)):
        assert ("Two seeds hardly show" in pairing(seeds, False)) is few


def test_a_task_that_not_every_seed_has_is_left_out(two):
    (a, b), _ = two
    more = seed_run(a[0].parent / "45", 45, 0.3, tasks=("STS-B", "STS12"))
    result = compare([*a, more], b, resamples=40)
    assert [each[1:] for each in result.left_out] == [("STS12", "only 1 of the 4 runs of A have it")]
    assert [row.task for row in result.tables[0].rows] == ["STS-B"]


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


@pytest.mark.parametrize(("gaps", "line"), [
    ((2.0, 4, 6), f"{START}-0.97 to 8.97; {DRAWS} A would be ahead 93 times of 100."),
    ((0.2, 0.4, 0.6), f"{START}-0.10 to 0.90; {DRAWS} A would be ahead 93 times of 100. Between encoders "
     "less than a point apart such shares were too high on MTEB's published scores."),
    ((5.0, 5.01, 5.02), f"{START}4.99 to 5.03; {DRAWS} A would be ahead more than 99 times of 100."),
    ((1.0, 0, -1), f"{START}-2.48 to 2.48."),
    ((1.0, 2), "Over other tasks, too: no interval, for 2 tasks cannot show how much tasks differ: 3 are needed."),
    ((0.0, 0, 0), "")])
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
    table = compare(*runs, protocol="sts", resamples=100).tables[0]
    column, first = table.columns()[-1], table.rows[0]
    assert first.detectable == pytest.approx(detectable_difference(first.difference.error))
    assert column.name == "detectable at 80 % power" and float(column.texts[0]) == pytest.approx(first.detectable, abs=0.01)
    assert any(line.startswith("Few items (2 tasks of 42): the 95 % intervals are ±") for line in notes(table))
    same = compare(runs[0], runs[0], protocol="sts", resamples=40).tables[0]
    assert same.rows[0].detectable is None and same.columns()[-1].texts[0] == ""
    assert "Few items" in stsbench.evaluate(ENCODER, sample=True, resamples=200, tasks="STS-B,SICK-R").latex()
