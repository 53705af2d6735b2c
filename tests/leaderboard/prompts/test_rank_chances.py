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
from stsbench.metrics.bootstrap import resample_counts
from stsbench.metrics.noise import Scores
from stsbench.metrics.ranks import rank_intervals, significantly_different

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


@pytest.mark.parametrize("scores", [TIED, APART, TIED[:2], TIED[:1]])
def test_independent_ranks_are_those_of_every_draw(scores):
    ranks, beats = by_enumeration(list(product(*scores)))
    made = independent_ranks(list(scores))
    np.testing.assert_allclose(made.ranks, ranks, atol=1e-12)
    others = ~np.eye(len(scores), dtype=bool)
    np.testing.assert_allclose(made.beats[others], beats[others], atol=1e-12)
    np.testing.assert_allclose(made.beats + made.beats.T, 1, atol=1e-12)
    np.testing.assert_allclose([made.ranks.sum(0), made.ranks.sum(1)], 1, atol=1e-12)
    np.testing.assert_allclose(made.expected, 1 + (1 - made.beats).sum(axis=1) - 0.5, atol=1e-12)


def test_models_with_other_numbers_of_prompts_and_gaps():
    scores = [np.array([1.0, 2, np.nan]), np.array([2.0]), np.array([np.nan, 0.0, 2.0, 3.0])]
    ranks, _ = by_enumeration(list(product([1, 2], [2], [0, 2, 3])))
    np.testing.assert_allclose(independent_ranks(scores).ranks, ranks, atol=1e-12)


@pytest.mark.parametrize("scores", [TIED, APART])
def test_common_ranks_are_those_of_each_prompt(scores):
    ranks, beats = by_enumeration([tuple(column) for column in scores.T])
    made = common_ranks(scores)
    np.testing.assert_allclose([made.ranks, made.beats], [ranks, beats], atol=1e-12)
    with_gap = np.column_stack([scores, np.where(np.arange(4) == 2, np.nan, 1.0)])
    np.testing.assert_allclose(common_ranks(with_gap).ranks, made.ranks, atol=1e-12)
    assert shared_prompts(with_gap).shape == scores.shape


def test_equal_prompts_give_a_permutation_and_a_model_above_all_is_first():
    order = np.array([2.0, 9.0, 5.0])
    equal = np.repeat(order[:, None], 6, axis=1)
    for made in (independent_ranks(list(equal)), common_ranks(equal)):
        assert (made.ranks == shares_of_ranks(order)).all() and set(made.ranks.ravel()) == {0.0, 1.0}
    above = APART.copy()
    above[2] += APART.max() - APART.min() + 1
    for made in (independent_ranks(list(above)), common_ranks(above)):
        assert made.first[2] == 1 and made.first.sum() == 1 and made.expected[2] == 1


def test_the_two_designs_agree_without_an_effect_of_the_prompt_and_not_with_one():
    equal = np.repeat(RNG.normal(size=(4, 1)), 5, axis=1)
    np.testing.assert_allclose(independent_ranks(list(equal)).ranks, common_ranks(equal).ranks, atol=1e-12)
    additive = RNG.normal(size=(3, 1)) + 5 * RNG.normal(size=(1, 6))
    assert set(common_ranks(additive).ranks.ravel()) == {0.0, 1.0}  # the order never changes with the same prompt
    assert independent_ranks(list(additive)).ranks.max() < 0.9
    assert kendall_w(additive) == pytest.approx(1)


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
    with pytest.raises(StsbenchError, match="no prompt was run with every model"):
        common_ranks(np.array([[1, np.nan], [np.nan, 1]]))


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


@pytest.mark.parametrize("level", [0.95, 0.8, 0.5])
@pytest.mark.parametrize("sizes", [(3, 1, 4, 2), (1, 1, 1), (5, 8, 1, 1, 2), (40, 40)])
def test_rank_intervals_over_prompts_are_those_of_every_draw(sizes, level):
    rng = np.random.default_rng([len(sizes), *sizes])
    models = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    for density in (0.2, 0.6, 0.95):
        scores = rng.integers(0, 9, size=len(models)).astype(float) + models
        different = np.triu(rng.random((len(models), len(models))) < density, 1)
        different |= different.T  # within a model, too: such pairs are never drawn
        made = rank_intervals_over_prompts(models, scores, different, level)
        np.testing.assert_array_equal(made, intervals_by_enumeration(models, scores, different, level))


def jointly(values, draws):
    return significantly_different(Scores(values, draws)).jointly


def item_scores(shift, prompts=1):
    """The values and draws of four models' means over 200 items, the first `shift` better, each score `prompts` times."""
    rng = np.random.default_rng(5)
    scores = rng.normal(size=200) + rng.normal(size=(4, 200)) + np.array([shift, 0.5, 0.3, 0.0])[:, None]
    scores = np.repeat(scores, prompts, axis=0)
    return scores.mean(axis=1), scores @ resample_counts(200, 400, (11,)).T / 200


def test_where_prompts_change_nothing_the_intervals_are_those_of_the_items_alone():
    values, draws = item_scores(0.4)
    _, first, last = rank_intervals(values, jointly(values, draws))
    assert len({*first}) > 1 and any(first < last)
    many, many_draws = item_scores(0.4, prompts=5)
    made = rank_intervals_over_prompts(np.repeat(np.arange(4), 5), many, jointly(many, many_draws))
    np.testing.assert_array_equal(made, (first, last))
    single = rank_intervals_over_prompts(np.arange(4), values, jointly(values, draws))  # one prompt each
    np.testing.assert_array_equal(single, (first, last))


def test_a_model_above_all_by_far_is_first_whatever_the_prompt():
    values, draws = item_scores(30.0, prompts=3)
    of_prompts = np.tile([0.0, 0.6, -0.9], 4)  # far more than the items' noise, far less than the lead
    models = np.repeat(np.arange(4), 3)
    first, last = rank_intervals_over_prompts(
        models, values + of_prompts, jointly(values + of_prompts, draws + of_prompts[:, None])
    )
    assert (first[0], last[0]) == (1, 1) and set(first[1:]) == {2} and set(last[1:]) == {4}


def test_a_rank_that_few_draws_have_is_not_in_the_interval():
    scores = np.array([*np.arange(100.0), 97.5])  # 2 of 100 prompts are better than the other model: below 2.5 %
    models = np.array([0] * 100 + [1])
    first, last = rank_intervals_over_prompts(models, scores, np.ones((101, 101), dtype=bool))
    assert (list(first), list(last)) == ([2, 1], [2, 1])
    scores[-1] = 96.5  # 3 of 100
    first, last = rank_intervals_over_prompts(models, scores, np.ones((101, 101), dtype=bool))
    assert (list(first), list(last)) == ([1, 1], [2, 2])


def test_chances_of_first_are_those_among_all_ranks():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        scores = [rng.integers(0, 8, size=rng.integers(1, 5)) + rng.integers(0, 6.0) for _ in range(7)]
        np.testing.assert_allclose(chances_of_first(scores), independent_ranks(scores).first, atol=1e-12)
