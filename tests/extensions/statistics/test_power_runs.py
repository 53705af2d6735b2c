"""`seeds` and `power`: against scipy's power of known tests, a simulation of the test itself, their comparison, and the
board's records, of which benchmarks/field_noise.py makes the noise of the field."""

import json
import runpy
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from clirun import cli, place  # noqa: F401
from scipy import stats
from sts_runs import seed_run, two  # noqa: F401

import stsbench
from stsbench import compare, load_records, seeds_needed
from stsbench.comparison.comparability import measured
from stsbench.comparison.shared import draws
from stsbench.extensions.statistics import seeds_needed as module
from stsbench.extensions.statistics.power import ALL, METRICS, field_noise, items_needed, provenance, scale_error
from stsbench.extensions.statistics.seeds_needed import MOST, more_seeds
from stsbench.leaderboard.records.entries import read_run, run_folders
from stsbench.metrics.noise import difference_over_seeds
from stsbench.metrics.power import detectable_difference, difference_power


def test_its_numbers_are_those_of_the_comparison(two, monkeypatch):
    monkeypatch.setattr(module, "more_seeds", cache(more_seeds))  # asked for the same again it does not search again
    (a, b), (good, poor) = two
    for by_seed in (False, True):
        made, table = (ask(a, b, resamples=100, by_seed=by_seed) for ask in (seeds_needed, compare))
        ((row,), (compared,)) = made.rows, table.tables[0].rows
        assert row.compared.difference == compared.difference and row.settled == (compared.difference.p < 0.05)
        sds = (np.std(np.subtract(good, poor), ddof=1), 0.0) if by_seed else (np.std(good, ddof=1), np.std(poor, ddof=1))
        spread, gap = row.compared.spread, compared.difference.value
        assert spread.sds == pytest.approx(sds) and spread.counts == (3, 3)
        assert row.needed == module.more_seeds(gap, spread.item_error, spread.sds, (3, 3), paired=by_seed)
        assert made.to_arrow().num_rows == 1 and json.loads(made.to_json())["rows"][0]["more"] == row.needed.more


def test_a_side_of_one_run_gets_no_more_seeds(two, tmp_path, cli):
    (a, b), _ = two
    made = seeds_needed(a[0], b, resamples=100)
    assert made.rows[0].compared.spread.sds[0] == 0.0 and "more seeds of B" in str(made)
    code, out, _ = cli("seeds", a[0].parent, ",".join(map(str, b)), "--resamples", 100, "--json", tmp_path / "x.json")
    assert code == 0 and "3 seeds of A and 3 of B" in out and "Test once" in " ".join(out.split())
    written = json.loads((tmp_path / "x.json").read_text())
    assert written["seeds"] == [3, 3] and written["rows"][0]["task"] == "STS-B" and written["power"] == 0.8


def test_items_too_few_for_any_number_of_seeds(tmp_path):
    sides = [[seed_run(tmp_path / name / str(seed), seed, noise) for seed in seeds]
             for name, noise, seeds in (("a", 0.3, (1, 2, 3)), ("b", 0.301, (4, 5, 6)))]
    made = seeds_needed(*sides, resamples=50)
    needed = made.rows[0].needed
    assert not needed.settleable and "no number of seeds settles it" in str(made) and "times as many items" in str(made)


def test_one_side_without_noise_of_items_is_a_t_test() -> None:
    """The smallest n with which a one-sample t test has 80 % power, by scipy's noncentral t."""
    needed = more_seeds(1.0, 0.0, (1.0, 0.0), (3, 1))
    expected = next(n for n in range(3, 50) if stats.nct.sf(stats.t.isf(0.025, n - 1), n - 1, np.sqrt(n)) >= 0.8)
    assert needed.more == expected - 3 and needed.settleable and needed.most_power == 1.0
    assert more_seeds(1.0, 0.0, (1.0, 9.0), (3, 3), paired=True).more == needed.more  # of pairs only the first sd counts


def test_the_range_is_that_of_the_variance_s_chi_square_interval() -> None:
    needed = more_seeds(1.0, 0.1, (1.0, 0.0), (4, 1))
    ends = [np.sqrt(3 / stats.chi2.ppf(quantile, 3)) for quantile in (0.975, 0.025)]
    assert [more_seeds(1.0, 0.1, (sd, 0.0), (4, 1)).more for sd in ends] == [needed.low, needed.high]
    assert needed.low < needed.more < needed.high


