"""Ranks: significance by a naive loop, rank intervals by counting, letters by the property that defines them,
tiers by a loop over rows. Moderated variances: the prior against maximum likelihood, trigamma against scipy, posteriors
against Student's t."""

import re
import sys
from fractions import Fraction
from itertools import combinations
from math import inf, isinf
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, special, stats

from stsbench.metrics import moderation, paired, ranks
from stsbench.metrics.bootstrap import resample_counts
from stsbench.metrics.moderation import NO_PRIOR, VariancePrior, df_of_two, moderated, variance_prior
from stsbench.metrics.noise import Scores
from stsbench.metrics.paired import paired_difference
from stsbench.metrics.ranks import letters, rank_intervals, significant_in_all, significantly_different, tiers

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from two_sides import error, satterthwaite

ITEMS, MODELS = 250, 5


def simulated(shift, number, draws=150):
    """The values and draws of five models' mean item scores; models share the items' difficulty, the first is better."""
    rng = np.random.default_rng([7, number])
    scores = rng.normal(size=ITEMS) + rng.normal(size=(MODELS, ITEMS)) * np.array([1, 0.3, 1, 2, 0.5])[:, None]
    scores[0] += shift
    return scores.mean(axis=1), scores @ resample_counts(ITEMS, draws, (11, number)).T / ITEMS


def jointly(values, draws):
    return significantly_different(Scores(values, draws)).jointly


PAIRS = list(combinations(range(MODELS), 2))


def naive_statistics(values, draws):
    """Of each pair the studentised difference, and that of each of its draws."""
    size = {(i, j): abs(values[i] - values[j]) / np.std(draws[i] - draws[j], ddof=1) for i, j in PAIRS}

    def drawn(i: int, j: int, b: int) -> float:
        """Studentised by the other draws: the observed difference is not part of its own standard error, either."""
        difference = draws[i] - draws[j]
        return abs(difference[b] - values[i] + values[j]) / np.std(np.delete(difference, b), ddof=1)

    return size, {(i, j): [drawn(i, j, b) for b in range(draws.shape[1])] for i, j in PAIRS}


@pytest.mark.parametrize("number", range(2))
def test_significance_is_the_step_down_method_of_a_naive_loop(number, monkeypatch):
    """Romano & Wolf 2005, algorithm 2.1: all pairs at first, then those that are left, until none is rejected."""
    monkeypatch.setattr(ranks, "BLOCK", (65_536, 300)[number % 2])  # all pairs of a row at a time, or two
    monkeypatch.setattr(paired, "BLOCK", (65_536, 300)[number % 2])
    values, draws = simulated(0.35, number)
    size, sizes = naive_statistics(values, draws)

    def naive(left: set[tuple[int, int]]) -> set[tuple[int, int]]:
        rejected: set[tuple[int, int]] = set()
        while left:
            largest = [max(sizes[pair][b] for pair in left) for b in range(150)]
            out = {pair for pair in left if (1 + sum(each >= size[pair] for each in largest)) / 151 < 0.05}
            if not out:
                break
            left, rejected = left - out, rejected | out
        return rejected

    tested = significantly_different(Scores(values, draws))
    expected = naive(set(PAIRS))
    assert {pair for pair in PAIRS if tested.jointly[pair]} == expected and 0 < len(expected) < len(PAIRS)
    assert np.array_equal(tested.jointly, tested.jointly.T)
    for row in range(MODELS):
        of_row = naive({pair for pair in PAIRS if row in pair})
        assert {pair for pair in PAIRS if row in pair and tested.alone[row, sum(pair) - row]} == of_row
    assert not (tested.jointly & ~tested.alone).any()


