"""Paired differences: against naive sums, Holm's correction by hand; by a naive loop in tests/evaluation/test_compare.py."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stsbench.metrics.paired import Difference, critical_value, holm, paired_difference


def test_by_hand() -> None:
    a = np.array([3.0, 5.0, 4.0, 2.0] * 10)
    b = np.array([1.0, 2.0, 3.0, 4.0] * 10)
    found = paired_difference(4.0, 2.0, a, b)  # differences 2, 3, 1, -2: 0, 1, 1 and 4 from 2, ten times each
    error = pytest.approx((3.5 * 40 / 39) ** 0.5)  # 2, 3, 1, -2 are 1, 2, 0 and -3 from their mean
    assert found == Difference(2.0, -2.0, 6.0, 11 / 41, error)
    assert paired_difference(2.0, 4.0, b, a) == Difference(-2.0, -6.0, 2.0, 11 / 41, error)


def test_a_model_with_itself() -> None:
    draws = np.random.default_rng(0).normal(size=100)
    assert paired_difference(1.5, 1.5, draws, draws) == Difference(0.0, 0.0, 0.0, 1.0)
    # The same score by another sum is the same score: its rounding is in every resample.
    assert paired_difference(70.0, 70 * (1 + 1e-15), draws, draws + 1e-14).p == 1.0


def test_missing_and_too_few_draws() -> None:
    draws = np.random.default_rng(0).normal(size=(2, 100))
    holes = draws.copy()
    holes[0, 3], holes[1, 50] = np.nan, np.nan
    whole = np.delete(draws, [3, 50], axis=1)
    assert paired_difference(1.0, 0.5, *holes) == paired_difference(1.0, 0.5, *whole)
    holes[0, 10:20] = np.nan
    assert paired_difference(1.0, 0.5, *holes) == Difference(0.5)
    assert paired_difference(1.0, 0.5, *draws[:, :19]) == Difference(0.5)  # 1 / 20 is not below 0.05
    assert paired_difference(9.0, 0.5, *(draws[:, :20] + [[9.0], [0.5]])).p == 1 / 21
    assert paired_difference(1.0, 0.5, np.zeros(0), np.zeros(0)) == Difference(0.5)


@settings(max_examples=25)
@given(st.lists(st.integers(0, 9).map(float), min_size=20, max_size=60), st.floats(-1, 10), st.sampled_from([0.9, 0.95]))
def test_a_statistic_is_significant_exactly_above_the_critical_value(draws, statistic, level) -> None:
    p = (1 + sum(each >= statistic for each in draws)) / (len(draws) + 1)
    assert (statistic > critical_value(np.array(draws), level)) == (p < 1 - level - 1e-12)


@settings(max_examples=25)
@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=20, max_size=60), st.floats(-5, 5), st.floats(-5, 5))
def test_interval_and_p_agree(draws, a, b) -> None:
    found = paired_difference(a, b, *np.array(draws).T)
    assert found.low <= found.value <= found.high
    assert (found.low > 0 or found.high < 0) == (found.p < 0.05)
    mirror = paired_difference(b, a, *np.array(draws)[:, ::-1].T)
    assert (mirror.value, mirror.low, mirror.high, mirror.p) == (-found.value, -found.high, -found.low, found.p)


def test_critical_value_of_few_draws_is_infinite() -> None:
    assert critical_value(np.zeros(19)) == inf
    assert critical_value(np.zeros(0)) == inf


def test_holm_by_hand() -> None:
    # 4 * .005, 3 * .01, 2 * .03, then 1 * .04, which may not fall below the one before it.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([0.02]) == [0.02]
    assert holm([]) == []
