"""Power and the minimum detectable difference, against closed forms, noncentral t and a published table."""

from __future__ import annotations

from math import inf, sqrt

import numpy as np
import pytest
from scipy import stats

from stsbench.metrics.noise import degrees_of_freedom, difference_over_seeds
from stsbench.metrics.power import (
    Measurement,
    detectable_difference,
    difference_power,
    few_items,
)


@pytest.mark.parametrize(("df", "size"), [
    (1.0, 0.0), (1.0, 9.0), (2.5, 1.0), (900.0, 5.1), (inf, 0.3),
])
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
    assert few_items(several) == (
        "Few items (2 tasks of 12 to 40): the 95 % intervals are ±20 to 31 points, and smaller differences would often be "
        "missed."
    )
    assert "is ±0.4 points" in few_items([Measurement("a", 12, 0.4)])