def test_tests_of_several_settings_have_one_critical_value_that_of_the_largest_of_all():
    cases = [simulated(shift, number, 100) for number, shift in enumerate((0.0, 0.2, 0.4))]
    naive = [naive_statistics(*case) for case in cases]
    largest = [max(each[b] for _, sizes in naive for each in sizes.values()) for b in range(100)]
    actual = significant_in_all([significantly_different(Scores(*case)) for case in cases])
    wanted = [{pair for pair in PAIRS if (1 + sum(each >= size[pair] for each in largest)) / 101 < 0.05}
              for size, _ in naive]
    assert [{pair for pair in PAIRS if different[pair]} for different in actual] == wanted
    assert any(wanted) and not all(wanted)


@pytest.mark.parametrize("draws", [19, 20, 59, 399, 999])
def test_few_enough_draws_reached_a_statistic_where_its_p_is_below_5_percent(draws):
    reached = np.arange(draws + 1)
    expected = [Fraction(1 + count, draws + 1) < Fraction(1, 20) for count in reached.tolist()]
    assert paired.few_enough(reached, draws).tolist() == expected


def test_half_an_interval_is_that_of_the_pair_compared_by_itself():
    values, draws = simulated(0.35, 1, 400)
    tested = significantly_different(Scores(values, draws), intervals=True)
    assert tested.halves is not None and np.array_equal(tested.halves, tested.halves.T)
    sure = []
    for i, j in combinations(range(MODELS), 2):
        alone = paired_difference(values[i], values[j], draws[i], draws[j])
        assert alone.high is not None and alone.p is not None
        # A pair among others is studentised: its interval is wider by a thousandth.
        assert tested.halves[i, j] == pytest.approx(alone.high - alone.value, rel=0.01)
        sure.append(abs(alone.value) > tested.halves[i, j])
        assert sure[-1] == (alone.p < 0.05) and (sure[-1] or not tested.jointly[i, j])
    assert {True, False} == set(sure)
    assert significantly_different(Scores(values, draws)).halves is None
    few = significantly_different(Scores(values, draws[:, :10]), intervals=True).halves
    assert few is not None and np.isnan(few).all()


def test_differences_without_spread_and_missing_draws():
    rng = np.random.default_rng(0)
    base = 50 + rng.normal(size=200)
    # The third is the second with the rounding of another way to compute it, the fourth always one point below.
    draws = np.array([50 + rng.normal(size=200), base, base * (1 + 1e-15), base - 1])
    values = draws.mean(axis=1)
    different = jointly(values, draws)
    assert not different[1, 2] and not different[0, :3].any()
    assert different[1, 3] and different[2, 3]
    holes = np.insert(draws, [0, 5, 200], np.nan, axis=1)
    holes[1, 6] = 1e9  # the other scores of this resample are missing
    assert np.array_equal(jointly(values, holes), different)
    assert not jointly(values, np.full((4, 200), np.nan)).any()
    assert not jointly(np.array([1.0, 9.0]), np.zeros((2, 10))).any()  # ten draws cannot show one in twenty
    assert jointly(np.array([1.0]), draws[:1]).tolist() == [[False]]


def test_rank_intervals_by_hand():
    values = np.array([70.0, 90.0, 80.0, 80.0, 10.0])
    different = np.zeros((5, 5), dtype=bool)
    for i, j in [(0, 1), (4, 0), (4, 1), (4, 2), (4, 3)]:
        different[i, j] = different[j, i] = True
    place, first, last = rank_intervals(values, different)
    assert place.tolist() == [4, 1, 2, 2, 5]
    assert first.tolist() == [2, 1, 1, 1, 5]
    assert last.tolist() == [4, 3, 4, 4, 5]
    up = rank_intervals(-values, different, lower_is_better=True)
    assert [each.tolist() for each in up] == [place.tolist(), first.tolist(), last.tolist()]


def display(values, different, **options):
    return [re.findall(r"[a-z]\d*", text) for text in letters(np.array(values), different, **options)]


@st.composite
def tables(draw):
    count = draw(st.integers(1, 9))
    values = draw(st.lists(st.integers(0, 5).map(float), min_size=count, max_size=count))
    flags = draw(st.lists(st.booleans(), min_size=count * count, max_size=count * count))
    upper = np.triu(np.array(flags).reshape(count, count), 1)
    return values, upper | upper.T


