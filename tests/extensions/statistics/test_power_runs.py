"""`power`, function and command: from the field's noise, from one run's and from two runs'."""

from __future__ import annotations

import json

import numpy as np
import pytest
from clirun import cli  # noqa: F401

import stsbench
from stsbench.comparison.compare import compare
from stsbench.extensions.statistics.power import items_needed, scale_error
from stsbench.metrics.power import ALL, detectable_difference, difference_power, field_noise

SAMPLE = {"sample": True, "resamples": 0, "tasks": "STS-B,SICK-R"}


@pytest.fixture(scope="module")
def runs():
    return [stsbench.evaluate(model, **SAMPLE) for model in ("lexical:tfidf", "lexical:token-set")]


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
    from stsbench.comparison.comparability import measured
    from stsbench.comparison.shared import draws
    from stsbench.evaluation.run_file import load_records

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
    assert code == 0 and "pearson: the pairs that detect a difference of 1 point in 80 %" in out and "630 pairs" in out
    code, out, _ = cli("power", "--pairs", 40, "--run", runs[0].folder, "--run", runs[1].folder, "--resamples", 100)
    assert code == 0 and "paired noise of the two runs" in out and "Below 150 pairs" in out


def test_pairs_that_a_difference_needs() -> None:
    assert scale_error(2.0, 400, 100) == 4.0
    needed = items_needed(1.5, 2.0, 400)
    enough, fewer = scale_error(2.0, 400, needed), scale_error(2.0, 400, needed - 1)
    assert detectable_difference(enough) <= 1.5 < detectable_difference(fewer)
    assert items_needed(-1.5, 2.0, 400) == needed
    assert items_needed(detectable_difference(2.0), 2.0, 400) == 400
    for call in (lambda: items_needed(0.0, 1, 10), lambda: scale_error(1, 0, 10)):
        with pytest.raises(ValueError):
            call()
