"""Paired differences: against naive sums, Holm's correction by hand; by a naive loop in tests/evaluation/test_compare.py.
TOST: against a published example, scipy's t tests and a counting loop. Intervals over tasks: scipy's t interval, a
prediction by hand, a naive loop. Scores over prompts: their distribution by its definition, the error of their mean by
whole clusters drawn again."""

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from stsbench.metrics import aggregation
from stsbench.metrics.aggregation import chance_of_same_order, difference_over_tasks, mean_over_prompts, spread
from stsbench.metrics.equivalence import Equivalence, equivalence, equivalence_over_seeds, from_deviations, verdict
from stsbench.metrics.noise import deviations_over_seeds, difference_over_seeds
from stsbench.metrics.paired import Difference, critical_value, holm, paired_difference


def test_a_difference_and_two_one_sided_tests_by_hand() -> None:
    a = np.array([3.0, 5.0, 4.0, 2.0] * 10)
    b = np.array([1.0, 2.0, 3.0, 4.0] * 10)
    actual = paired_difference(4.0, 2.0, a, b)  # differences 2, 3, 1, -2: 0, 1, 1 and 4 from 2, ten times each
    error = pytest.approx((3.5 * 40 / 39) ** 0.5)  # 2, 3, 1, -2 are 1, 2, 0 and -3 from their mean
    assert actual == Difference(2.0, -2.0, 6.0, 11 / 41, error)
    assert paired_difference(2.0, 4.0, b, a) == Difference(-2.0, -6.0, 2.0, 11 / 41, error)
    test = equivalence(4.0, 2.0, a, b, margin=2.5)  # 4.5 from the lower bound, .5 from the upper one
    assert test == Equivalence(2.5, -2.0, 6.0, 1 / 41 / 2, 31 / 41 / 2) and test.p == test.p_high
    outside = equivalence(4.0, 2.0, a, b, margin=1.5)
    assert outside is not None and (outside.p_low, outside.p_high) == (11 / 41 / 2, 1 - 31 / 41 / 2)
    same = equivalence(4.0, 4.0, a, a, margin=1e-6)  # one encoder against itself is equal within any margin
    assert same is not None and (same.low, same.high, same.p) == (0.0, 0.0, 1 / 41 / 2)


def test_a_model_with_itself() -> None:
    draws = np.random.default_rng(0).normal(size=100)
    assert paired_difference(1.5, 1.5, draws, draws) == Difference(0.0, 0.0, 0.0, 1.0)
    # The same score by another sum is the same score: its rounding is in every resample.
    assert paired_difference(70.0, 70 * (1 + 1e-15), draws, draws + 1e-14).p == 1.0


def test_missing_and_too_few_draws() -> None:
    draws = np.random.default_rng(0).normal(size=(2, 100))
    holes = draws.copy()
    holes[0, 3], holes[1, 50] = np.nan, np.nan
    assert paired_difference(1.0, 0.5, *holes) == paired_difference(1.0, 0.5, *np.delete(draws, [3, 50], axis=1))
    holes[0, 10:20] = np.nan
    assert paired_difference(1.0, 0.5, *holes) == Difference(0.5)
    assert paired_difference(1.0, 0.5, *draws[:, :19]) == Difference(0.5)  # 1 / 20 is not below 0.05
    assert critical_value(np.zeros(19)) == inf
    assert paired_difference(9.0, 0.5, *(draws[:, :20] + [[9.0], [0.5]])).p == 1 / 21
    assert paired_difference(1.0, 0.5, np.zeros(0), np.zeros(0)) == Difference(0.5)


@settings(max_examples=25)
@given(st.lists(st.integers(0, 9).map(float), min_size=20, max_size=60), st.floats(-1, 10), st.sampled_from([0.9, 0.95]))
def test_a_statistic_is_significant_exactly_above_the_critical_value(draws, statistic, level) -> None:
    p = (1 + sum(each >= statistic for each in draws)) / (len(draws) + 1)
    assert (statistic > critical_value(np.array(draws), level)) == (p < 1 - level - 1e-12)


def test_holm_by_hand() -> None:
    # 4 * .005, 3 * .01, 2 * .03, then 1 * .04, which may not fall below the one before it.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0] and holm([0.02]) == [0.02] and holm([]) == []