def test_items_are_a_floor_and_what_needs_no_seeds_or_too_many() -> None:
    """A two-sided test at 5 % has 80 % power at 2.80 standard errors."""
    for size, settleable in ((0.57, True), (0.55, False)):
        needed = more_seeds(size, 0.2, (0.8, 0.0), (3, 1))
        assert needed.settleable is settleable and needed.times_items == pytest.approx((2.8016 * 0.2 / size) ** 2, rel=1e-3)
        assert (needed.most_power > 0.8) is settleable
    assert (needed.more, needed.low, needed.high) == (None, None, None)
    assert more_seeds(-5.0, 0.2, (0.3, 0.0), (5, 1)).more == 0
    assert more_seeds(0.57, 0.2, (9.0, 0.0), (3, 1)).more is None and MOST == 1000
    nothing = more_seeds(0.0, 0.2, (0.3, 0.0), (3, 1))
    assert nothing.more is None and nothing.times_items == np.inf and not nothing.settleable
    assert more_seeds(1.0, 0.0, (0.0, 0.0), (3, 3)).more == 0


def test_so_many_seeds_show_it_as_often_as_promised() -> None:
    """The large simulation stands in docs/findings/statistics.md."""
    counts, rng, times = (3, 5), np.random.default_rng(0), 0
    needed = more_seeds(1.0, 0.2, (0.8, 0.6), counts)
    assert needed.more is not None
    for number in range(100):
        a, b = (value + sd * rng.normal(size=count + needed.more)
                for value, sd, count in zip((1 + rng.normal(0, 0.2), 0.0), (0.8, 0.6), counts, strict=True))
        draws = a.mean() + rng.normal(0, 0.2, 99), np.full(99, b.mean())
        times += difference_over_seeds(a, b, *draws, seed=[number]).p < 0.05
    assert 0.7 < times / 100 < 0.9


@pytest.fixture(scope="module")
def runs():
    asked = {"sample": True, "resamples": 0, "tasks": "STS-B,SICK-R"}
    return [stsbench.evaluate(model, **asked) for model in ("lexical:tfidf", "lexical:token-set")]


def test_the_field_answers_before_anything_is_labelled() -> None:
    by_task = {task.task: task for task in stsbench.power(200).tasks}
    noise = field_noise()["STS-B"].unit_error
    assert by_task["STS-B"].value == pytest.approx(2.8016 * noise.median / np.sqrt(200), rel=1e-4)
    assert by_task["STS-B"].low_answer < by_task["STS-B"].value < by_task["STS-B"].high_answer
    assert list(by_task)[-1] == ALL
    needed = stsbench.power(difference=by_task[ALL].value, metric="spearman").tasks[-1]
    assert needed.value == 200  # the two questions are each other's inverse
    assert "Below 150 pairs" in str(stsbench.power(149)) and "Below" not in str(stsbench.power(150))


def test_two_runs_have_the_noise_of_their_comparison(runs) -> None:
    rows = compare(*runs, metric="spearman", resamples=300).tables[0].rows
    answer = stsbench.power(100, runs=runs, resamples=300)
    assert [(task.task, task.n, task.low) for task in answer.tasks] == [("STS-B", 42, None), ("SICK-R", 42, None)]
    for row, task in zip(rows, answer.tasks, strict=True):
        assert task.value == pytest.approx(detectable_difference(row.difference.error * np.sqrt(row.n / 100)))
        assert row.detectable == pytest.approx(detectable_difference(row.difference.error))
        assert difference_power(row.detectable, row.difference.error) == pytest.approx(0.8)
    assert stsbench.power(42, runs=runs, resamples=300).tasks[0].value == pytest.approx(rows[0].detectable)
    needed = stsbench.power(difference=2.5, runs=runs, resamples=300).tasks[0]
    assert needed.value == items_needed(2.5, rows[0].difference.error, rows[0].n)


