"""Noise of items and seeds: two rows against scipy's t tests, paired rows seed by seed. Power and the minimum detectable
difference, against closed forms, noncentral t and a published table."""

from math import inf, sqrt

import numpy as np
import pytest
from scipy import stats

from stsbench.metrics.moderation import df_of_two
from stsbench.metrics.noise import Noise, Scores, degrees_of_freedom, difference_over_seeds
from stsbench.metrics.power import Measurement, detectable_difference, difference_power, few_items
from stsbench.metrics.ranks import significantly_different

A, B = np.array([70.1, 71.0, 70.4, 70.2]), np.array([69.1, 70.3, 69.2, 69.3])


def compared(paired: bool, a: np.ndarray = A, b: np.ndarray = B):
    """Without noise of the items, as t tests have none."""
    return difference_over_seeds(a, b, np.full(20_000, a.mean()), np.full(20_000, b.mean()), paired=paired)


@pytest.mark.parametrize("paired", [True, False])
def test_two_rows_are_compared_as_t_tests_compare_them(paired: bool) -> None:
    """By seed as paired samples are; without, by Student's t between Welch's degrees of freedom and those of one side."""
    result = compared(paired)
    a, b = (np.var(side, ddof=1) / 4 for side in (A, B))
    error, df = np.sqrt(a + b), df_of_two(a, b, 4)
    test = stats.ttest_ind(A, B, equal_var=False)
    assert 3 < df < test.df and 0.95 / error == pytest.approx(test.statistic)
    p, half = 2 * stats.t.sf(0.95 / error, df), error * stats.t.isf(0.025, df)
    if paired:
        p, half = stats.ttest_rel(A, B).pvalue, stats.ttest_rel(A, B).confidence_interval().high - 0.95
    assert result.value == pytest.approx(0.95)
    assert result.p == pytest.approx(p, abs=0.01)
    assert (result.low, result.high) == pytest.approx((0.95 - half, 0.95 + half), abs=0.05)


def test_two_rows_of_several_seeds_keep_their_test_among_rows_of_one() -> None:
    """With the items' part: the sign of a pair follows the order in which it is asked for."""
    rng = np.random.default_rng(0)
    values = np.array([70.0, 60.0, 65.0])
    draws = values[:, None] + rng.normal(0, 0.5, (3, 2000))
    seeds = [np.array([69.0, 70.0, 71.0]), np.array([60.0]), np.array([64.5, 65.0, 65.5])]
    noise = Noise(Scores(values, draws, seeds), rng)
    there, back = noise.deviations(np.asarray(0), np.array([1, 2])), noise.deviations(np.array([2, 1]), np.array([0, 0]))
    assert np.allclose(there[1], -back[0]) and np.allclose(there[0], -back[1])
    variances = 1 / 3, 0.25 / 3
    expected = np.sqrt(sum(variances)) * stats.t.ppf((np.arange(2000) + 0.5) / 2000, df_of_two(*variances, 3))
    assert np.sort(there[1] - (draws[0] - 70.0 - draws[2] + 65.0)) == pytest.approx(expected, abs=1e-6)


def test_unequal_numbers_of_seeds_are_compared_as_by_behrens_and_fisher() -> None:
    """The difference of two independent Student's t, each scaled by its own side's standard error."""
    one, other = np.array([70.0, 71.2]), np.array([69.5, 69.6, 69.4, 69.7, 69.5, 69.6])
    a, b = (np.std(side, ddof=1) / np.sqrt(len(side)) for side in (one, other))
    at = np.linspace(-8, 8, 20001)  # standard errors of the quiet side
    tail = np.trapezoid(stats.t.pdf(at, 5) * stats.t.sf((one.mean() - other.mean() + b * at) / a, 1), at)
    assert compared(False, one, other).p == pytest.approx(2 * tail, abs=0.01)
    assert compared(False, other, one).p == pytest.approx(2 * tail, abs=0.015)


def test_the_order_of_seeds_matters_to_pairs_alone() -> None:
    mixed = B[[1, 0, 3, 2]]
    assert compared(True).p < 0.01 < 0.05 < compared(True, b=mixed).p
    assert compared(False).p == compared(False, b=mixed).p


def test_too_many_missing_draws_are_no_test() -> None:
    draws = np.where(np.arange(1000) % 10, 70.0, np.nan)
    difference = difference_over_seeds(A, B, draws, draws)
    assert difference.p is None and difference.low is None and difference.value == pytest.approx(0.95)


def test_pairs_have_the_variance_of_their_differences() -> None:
    """Seven rows that move together over seeds: the differences between them are far surer than their means."""
    seeds = np.array([-20.0, 5.0, 15.0]) + np.random.default_rng(7).normal(0, 0.1, (7, 3)) + np.arange(7)[:, None]
    scores = Scores(seeds.mean(axis=1), np.repeat(seeds.mean(axis=1)[:, None], 200, axis=1), list(seeds))
    groups = np.array([0, 0, 0, 0, 0, 0, -1])
    paired = Noise(Scores(scores.values, scores.draws, scores.seeds, groups), np.random.default_rng(0))
    alone = Noise(scores, np.random.default_rng(0))
    assert (paired.errors[:6, :6] < 0.2 * alone.errors[:6, :6] + 1e-12).all()
    assert np.array_equal(paired.errors[6], alone.errors[6])
    assert not significantly_different(scores).jointly.any()
    assert significantly_different(Scores(scores.values, scores.draws, scores.seeds, groups)).jointly[0, 5]


