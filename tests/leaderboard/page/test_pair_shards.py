"""The files with the tests of pairs: which file holds a pair, and that rounding turns no verdict."""

from __future__ import annotations

import dataclasses
import gzip
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_board import synthetic

from stsbench.leaderboard.page.site import ROWS, pair_files, pair_shards, site, whole_halves
from stsbench.leaderboard.ranks.board import PairTests

UNIT = 0.01


def test_each_pair_stands_once_in_the_line_of_its_lower_row() -> None:
    tab = synthetic(ROWS + 6).tabs[0]
    assert tab.pairs is not None
    shuffled = np.random.default_rng(0).permutation(len(tab.pairs.rows))  # the tests need not stand in the tab's order
    pairs = PairTests(tuple(tab.pairs.rows[i] for i in shuffled), tab.pairs.different[np.ix_(shuffled, shuffled)],
                      tab.pairs.halves[np.ix_(shuffled, shuffled)])
    shards = pair_shards(dataclasses.replace(tab, pairs=pairs))
    assert list(shards) == pair_files(tab) == [f"pairs/{tab.id}.0", f"pairs/{tab.id}.1"]
    lines = [line for shard in shards.values() for line in shard["rows"]]
    assert [shard["first"] for shard in shards.values()] == [0, ROWS]
    assert [line["id"] for line in lines] == [row.id for row in tab.measured]
    place = {row: at for at, row in enumerate(tab.pairs.rows)}
    for at, line in enumerate(lines):
        assert len(line["different"]) == len(line["half"]) == at
        for above, (different, half) in enumerate(zip(line["different"], line["half"], strict=True)):
            pair = place[line["id"]], place[tab.measured[above].id]
            assert (different == "1") == tab.pairs.different[pair]
            assert half == pytest.approx(100 * tab.pairs.halves[pair], abs=1.001)
    files = site(synthetic(ROWS + 6))
    named = json.loads(files[f"tabs/{tab.id}.json"])["pairs"]
    assert named == [f"pairs/{tab.id}.0.json", f"pairs/{tab.id}.1.json"] and set(named) < files.keys()


def test_rows_that_are_not_tested_have_no_line_and_a_tab_without_tests_no_file() -> None:
    tab = synthetic(5).tabs[0]
    best = dataclasses.replace(tab.measured[-1], id="best-of", rank=None, best_of=5)
    (shard,) = pair_shards(dataclasses.replace(tab, measured=(*tab.measured, best))).values()
    assert [line["id"] for line in shard["rows"]] == [row.id for row in tab.measured]
    assert pair_shards(dataclasses.replace(tab, pairs=None)) == {} == pair_shards(synthetic(1).tabs[0])


def test_a_half_width_just_below_a_difference_is_not_rounded_up_to_it() -> None:
    values = np.array([70.0, 68.994])
    assert whole_halves(values, np.full((2, 2), 1.0055), 2)[0, 1] == 100  # 1.01, the nearest, would hold 0
    assert whole_halves(values, np.full((2, 2), 1.0065), 2)[0, 1] == 101


@given(st.floats(-100, 100), st.floats(-3, 3), st.floats(0, 4))
def test_rounding_turns_no_verdict(value: float, gap: float, half: float) -> None:
    values = np.array([value, value - gap])
    gap = values[0] - values[1]
    kept = int(whole_halves(values, np.full((2, 2), half), 2)[0, 1])
    shown = abs(round(round(values[0], 4) - round(values[1], 4), 4))
    assert kept >= 0
    if abs(gap) > half:  # differs by itself: the interval on the page leaves 0 out, or has no width
        assert kept == 0 or shown > kept * UNIT - 1e-12
    else:
        assert shown <= kept * UNIT + 1e-12
    assert abs(kept - half / UNIT) <= 1.03  # a unit, and what a score is rounded by


def test_a_pair_without_an_interval_says_so() -> None:
    tab = synthetic(3).tabs[0]
    assert tab.pairs is not None
    none = PairTests(tab.pairs.rows, np.zeros((3, 3), dtype=bool), np.full((3, 3), np.nan))
    (shard,) = pair_shards(dataclasses.replace(tab, pairs=none)).values()
    assert [line["half"] for line in shard["rows"]] == [[], [None], [None, None]]


def test_the_largest_file_of_a_thousand_rows_is_small() -> None:
    shards = pair_shards(synthetic(1000, published=0).tabs[0])
    sizes = [len(gzip.compress(json.dumps(shard, separators=(",", ":")).encode(), 9)) for shard in shards.values()]
    assert len(sizes) == 16 and max(sizes) < 100_000