def test_a_published_example() -> None:
    """Lakens 2017 (Social Psychological and Personality Science 8, 355-362), data of Moery & Calin-Jageman 2016: means 5.25
    and 5.22, standard deviations .95 and .83, n 95 and 89, bounds d = .43: t(182) = -2.69, p = .004."""
    pooled = ((94 * 0.95**2 + 88 * 0.83**2) / 182) ** 0.5
    error = pooled * (1 / 95 + 1 / 89) ** 0.5
    margin = 0.43 * pooled
    assert (0.03 - margin) / error == pytest.approx(-2.69, abs=0.005)
    # sizes of deviations that are exactly Student's: quantiles, an equal share of the probability apart
    test = from_deviations(5.25 - 5.22, error * np.abs(stats.t.ppf((np.arange(20_000) + 0.5) / 20_000, 182)), margin)
    assert test is not None and round(test.p, 3) == 0.004 and test.p == test.p_high
    low, high = (stats.ttest_ind_from_stats(5.25 + bound, 0.95, 95, 5.22, 0.83, 89, alternative=end).pvalue
                 for bound, end in ((margin, "greater"), (-margin, "less")))
    assert (test.p_low, test.p_high) == pytest.approx((low, high), abs=2e-4)
    half = stats.t.ppf(0.95, 182) * error
    assert (test.low, test.high) == pytest.approx((0.03 - half, 0.03 + half), abs=1e-4)


def test_without_a_test_of_the_difference_there_is_none_of_equivalence() -> None:
    draws = np.random.default_rng(0).normal(size=(2, 100))
    assert equivalence(1.0, 0.5, *draws[:, :19], margin=9.0) is None
    assert equivalence(1.0, 0.5, *draws[:, :20], margin=9.0) is not None
    draws[0, 10:20] = np.nan
    assert equivalence(1.0, 0.5, *draws, margin=9.0) is None
    assert equivalence_over_seeds(np.array([1.0, 1.2]), np.array([1.1, 1.3]), *draws, 9.0) is None


@settings(max_examples=25)
@given(st.lists(st.floats(0, 5), min_size=20, max_size=90), st.floats(-5, 5), st.floats(0.01, 5))
def test_p_and_interval_agree_and_the_sides_mirror(deviations, value, margin) -> None:
    test = from_deviations(value, np.array(deviations), margin)
    assert (test.p < 0.05) == (value - test.low < value + margin and test.high - value < margin - value)
    both = (1 + sum(each >= abs(value + margin) for each in deviations)) / (len(deviations) + 1)
    assert test.p_low == (both / 2 if value + margin > 0 else 1 - both / 2)
    mirror = from_deviations(-value, np.array(deviations), margin)
    assert (mirror.p_low, mirror.p_high, mirror.low) == (test.p_high, test.p_low, -test.high)


@pytest.mark.parametrize("paired", [False, True])
def test_seeds_alone_are_students_t(paired: bool) -> None:
    """Where items add no noise: the t test of the seeds' pairs, or of two samples, with fewer df than Welch's."""
    a, b = np.array([79.0, 79.6, 79.1, 79.4]), np.array([79.1, 79.3, 78.8, 79.2])
    test = equivalence_over_seeds(a, b, *np.full((2, 20_000), [[a.mean()], [b.mean()]]), 0.6, paired=paired)
    def compared(moved: float) -> tuple[float, float]:
        if paired:
            known = stats.ttest_rel(a + moved, b)
            return float(known.statistic), float(known.df)
        known = stats.ttest_ind(a + moved, b, equal_var=False)
        return float(known.statistic), 3 + (1 - 2 / 4) * (float(known.df) - 3)  # docs/findings/statistics.md

    low, high = stats.t.sf(*compared(0.6)), stats.t.cdf(*compared(-0.6))
    assert test is not None and (test.p_low, test.p_high) == pytest.approx((low, high), abs=0.006)


@pytest.mark.parametrize("paired", [False, True])
def test_deviations_over_seeds_are_those_of_the_difference(paired: bool) -> None:
    rng = np.random.default_rng(5)
    a, b = rng.normal(79, 0.4, 3), rng.normal(78.5, 0.4, 3)
    draws = rng.normal([[a.mean()], [b.mean()]], 0.3, (2, 999))
    value, deviations = deviations_over_seeds(a, b, *draws, paired=paired)
    difference = difference_over_seeds(a, b, *draws, paired=paired)
    assert value == difference.value
    assert (1 + np.count_nonzero(deviations >= abs(value))) / 1000 == difference.p


def test_verdicts() -> None:
    words = [verdict(different, equivalent) for different in (True, False) for equivalent in (False, True)]
    assert words == ["different", "different, yet within", "undecided", "practically equal"]


A, B = np.array([72.4, 80.6, 75.6, 85.4, 79.0, 82.0, 77.2]), np.array([75.1, 76.5, 71.5, 75.3, 73.6, 73.5, 70.5])


def test_the_interval_is_scipys() -> None:
    over = aggregation.mean_over_tasks(A)
    assert (over.low, over.high) == pytest.approx(stats.ttest_1samp(A, 0).confidence_interval())
    assert over == aggregation.OverTasks(7, pytest.approx(A.mean()), pytest.approx(stats.tstd(A)), over.low, over.high)
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
    two = aggregation.mean_over_tasks(A[:2])
    assert (two.value, two.low, two.sd) == (pytest.approx(76.5), None, None)
    assert two.why == "2 tasks cannot show how much tasks differ: 3 are needed"
    assert difference_over_tasks(A[:1], B[:1]).why.startswith("1 task cannot")


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
