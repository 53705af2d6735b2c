"""The error of a Spearman correlation from its size and n: against drawn samples, alone and of two that share their
items."""

import numpy as np
import pytest
from scipy.stats import rankdata

from stsbench.errors import StsbenchError
from stsbench.leaderboard.mteb.differences import mean_difference_error, spearman_error

DRAWS = 2000


def spearman(one, other):
    """Of the rows of two arrays."""
    ranks = [rankdata(each, axis=1) for each in (one, other)]
    ranks = [each - each.mean(axis=1, keepdims=True) for each in ranks]
    return (ranks[0] * ranks[1]).sum(axis=1) / np.sqrt((ranks[0] ** 2).sum(axis=1) * (ranks[1] ** 2).sum(axis=1))


@pytest.mark.parametrize("rho", [0.2, 0.6, 0.85])
def test_it_is_the_spread_over_drawn_samples(rho):
    rng = np.random.default_rng(2)
    x, noise = rng.normal(size=(2, DRAWS, 300))
    made = spearman(x, rho * x + np.sqrt(1 - rho**2) * noise)
    assert float(spearman_error(np.array(made.mean()), np.array(300))) == pytest.approx(made.std(ddof=1), rel=0.07)


def test_a_difference_of_means_is_that_of_drawn_samples():
    rng = np.random.default_rng(3)
    drawn = []
    for _task in range(3):
        gold, common = rng.normal(size=(2, DRAWS, 200))
        drawn.append([spearman(gold, gold + 0.9 * (0.8 * common + 0.6 * rng.normal(size=gold.shape))) for _ in range(2)])
    scores = np.array(drawn)  # (tasks, 2, draws)
    shared = np.mean([np.corrcoef(task)[0, 1] for task in scores])
    printed = scores.mean(axis=2).T
    computed = mean_difference_error(printed, np.full(3, 200), float(shared))
    assert computed[0, 1] == pytest.approx(np.diff(scores.mean(axis=0), axis=0).std(ddof=1), rel=0.07)
    assert computed[0, 1] == computed[1, 0] < mean_difference_error(printed, np.full(3, 200), 0.0)[0, 1]


def test_what_has_no_error_is_refused():
    with pytest.raises(StsbenchError, match="3 items or fewer"):
        spearman_error(np.array([0.5]), np.array([3]))
    with pytest.raises(StsbenchError, match="outside"):
        spearman_error(np.array([1.5]), np.array([30]))
