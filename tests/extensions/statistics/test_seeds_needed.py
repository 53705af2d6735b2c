"""`stsbench seeds`: what it takes from a comparison, what it says, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from clirun import cli, place  # noqa: F401
from sts_runs import seed_run, two  # noqa: F401

from stsbench import compare, seeds_needed
from stsbench.errors import StsbenchError
from stsbench.extensions.statistics.seeds_needed import more_seeds


def test_its_numbers_are_those_of_the_comparison(two):
    (a, b), (good, poor) = two
    for by_seed in (False, True):
        made, table = (ask(a, b, resamples=200, by_seed=by_seed) for ask in (seeds_needed, compare))
        ((row,), (compared,)) = made.rows, table.tables[0].rows
        assert row.compared.difference == compared.difference and row.settled == (compared.difference.p < 0.05)
        sds = (np.std(np.subtract(good, poor), ddof=1), 0.0) if by_seed else (np.std(good, ddof=1), np.std(poor, ddof=1))
        assert row.compared.spread.sds == pytest.approx(sds) and row.compared.spread.counts == (3, 3)
        error = row.compared.spread.item_error
        assert row.needed == more_seeds(compared.difference.value, error, row.compared.spread.sds, (3, 3), paired=by_seed)
        assert made.to_arrow().num_rows == 1 and json.loads(made.to_json())["rows"][0]["more"] == row.needed.more


def test_a_side_of_one_run_gets_no_more_seeds(two):
    (a, b), _ = two
    made = seeds_needed(a[0], b, resamples=100)
    assert made.rows[0].compared.spread.sds[0] == 0.0 and "more seeds of B" in str(made)


def test_items_too_few_for_any_number_of_seeds(tmp_path):
    sides = [[seed_run(tmp_path / name / str(seed), seed, noise) for seed in seeds]
             for name, noise, seeds in (("a", 0.3, (1, 2, 3)), ("b", 0.301, (4, 5, 6)))]
    made = seeds_needed(*sides, resamples=200)
    needed = made.rows[0].needed
    assert not needed.settleable and "no number of seeds settles it" in str(made) and "times as many items" in str(made)


def test_what_is_refused(two):
    (a, b), _ = two
    with pytest.raises(StsbenchError, match="one run each: give two runs"):
        seeds_needed(a[0], b[0], resamples=40)
    with pytest.raises(StsbenchError, match=r"power=1\.0 must lie between 0 and 1"):
        seeds_needed(a, b, resamples=40, power=1.0)


def test_the_command(two, tmp_path, cli):
    (a, b), _ = two
    code, out, _ = cli("seeds", a[0].parent, ",".join(map(str, b)), "--resamples", 100, "--json", tmp_path / "x.json")
    assert code == 0 and "3 seeds of A and 3 of B" in out and "Test once" in " ".join(out.split())
    written = json.loads((tmp_path / "x.json").read_text())
    assert written["seeds"] == [3, 3] and written["rows"][0]["task"] == "STS-B" and written["power"] == 0.8
    assert cli("seeds", a[0], b[0], "--resamples", 40)[0] == 1 and cli("seeds", a[0].parent, " ")[0] == 2
    assert cli("seeds", a[0].parent, b[0].parent, "--protocol", " ")[0] == cli("seeds", a[0], b[0], "--power", 1)[0] == 2