def test_one_run_s_rival_shares_as_much_noise_as_the_board_s_rows(runs) -> None:
    answer = stsbench.power(100, runs=runs[0], resamples=300).tasks[0]
    item = measured(*load_records(runs[0].folder)[0])
    row = next(row for row in item.whole() if (row.metric, row.aggregation) == ("spearman", "all"))
    error = np.std(draws([[item]], row, 300, 0)[0], ddof=1)
    ratio = field_noise()[item.task if item.record.data.known else ALL].ratio
    assert answer.unit_error == pytest.approx(error * np.sqrt(42) * ratio.median)
    assert (answer.low, answer.high) == pytest.approx((error * np.sqrt(42) * ratio.low, error * np.sqrt(42) * ratio.high))
    assert "times the run's standard error" in str(stsbench.power(100, runs=runs[0], resamples=300))


def test_the_command(cli, runs) -> None:
    code, out, _ = cli("power", "--pairs", 200, "--json", "-")
    assert code == 0 and json.loads(out) == stsbench.power(200).as_json()
    code, out, _ = cli("power", "--difference", 1, "--metric", "pearson")
    assert code == 0 and "pearson: the pairs that detect a difference of 1 point in 80 %" in out
    code, out, _ = cli("power", "--pairs", 40, "--run", runs[0].folder, "--run", runs[1].folder, "--resamples", 100)
    assert code == 0 and "paired noise of the two runs" in out and "Below 150 pairs" in out


def test_pairs_that_a_difference_needs_and_how_often_so_many_show_it() -> None:
    assert scale_error(2.0, 400, 100) == 4.0
    needed = items_needed(1.5, 2.0, 400)
    enough, fewer = scale_error(2.0, 400, needed), scale_error(2.0, 400, needed - 1)
    assert detectable_difference(enough) <= 1.5 < detectable_difference(fewer)
    assert items_needed(-1.5, 2.0, 400) == needed
    assert items_needed(detectable_difference(2.0), 2.0, 400) == 400
    # A difference that so many pairs detect in 80 % of experiments is found in 80 of 100.
    (detectable,) = [task.value for task in stsbench.power(500).tasks if task.task == ALL]
    both = stsbench.power(500, round(detectable, 6))
    (task,) = [task for task in both.tasks if task.task == ALL]
    assert task.value == pytest.approx(80, abs=0.01)
    assert (stsbench.power(500).as_json()["power"], both.as_json()["power"]) == (0.8, None)
    low, high = sorted((task.low_answer, task.high_answer))
    assert both.sentences()[-1].endswith(f" points in {low:,.0f} to {high:,.0f} of 100 experiments.")


def test_the_shipped_noise_of_the_field_is_that_of_the_board_s_records() -> None:
    """Pearson on STS16, again from the observations of every sixth row that the file names; its first pair by hand."""
    root, stored = Path(__file__).resolve().parents[3], provenance()
    runs = {name: run_folders(root / "leaderboard" / "measured" / name)[0] for name in stored["rows"][::6]}
    script = SimpleNamespace(**runpy.run_path(str(root / "benchmarks" / "field_noise.py")))
    entries = [SimpleNamespace(id=name, runs=[read_run(run)]) for name, run in runs.items()]
    rows = script.measured_rows(entries)["STS16"]
    assert [name for name, _ in rows] == list(runs)
    unit, ratio = script.paired_noise(rows, "pearson")
    assert stored["sets"]["STS16"]["pearson"] == {
        "unit_error": pytest.approx(np.quantile(unit, [0.25, 0.5, 0.75]), rel=0.1),
        "ratio": pytest.approx(np.quantile(ratio, [0.25, 0.5, 0.75]), rel=0.1)}
    made = [item.protocol.draws(item.observed(), item.set_id, script.RESAMPLES, script.SEED) for _, item in rows[:2]]
    drawn = np.array([of_row[None, "all", "pearson"] for of_row in made])
    error = np.std(drawn[0] - drawn[1], ddof=1)
    assert unit[0] == pytest.approx(error * np.sqrt(1186))
    assert ratio[0] == pytest.approx(error / np.sqrt(np.var(drawn, axis=1, ddof=1).mean()))


def test_the_noise_of_the_field_is_read_whole() -> None:
    for metric in METRICS:
        noise = field_noise(metric)
        assert list(noise)[-1] == ALL and len(noise) == 8
        assert sum(one.n for name, one in noise.items() if name != ALL) == noise[ALL].n
        for one in noise.values():
            assert 0 < one.unit_error.low < one.unit_error.median < one.unit_error.high < 141
            assert 0 < one.ratio.low < one.ratio.median < one.ratio.high < 1.5