@settings(max_examples=25)
@given(tables())
def test_a_letter_is_shared_exactly_where_not_told_apart(table):
    values, different = table
    shown = display(values, different)
    for i, j in combinations(range(len(values)), 2):
        assert bool(set(shown[i]) & set(shown[j])) == (not different[i, j])
    assert all(shown)
    holders = [{i for i, mine in enumerate(shown) if letter in mine} for letter in {each for mine in shown for each in mine}]
    assert not any(one < other or (one == other and one is not other) for one in holders for other in holders)
    assert shown[int(np.argmax(values))][0] == "a"
    assert display([-value for value in values], different, lower_is_better=True) == shown


@pytest.mark.parametrize("count", [27, 60])
def test_more_groups_than_letters_stay_readable(count):
    values = np.arange(count, 0, -1.0)
    different = np.abs(values[:, None] - values[None]) > 1  # neighbours are together: a chain of count - 1 groups
    shown = display(list(values), different)
    assert shown[0] == ["a"] and len({letter for mine in shown for letter in mine}) == count - 1
    assert all(bool(set(shown[i]) & set(shown[j])) == (not different[i, j]) for i, j in combinations(range(count), 2))
    assert shown[-1] == [f"{chr(97 + (count - 2) % 26)}{(count - 2) // 26 + 1 if count > 27 else ''}"]
    assert max(len(mine) for mine in shown) == 2


def naive_tiers(values, different):
    """Row by row: the leaders of a tier are the best that are left, and whoever does not differ from one of them joins."""
    tier, number, left = [0] * len(values), 0, set(range(len(values)))
    while left:
        number += 1
        best = max(values[i] for i in left)
        leaders = [i for i in left if values[i] == best]
        for i in sorted(left):
            if i in leaders or any(not different[leader, i] for leader in leaders):
                tier[i] = number
                left.discard(i)
    return tier


@settings(max_examples=25)
@given(st.data())
def test_tiers_are_those_of_a_loop_over_rows(data):
    values = data.draw(st.lists(st.integers(0, 4).map(float), max_size=9))
    count = len(values)
    above = data.draw(st.lists(st.booleans(), min_size=count * count, max_size=count * count))
    different = np.triu(np.array(above, dtype=np.bool_).reshape(count, count), 1)
    different |= different.T
    assert tiers(np.array(values), different).tolist() == naive_tiers(values, different)
    assert tiers(-np.array(values), different, lower_is_better=True).tolist() == naive_tiers(values, different)
    order = np.random.default_rng(count).permutation(count)  # the rows' order decides nothing
    again = tiers(np.array(values)[order], different[np.ix_(order, order)])
    assert again.tolist() == [naive_tiers(values, different)[i] for i in order]


def test_inverse_trigamma():
    for x in (1e-4, 0.1, 0.5, 3.7, 50.0, 1e5):
        assert moderation.inverse_trigamma(float(special.polygamma(1, x))) == pytest.approx(x, rel=1e-6)


def drawn_from(df, variance, each, rng):
    """Sample variances with `each` degrees of freedom, of true variances from a prior."""
    true = np.full(len(each), variance) if isinf(df) else variance * df / rng.chisquare(df, len(each))
    return true * rng.chisquare(each) / each


@pytest.mark.parametrize("df", [1.0, 6.0])
def test_the_prior_is_that_of_maximum_likelihood(df):
    """scipy's F distribution is that of a sample variance over the prior's: an estimate that shares no formula with ours."""
    rng = np.random.default_rng(3)
    each = rng.choice([2.0, 4.0], 3000)
    variances = drawn_from(df, 0.7, each, rng)

    def loss(logs: np.ndarray) -> float:
        prior_df, scale = np.exp(np.clip(logs, -3, 4))
        return -float(stats.f.logpdf(variances / scale, each, prior_df).sum() - len(variances) * np.log(scale))

    likely = np.exp(optimize.minimize(loss, [1.0, 0.0], method="Nelder-Mead").x)
    prior = variance_prior(variances, each)
    assert prior.df == pytest.approx(likely[0], rel=0.25) and prior.variance == pytest.approx(likely[1], rel=0.1)
    assert prior.df == pytest.approx(df, rel=0.3) and prior.variance == pytest.approx(0.7, rel=0.1)


