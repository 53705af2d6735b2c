"""Scores over prompts: their distribution by its definition, the error of their mean by whole clusters drawn again."""

import numpy as np
import pytest
from scipy.stats import percentileofscore

from stsbench.metrics.prompts import mean_over_prompts, spread


def test_a_spread_is_its_definition():
    scores = np.array([3.0, 1.0, 4.0, 1.0, 5.0, np.nan])
    made, there = spread(scores, 1.0), scores[:5]
    assert (made.n, made.mean, made.min, made.max, made.headroom) == (5, 2.8, 1, 5, 4)
    assert made.sd == pytest.approx((sum((there - 2.8) ** 2) / 4) ** 0.5)
    assert (made.lower, made.median, made.upper) == tuple(np.percentile(there, [25, 50, 75]))
    for default in (0.0, 1.0, 3.5, 5.0, 9.0):
        assert spread(scores, default).percentile == pytest.approx(percentileofscore(there, default, "mean") / 100)
    assert np.isnan(spread(scores).percentile) and np.isnan(spread(scores).headroom) and np.isnan(spread([2.0], 1.0).sd)
    assert spread(np.full(7, 2.5), 2.5).sd == 0 and spread(np.full(7, 2.5), 2.5).percentile == 0.5


def test_an_error_by_clusters_is_that_of_whole_clusters_drawn_again():
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


