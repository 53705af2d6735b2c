"""Moderated variances: the prior against maximum likelihood, trigamma against scipy, posteriors against Student's t."""

from __future__ import annotations

import sys
from math import inf, isinf
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize, special, stats

from stsbench.metrics.moderation import (
    NO_PRIOR,
    VariancePrior,
    df_of_two,
    inverse_trigamma,
    moderated,
    outlying,
    prior_of_rows,
    redrawn,
    variance_prior,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from two_sides import error, satterthwaite


@pytest.mark.parametrize("x", [1e-4, 0.1, 0.5, 1.0, 3.7, 50.0, 1e5])
def test_inverse_trigamma(x: float) -> None:
    assert inverse_trigamma(float(special.polygamma(1, x))) == pytest.approx(x, rel=1e-6)


def drawn_from(df: float, variance: float, each: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Sample variances with `each` degrees of freedom, of true variances from a prior."""
    true = np.full(len(each), variance) if isinf(df) else variance * df / rng.chisquare(df, len(each))
    return true * rng.chisquare(each) / each


@pytest.mark.parametrize("df", [1.0, 6.0])
def test_the_prior_is_that_of_maximum_likelihood(df: float) -> None:
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


def test_equal_variances_are_pooled() -> None:
    variances, each = np.array([1.0, 2.0, 1.5]), np.array([2.0, 2.0, 4.0])
    assert variance_prior(variances, each) == VariancePrior(inf, 12 / 8, 8.0)
    pooled = moderated(variances, each, np.full(3, inf), variance_prior(variances, each))
    assert pooled.tolist() == [1.5, 2.0, 1.5]  # a row that seems noisier is not drawn down
    moderate = VariancePrior(2.0, 1.5, inf)  # rows that are known to differ are: a weight of a half
    assert moderated(variances[:2], each[:2], np.full(2, 2.0), moderate).tolist() == [1.25, 1.75]
    assert variance_prior(np.zeros(5), np.full(5, 2.0)) is NO_PRIOR and variance_prior(variances[:1], each[:1]) is NO_PRIOR
    assert moderated(variances, each, np.zeros(3), NO_PRIOR).tolist() == variances.tolist()


@pytest.mark.parametrize("count", [2, 10])
def test_two_sides_err_in_five_percent_whatever_their_noise(count: int) -> None:
    """By integration, an error of two sides is below 5.05 % at every ratio; Satterthwaite's degrees of freedom are above."""
    for ratio in (1.0, 3.0, 6.0, 10.0, 30.0):
        assert error(count, ratio, df_of_two, 500) < 0.0505
    assert error(count, 8.0, satterthwaite, 500) > 0.0503
    assert df_of_two(2.0, 0.0, count) == df_of_two(0.0, 2.0, count) == count - 1  # one side's noise is all


def test_a_row_of_another_kind_stands_for_itself() -> None:
    rng = np.random.default_rng(0)
    each = np.full(17, 2.0)
    plain = [outlying(drawn_from(inf, 0.09, each, rng), each).any() for _ in range(200)]
    assert np.mean(plain) < 0.15
    odd = np.r_[9.0, 0.09 * stats.chi2.ppf((np.arange(16) + 0.5) / 16, 2) / 2]
    assert np.flatnonzero(outlying(odd, each)).tolist() == [0]


@pytest.mark.parametrize(
    ("prior", "df"), [(VariancePrior(3.0, 2.0, inf), 5.0), (VariancePrior(inf, 2.0, 9.0), 9.0), (NO_PRIOR, 2.0)]
)
def test_what_is_redrawn_makes_a_normal_deviate_student_s(prior: VariancePrior, df: float) -> None:
    variances, each = np.array([1.0]), np.array([2.0])
    rng = np.random.default_rng(1)
    spread = redrawn(variances, each, np.full(1, prior.df), prior, 4000, rng)[0]
    expected = moderated(variances, each, np.full(1, prior.df), prior)[0]
    deviates = rng.standard_normal(4000) * np.sqrt(spread / expected)
    assert stats.kstest(deviates, stats.t(df).cdf).pvalue > 0.01


def test_two_rows_and_few_of_unequal_numbers_of_seeds_stand_for_themselves() -> None:
    for variances, df in (([1.0, 0.1], [1.0, 9.0]), ([1.0, 0.9], [2.0, 2.0]), ([1.0, 0.9, 1.1], [1.0, 2.0, 2.0])):
        prior, prior_df, outliers = prior_of_rows(np.array(variances), np.array(df))
        assert prior is NO_PRIOR and not prior_df.any() and not outliers.any()
    for variances, df in (([1.0, 0.9, 1.1], [2.0] * 3), ([1.0, 0.9, 1.1, 0.8, 1.0], [1.0, 2.0, 2.0, 2.0, 4.0])):
        prior, prior_df, _ = prior_of_rows(np.array(variances), np.array(df))
        assert isinf(prior.df) and np.isinf(prior_df).all()