def test_a_block_of_pairs_is_the_pairs_one_by_one() -> None:
    rng = np.random.default_rng(8)
    seeds = rng.normal(size=(5, 3))
    draws = seeds.mean(axis=1)[:, None] + rng.normal(0, 0.3, (5, 99))
    noise = Noise(Scores(seeds.mean(axis=1), draws, list(seeds), np.array([0, 0, 1, 1, -1])), np.random.default_rng(0))
    one, other = np.array([0, 0, 2, 3]), np.array([1, 2, 3, 4])
    block = noise.drawn(one, other)
    for at, (i, j) in enumerate(zip(one, other, strict=True)):
        assert np.allclose(block[at], noise.drawn(np.asarray(i), np.array([j]))[0])
        assert np.allclose(block[at], noise.drawn(np.asarray(j), np.array([i]))[0])


@pytest.mark.parametrize(("df", "size"), [(1.0, 0.0), (1.0, 9.0), (2.5, 1.0), (900.0, 5.1), (inf, 0.3)])
def test_power_is_that_of_the_textbook_test(df: float, size: float) -> None:
    if df == inf:
        critical = stats.norm.ppf(0.975)
        expected = stats.norm.sf(critical - size) + stats.norm.cdf(-critical - size)
    else:  # Student's t given its scale is normal: no noncentral t here
        critical = stats.t.ppf(0.975, df)
        scale = np.sqrt(stats.chi2.ppf((np.arange(50_000) + 0.5) / 50_000, df) / df)
        expected = np.mean(stats.norm.sf(critical * scale - size) + stats.norm.cdf(-critical * scale - size))
    assert difference_power(3 * size, 3.0, df) == pytest.approx(expected, abs=2e-5)
    assert difference_power(-3 * size, 3.0, df) == difference_power(3 * size, 3.0, df)


def test_published_sample_sizes() -> None:
    """Cohen 1992, A Power Primer, table 2: two groups of 26, 64 and 393 show d = .8, .5 and .2 with a power of .80."""
    for each, d in ((26, 0.8), (64, 0.5), (393, 0.2)):
        assert difference_power(d, sqrt(2 / each), 2 * each - 2) == pytest.approx(0.8, abs=0.01)  # the table rounds


def test_the_detectable_difference_has_the_power() -> None:
    expected = stats.norm.ppf(0.975) + stats.norm.ppf(0.8)
    assert detectable_difference(1.5) == pytest.approx(1.5 * expected, rel=1e-5)  # the other tail is 1e-6
    for df in (0.5, 1.0, 2.0, 6.0, 1e6, inf):
        for power in (0.5, 0.8, 0.99):
            assert difference_power(detectable_difference(2.0, df, power), 2.0, df) == pytest.approx(power, abs=1e-6)


def test_seeds_have_the_degrees_of_freedom_of_their_interval() -> None:
    for df in (0.7, 2.0, 11.0):
        assert degrees_of_freedom(stats.t.ppf(0.975, df)) == pytest.approx(df)
    assert degrees_of_freedom(1.9) == inf and degrees_of_freedom(1e9) == 0.5
    rng = np.random.default_rng(1)
    a, b = np.array([70.0, 71.5, 70.4]), np.array([69.0, 70.1, 69.7])
    tested = difference_over_seeds(a, b, a.mean() + 0.3 * rng.normal(size=2000), b.mean() + 0.3 * rng.normal(size=2000))
    half = (tested.high - tested.low) / 2
    assert tested.df < 20 and half == pytest.approx(stats.t.ppf(0.975, tested.df) * tested.error)
    assert detectable_difference(tested.error, tested.df) > half
    single = difference_over_seeds(a[:1], b[:1], *rng.normal(70, 0.3, (2, 400)))
    assert single.df == inf and single.error


@pytest.mark.parametrize(("n", "half", "points", "few"), [
    (49, 1.0, True, True), (50, 10.0, True, False), (50, 10.01, True, True), (50, None, True, False), (12, None, True, True),
    (60, 40.0, False, False),  # a mean squared error is in no points
])
def test_the_rule_on_few_items(n: int, half: float | None, points: bool, few: bool) -> None:
    assert Measurement("a", n, half, points=points).few is few
    assert bool(few_items([Measurement("a", n, half, points=points)])) is few


def test_the_sentence_on_few_items() -> None:
    several = [Measurement("a", 12, 31.0), Measurement("b", 1379, 2.0), Measurement("c", 40, 20.0)]
    assert few_items(several) == ("Few items (2 tasks of 12 to 40): the 95 % intervals are ±20 to 31 points, and smaller "
                                  "differences would often be missed.")
    assert "is ±0.4 points" in few_items([Measurement("a", 12, 0.4)])
