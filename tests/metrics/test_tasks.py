"""Intervals over tasks: scipy's t interval, a prediction by hand, a naive loop. Scores over prompts: their distribution by
its definition, the error of their mean by whole clusters drawn again."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from stsbench.metrics.aggregation import (
    OverTasks,
    chance_of_same_order,
    difference_over_tasks,
    hierarchical_draws,
    mean_over_tasks,
)
from stsbench.metrics.prompts import mean_over_prompts, spread

A, B = np.array([72.4, 80.6, 75.6, 85.4, 79.0, 82.0, 77.2]), np.array([75.1, 76.5, 71.5, 75.3, 73.6, 73.5, 70.5])


def test_the_interval_is_scipys() -> None:
    over = mean_over_tasks(A)
    assert (over.low, over.high) == pytest.approx(stats.ttest_1samp(A, 0).confidence_interval())
    assert over == OverTasks(7, pytest.approx(A.mean()), pytest.approx(stats.tstd(A)), over.low, over.high)
    paired = difference_over_tasks(A, B)
    assert (paired.low, paired.high) == pytest.approx(stats.ttest_rel(A, B).confidence_interval())
    assert difference_over_tasks(B, A).high == pytest.approx(-paired.low)


def test_the_chance_of_the_same_order_is_that_of_a_prediction_by_hand() -> None:
    gaps = A - B
    posterior = np.random.default_rng(1)  # of mean and variance without knowledge beforehand, then seven new tasks each
    variance = 6 * gaps.var(ddof=1) / posterior.chisquare(6, 200_000)
    mean = gaps.mean() + np.sqrt(variance / 7) * posterior.standard_normal(200_000)
    for new in (7, 3):
        another = mean + np.sqrt(variance / new) * posterior.standard_normal(200_000)
        assert chance_of_same_order(gaps, new) == pytest.approx((another > 0).mean(), abs=0.002)
    assert chance_of_same_order(-gaps) == chance_of_same_order(gaps) == difference_over_tasks(A, B).same_order
    assert chance_of_same_order(np.full(3, -2.0)) == 1.0


def test_no_order_and_too_few_tasks_have_none() -> None:
    same = difference_over_tasks(A, A + 1e-12)  # rounding has no sign
    assert (same.value, same.low, same.high, same.same_order) == (0, 0, 0, None)
    assert difference_over_tasks(np.array([1.0, 2, 3]), np.array([2.0, 1, 3])).same_order is None
    two = mean_over_tasks(A[:2])
    assert (two.value, two.low, two.sd) == (pytest.approx(76.5), None, None)
    assert two.why == "2 tasks cannot show how much tasks differ: 3 are needed"
    assert difference_over_tasks(A[:1], B[:1]).why.startswith("1 task cannot")


def test_the_hierarchical_bootstrap_is_a_naive_loop() -> None:
    draws, rng = np.random.default_rng(3).normal(size=(4, 50)), np.random.default_rng(9)
    tasks = rng.integers(0, 4, size=(30, 4))
    items = rng.integers(0, 50, size=(30, 4))
    naive = [sum(draws[task][item] for task, item in zip(*one, strict=True)) / 4 for one in zip(tasks, items, strict=True)]
    assert hierarchical_draws(draws, 30, 9).tolist() == pytest.approx(naive)


def test_a_spread_is_its_definition() -> None:
    scores = np.array([3.0, 1.0, 4.0, 1.0, 5.0, np.nan])
    made, there = spread(scores, 1.0), scores[:5]
    assert (made.n, made.mean, made.min, made.max, made.headroom) == (5, 2.8, 1, 5, 4)
    assert made.sd == pytest.approx((sum((there - 2.8) ** 2) / 4) ** 0.5)
    assert (made.lower, made.median, made.upper) == tuple(np.percentile(there, [25, 50, 75]))
    for default in (0.0, 1.0, 3.5, 5.0, 9.0):
        assert spread(scores, default).percentile == pytest.approx(stats.percentileofscore(there, default, "mean") / 100)
    assert np.isnan(spread(scores).percentile) and np.isnan(spread(scores).headroom) and np.isnan(spread([2.0], 1.0).sd)
    assert spread(np.full(7, 2.5), 2.5).sd == 0 and spread(np.full(7, 2.5), 2.5).percentile == 0.5


def test_an_error_by_clusters_is_that_of_whole_clusters_drawn_again() -> None:
    scores = np.array([1.0, 1.2, 5.0, 5.1, 4.9, 9.0, np.nan])
    clusters = ["a", "a", "b", "b", "b", "c", "c"]
    made, rng = mean_over_prompts(scores, clusters, resamples=4000), np.random.default_rng(0)
    groups, draws = [[1.0, 1.2], [5.0, 5.1, 4.9], [9.0]], []
    for _ in range(4000):
        drawn = [score for g in rng.integers(0, 3, 3) for score in groups[g]]
        draws.append(sum(drawn) / len(drawn))
    assert made.mean == pytest.approx(np.nanmean(scores)) and made.error == pytest.approx(np.std(draws), rel=0.05)
    alone = mean_over_prompts(scores, resamples=4000)
    assert alone.error == pytest.approx(np.nanstd(scores) / 6**0.5, rel=0.05) and alone.error < made.error
    low, high = alone.interval
    assert low < alone.mean < high and mean_over_prompts(scores, clusters, resamples=4000) == made
    one = mean_over_prompts(scores, ["a"] * 7)
    assert np.isnan(one.error) and one.interval is None
    assert mean_over_prompts(np.ones(5)).error == 0
