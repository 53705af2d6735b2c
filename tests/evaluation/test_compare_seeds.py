"""Several seeds against several: their means, what is paired with what, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from run_edits import rows_of, write_rows
from sts_runs import seed_run, two  # noqa: F401

from stsbench.comparison.compare import compare
from stsbench.comparison.wording import pairing
from stsbench.errors import StsbenchError


def test_means_and_sure_intervals_over_seeds(two):
    folders, (good, poor) = two
    result = compare(*folders, resamples=100)
    (table,) = result.tables
    (row,) = table.rows
    assert (row.a, row.b) == pytest.approx((np.mean(good), np.mean(poor)))
    assert row.difference.value == pytest.approx(np.mean(good) - np.mean(poor))
    assert result.seeds == (3, 3) and not result.by_seed
    alone = [compare(a, b, resamples=100).tables[0].rows[0].difference for a, b in zip(*folders, strict=True)]
    assert row.difference.high - row.difference.low > 0.5 * np.mean([each.high - each.low for each in alone])
    paired = compare(*folders, resamples=100, by_seed=True)
    assert paired.by_seed and paired.tables[0].rows[0].difference.value == row.difference.value
    assert paired.tables[0].rows[0].difference.p != row.difference.p


def test_what_is_a_pair_is_read_from_the_records(tmp_path):
    def side(name, seeds=(1, 2), **provenance):
        return [seed_run(tmp_path / name / str(seed), seed, 0.3, **{key: value(seed) for key, value in provenance.items()})
                for seed in seeds]

    def start(seed):
        return {"weights": f"stage before, seed {seed}", "stage": "first"}

    def by_seed(a, b):
        return compare(a, b, resamples=40).by_seed

    same = {"backbone": lambda seed: "b" * 64, "data": lambda seed: {"main": "d"}}
    plain = side("plain", **same)
    assert by_seed(plain, side("other", **same))
    assert not by_seed(plain, side("moved", backbone=lambda seed: "c" * 64, data=same["data"]))
    assert not by_seed(plain, side("unknown")) and not by_seed(plain, side("seeds", seeds=(2, 3), **same))
    other_data = {"from": start, "data": lambda seed: {"x": "y"}}
    assert by_seed(side("went-on", **{"from": start}), side("went-on-too", **other_data))


def test_a_proof_in_any_record_of_a_run_makes_it_a_pair(tmp_path):
    """Records of what was fitted behind a model name no backbone: one record's proof is enough."""
    sides = [[seed_run(tmp_path / name / str(seed), seed, 0.3, ("STS-B", "STS12")) for seed in (1, 2)]
             for name in ("a", "b")]
    assert not compare(*sides, resamples=40).by_seed
    for folder in (run for side in sides for run in side):
        rows = rows_of(folder)
        rows[1].record["provenance"].update(backbone="b" * 64, data={"main": "d"})
        write_rows(folder, rows)
    assert compare(*sides, resamples=40).by_seed


def test_runs_that_are_no_seeds_of_one_encoder_are_refused(two, tmp_path):
    (a, b), _ = two
    with pytest.raises(StsbenchError, match="differ in more than their seed"):
        compare([*a, b[0]], b)
    with pytest.raises(StsbenchError, match="does not count twice"):
        compare([*a, a[0].parent / "42"], b)
    for one, other in ((a, a[1:2]), (a[:1], a), (a, [*b, a[2]])):
        with pytest.raises(StsbenchError, match=r"one side only|more than their seed"):
            compare(one, other)
    with pytest.raises(StsbenchError, match="different seeds"):
        compare(a[:2], b[1:], by_seed=True)


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
