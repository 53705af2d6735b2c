"""Numbers of prompt sensitivity against plain loops over every draw, scipy, and the identities that hold between them."""

from itertools import product

import numpy as np
import pytest
from scipy.stats import friedmanchisquare

from stsbench.errors import StsbenchError
from stsbench.leaderboard.prompts.rank_chances import (
    chances_of_first,
    common_ranks,
    independent_ranks,
    kendall_w,
    rank_bounds,
    rank_intervals_over_prompts,
    shared_prompts,
    variance_split,
)

RNG = np.random.default_rng(3)
TIED = RNG.integers(0, 6, size=(4, 5)).astype(float)  # many ties
APART = RNG.normal(size=(4, 5)) + np.arange(4)[:, None]


def shares_of_ranks(scores):
    """(m, m): each model's share of each rank for one score a model; those that tie share theirs."""
    out = np.zeros((len(scores), len(scores)))
    for i, score in enumerate(scores):
        above = sum(other > score for other in scores)
        equal = sum(other == score for other in scores)
        for rank in range(above, above + equal):
            out[i, rank] = 1 / equal
    return out


def by_enumeration(draws):
    """Mean shares of ranks, and of being above one another, over all draws (tuples of one score a model)."""
    ranks = np.mean([shares_of_ranks(draw) for draw in draws], axis=0)
    above = [[[(a > b) + (a == b) / 2 for b in draw] for a in draw] for draw in draws]
    return ranks, np.mean(above, axis=0)


def test_independent_ranks_are_those_of_every_draw():
    """Also of models with other numbers of prompts, and with gaps."""
    uneven = [np.array([1.0, 2, np.nan]), np.array([2.0]), np.array([np.nan, 0.0, 2.0, 3.0])]
    for scores in (TIED, APART, TIED[:2], TIED[:1], uneven):
        ranks, beats = by_enumeration(list(product(*(each[~np.isnan(each)] for each in scores))))
        made = independent_ranks(list(scores))
        np.testing.assert_allclose(made.ranks, ranks, atol=1e-12)
        others = ~np.eye(len(scores), dtype=bool)
        np.testing.assert_allclose(made.beats[others], beats[others], atol=1e-12)
        np.testing.assert_allclose(made.beats + made.beats.T, 1, atol=1e-12)
        np.testing.assert_allclose(made.expected, 1 + (1 - made.beats).sum(axis=1) - 0.5, atol=1e-12)
        np.testing.assert_allclose([made.first, chances_of_first(list(scores))], [ranks[:, 0]] * 2, atol=1e-12)


@pytest.mark.parametrize("scores", [TIED, APART])
def test_common_ranks_are_those_of_each_prompt(scores):
    ranks, beats = by_enumeration([tuple(column) for column in scores.T])
    made = common_ranks(scores)
    np.testing.assert_allclose([made.ranks, made.beats], [ranks, beats], atol=1e-12)
    with_gap = np.column_stack([scores, np.where(np.arange(4) == 2, np.nan, 1.0)])
    np.testing.assert_allclose(common_ranks(with_gap).ranks, made.ranks, atol=1e-12)
    assert shared_prompts(with_gap).shape == scores.shape


def test_bounds_are_those_of_every_choice():
    default = np.array([0.4, 1.5, 2.2, 3.1])
    made = rank_bounds(APART.min(axis=1), APART.max(axis=1), default)
    for i in range(4):
        others = np.delete(default, i)
        own = [1 + sum(others > score) for score in APART[i]]
        every = [1 + sum(other > draw[i] for other in draw) for draw in product(*APART)]
        assert (made.own_best[i], made.own_worst[i]) == (min(own), max(own))
        assert (made.every_best[i], made.every_worst[i]) == (min(every), max(every))


def test_a_variance_is_split_as_by_loops():
    m, p, total, parts = *APART.shape, 0.0, [0.0, 0.0, 0.0]
    for i in range(m):
        for k in range(p):
            model, prompt = APART[i].mean() - APART.mean(), APART[:, k].mean() - APART.mean()
            rest = APART[i, k] - APART.mean() - model - prompt
            total += (APART[i, k] - APART.mean()) ** 2
            parts = [a + b**2 for a, b in zip(parts, (model, prompt, rest), strict=True)]
    made = variance_split(APART)
    np.testing.assert_allclose([made.model, made.prompt, made.rest], np.array(parts) / total)
    assert made.model + made.prompt + made.rest == pytest.approx(1)
    additive = variance_split(np.array([[1.0], [4.0]]) + np.array([[0.0, 2.0, 7.0]]))
    assert additive.rest == pytest.approx(0, abs=1e-15) and additive.model > 0 and additive.prompt > 0
    assert np.isnan(variance_split(np.ones((2, 3))).model)


@pytest.mark.parametrize("scores", [TIED, APART])
def test_kendalls_w_is_friedmans_statistic_by_prompts_and_models(scores):
    statistic = friedmanchisquare(*scores).statistic
    assert kendall_w(scores) == pytest.approx(statistic / (scores.shape[1] * (len(scores) - 1)))
    assert np.isnan(kendall_w(np.ones((3, 4)))) and np.isnan(kendall_w(scores[:1]))


def test_what_cannot_be_computed_is_one_line():
    none = np.array([np.nan, np.nan])
    with pytest.raises(StsbenchError, match="no prompt was run: there is no score"):
        independent_ranks([none, np.ones(2)])


def intervals_by_enumeration(models, scores, different, level=0.95):
    """(first, last) of each model: the quantiles of the ranks that are not ruled out, over every draw of a score a model."""
    at = [np.flatnonzero(models == model) for model in range(max(models) + 1)]
    best, worst = [], []
    for draw in product(*at):
        better = [sum(scores[b] > scores[a] and different[a, b] for b in draw) for a in draw]
        worse = [sum(scores[b] < scores[a] and different[a, b] for b in draw) for a in draw]
        best.append([1 + count for count in better])
        worst.append([len(at) - count for count in worse])
    outside = int((1 - level) / 2 * len(best) + 1e-9)  # draws that may lie before, or behind
    return [sorted(ranks)[outside] for ranks in zip(*best, strict=True)], [
        sorted(ranks, reverse=True)[outside] for ranks in zip(*worst, strict=True)]


def test_rank_intervals_over_prompts_are_those_of_every_draw():
    for sizes, level in product([(3, 1, 4, 2), (5, 8, 1, 1, 2)], [0.95, 0.5]):
        rng = np.random.default_rng([len(sizes), *sizes])
        models = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
        for density in (0.2, 0.6, 0.95):
            scores = rng.integers(0, 9, size=len(models)).astype(float) + models
            different = np.triu(rng.random((len(models), len(models))) < density, 1)
            different |= different.T  # within a model, too: such pairs are never drawn
            made = rank_intervals_over_prompts(models, scores, different, level)
            np.testing.assert_array_equal(made, intervals_by_enumeration(models, scores, different, level))
