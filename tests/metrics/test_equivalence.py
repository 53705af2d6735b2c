"""TOST: against a published example, scipy's t tests and a counting loop."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from stsbench.metrics.equivalence import (
    Equivalence,
    equivalence,
    equivalence_over_seeds,
    from_deviations,
    verdict,
)
from stsbench.metrics.seeds import deviations_over_seeds, difference_over_seeds

SHARES = (np.arange(20_000) + 0.5) / 20_000


def student(error: float, df: float) -> np.ndarray:
    """Sizes of deviations that are exactly Student's: quantiles, an equal share of the probability apart."""
    return error * np.abs(stats.t.ppf(SHARES, df))


def test_a_published_example() -> None:
    """Lakens 2017 (Social Psychological and Personality Science 8, 355-362), data of Moery & Calin-Jageman 2016: means 5.25
    and 5.22, standard deviations .95 and .83, n 95 and 89, bounds d = .43: t(182) = -2.69, p = .004."""
    pooled = ((94 * 0.95**2 + 88 * 0.83**2) / 182) ** 0.5
    error = pooled * (1 / 95 + 1 / 89) ** 0.5
    margin = 0.43 * pooled
    assert (0.03 - margin) / error == pytest.approx(-2.69, abs=0.005)
    test = from_deviations(5.25 - 5.22, student(error, 182), margin)
    assert test is not None and round(test.p, 3) == 0.004 and test.p == test.p_high
    low, high = (stats.ttest_ind_from_stats(5.25 + bound, 0.95, 95, 5.22, 0.83, 89, alternative=end).pvalue
                 for bound, end in ((margin, "greater"), (-margin, "less")))
    assert (test.p_low, test.p_high) == pytest.approx((low, high), abs=2e-4)
    half = stats.t.ppf(0.95, 182) * error
    assert (test.low, test.high) == pytest.approx((0.03 - half, 0.03 + half), abs=1e-4)


def test_by_hand() -> None:
    a = np.array([3.0, 5.0, 4.0, 2.0] * 10)
    b = np.array([1.0, 2.0, 3.0, 4.0] * 10)  # sizes of deviations from 2: 0, 1, 1 and 4, ten times each
    test = equivalence(4.0, 2.0, a, b, margin=2.5)  # 4.5 from the lower bound, .5 from the upper one
    assert test == Equivalence(2.5, -2.0, 6.0, 1 / 41 / 2, 31 / 41 / 2) and test.p == test.p_high
    outside = equivalence(4.0, 2.0, a, b, margin=1.5)
    assert outside is not None and (outside.p_low, outside.p_high) == (11 / 41 / 2, 1 - 31 / 41 / 2)


def test_one_encoder_against_itself_is_equal_within_any_margin() -> None:
    draws = np.random.default_rng(0).normal(size=100)
    test = equivalence(1.5, 1.5, draws, draws, margin=1e-6)
    assert test is not None and (test.low, test.high, test.p) == (0.0, 0.0, 1 / 101 / 2)


def test_without_a_test_of_the_difference_there_is_none_of_equivalence() -> None:
    draws = np.random.default_rng(0).normal(size=(2, 100))
    assert equivalence(1.0, 0.5, *draws[:, :19], margin=9.0) is None
    assert equivalence(1.0, 0.5, *draws[:, :20], margin=9.0) is not None
    draws[0, 10:20] = np.nan
    assert equivalence(1.0, 0.5, *draws, margin=9.0) is None
    seeds = np.array([1.0, 1.2]), np.array([1.1, 1.3])
    assert equivalence_over_seeds(*seeds, *draws, 9.0) is None


@settings(max_examples=25)
@given(st.lists(st.floats(0, 5), min_size=20, max_size=90), st.floats(-5, 5), st.floats(0.01, 5))
def test_p_and_interval_agree_and_the_sides_mirror(deviations, value, margin) -> None:
    test = from_deviations(value, np.array(deviations), margin)
    assert (test.p < 0.05) == (value - test.low < value + margin and test.high - value < margin - value)
    count = sum(each >= abs(value + margin) for each in deviations)
    both = (1 + count) / (len(deviations) + 1)
    assert test.p_low == (both / 2 if value + margin > 0 else 1 - both / 2)
    mirror = from_deviations(-value, np.array(deviations), margin)
    assert (mirror.p_low, mirror.p_high, mirror.low) == (test.p_high, test.p_low, -test.high)


@pytest.mark.parametrize("paired", [False, True])
def test_seeds_alone_are_students_t(paired: bool) -> None:
    """Where items add no noise: the t test of the seeds' pairs, or of two samples, with fewer df than Welch's."""
    a, b = np.array([79.0, 79.6, 79.1, 79.4]), np.array([79.1, 79.3, 78.8, 79.2])
    draws = np.full((2, 20_000), [[a.mean()], [b.mean()]])
    test = equivalence_over_seeds(a, b, *draws, 0.6, paired=paired)
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