def test_equal_variances_are_pooled():
    variances, each = np.array([1.0, 2.0, 1.5]), np.array([2.0, 2.0, 4.0])
    assert variance_prior(variances, each) == VariancePrior(inf, 12 / 8, 8.0)
    pooled = moderated(variances, each, np.full(3, inf), variance_prior(variances, each))
    assert pooled.tolist() == [1.5, 2.0, 1.5]  # a row that seems noisier is not drawn down
    moderate = VariancePrior(2.0, 1.5, inf)  # rows that are known to differ are: a weight of a half
    assert moderated(variances[:2], each[:2], np.full(2, 2.0), moderate).tolist() == [1.25, 1.75]
    assert variance_prior(np.zeros(5), np.full(5, 2.0)) is NO_PRIOR and variance_prior(variances[:1], each[:1]) is NO_PRIOR
    assert moderated(variances, each, np.zeros(3), NO_PRIOR).tolist() == variances.tolist()


@pytest.mark.parametrize("count", [2, 10])
def test_two_sides_err_in_five_percent_whatever_their_noise(count):
    """By integration, an error of two sides is below 5.05 % at every ratio; Satterthwaite's degrees of freedom are above."""
    for ratio in (1.0, 3.0, 8.0, 30.0):
        assert error(count, ratio, df_of_two, 500) < 0.0505
    assert error(count, 8.0, satterthwaite, 500) > 0.0503
    assert df_of_two(2.0, 0.0, count) == df_of_two(0.0, 2.0, count) == count - 1  # one side's noise is all


def test_a_row_of_another_kind_stands_for_itself():
    rng, each = np.random.default_rng(0), np.full(17, 2.0)
    assert np.mean([moderation.outlying(drawn_from(inf, 0.09, each, rng), each).any() for _ in range(200)]) < 0.15
    odd = np.r_[9.0, 0.09 * stats.chi2.ppf((np.arange(16) + 0.5) / 16, 2) / 2]
    assert np.flatnonzero(moderation.outlying(odd, each)).tolist() == [0]


@pytest.mark.parametrize(("prior", "df"), [
    (VariancePrior(3.0, 2.0, inf), 5.0), (VariancePrior(inf, 2.0, 9.0), 9.0), (NO_PRIOR, 2.0)])
def test_what_is_redrawn_makes_a_normal_deviate_student_s(prior, df):
    variances, each = np.array([1.0]), np.array([2.0])
    rng = np.random.default_rng(1)
    spread = moderation.redrawn(variances, each, np.full(1, prior.df), prior, 4000, rng)[0]
    expected = moderated(variances, each, np.full(1, prior.df), prior)[0]
    assert stats.kstest(rng.standard_normal(4000) * np.sqrt(spread / expected), stats.t(df).cdf).pvalue > 0.01


def test_two_rows_and_few_of_unequal_numbers_of_seeds_stand_for_themselves():
    for variances, df in (([1.0, 0.1], [1.0, 9.0]), ([1.0, 0.9], [2.0, 2.0]), ([1.0, 0.9, 1.1], [1.0, 2.0, 2.0])):
        prior, prior_df, outliers = moderation.prior_of_rows(np.array(variances), np.array(df))
        assert prior is NO_PRIOR and not prior_df.any() and not outliers.any()
    for variances, df in (([1.0, 0.9, 1.1], [2.0] * 3), ([1.0, 0.9, 1.1, 0.8, 1.0], [1.0, 2.0, 2.0, 2.0, 4.0])):
        prior, prior_df, _ = moderation.prior_of_rows(np.array(variances), np.array(df))
        assert isinf(prior.df) and np.isinf(prior_df).all()
