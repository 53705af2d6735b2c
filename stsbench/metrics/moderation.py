"""Empirical Bayes moderation of sample variances, each of few seeds (Smyth 2004, Linear Models and Empirical Bayes Methods
for Assessing Differential Expression in Microarray Experiments; the `limma` package)."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isinf

import numpy as np
from numpy.typing import NDArray

from stsbench.metrics.paired import LEVEL

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
_OTHERS = 4  # the fewest variances that another can be an outlier of
_FLOOR = 1e-5  # times the median: the least value that a variance counts with, as in limma


@dataclass(frozen=True)
class VariancePrior:
    """The prior distribution of the rows' true variances: variance * df / chi-square(df), independent of each other.

    df: inf where all are equal, 0 where nothing is known of them. certainty: degrees of freedom of `variance`, which is an
    estimate itself: its true value is distributed as variance * certainty / chi-square(certainty).
    """

    df: float
    variance: float
    certainty: float


NO_PRIOR = VariancePrior(0.0, 0.0, inf)


def variance_prior(variances: Floats, df: Floats, independent: int | None = None) -> VariancePrior:
    """Return the prior of (r,) sample variances with (r,) degrees of freedom each, by Smyth's equations of section 6.2.

    The prior's df and variance are solved from the mean and the variance of the logarithms of the variances; where these
    vary no more than by chance, df is inf, and variance their pooled mean. independent: the number of independent
    variances, by default all. `NO_PRIOR` for fewer than two, or where more than half of the variances are 0.
    """
    from scipy.special import digamma, polygamma

    independent = len(variances) if independent is None else independent
    if independent < 2 or np.median(variances) <= 0:
        return NO_PRIOR
    half = df / 2
    logs = np.log(np.maximum(variances, _FLOOR * np.median(variances))) - digamma(half) + np.log(half)
    noise = float(np.mean(polygamma(1, half)))
    excess = float(np.var(logs, ddof=1)) - noise
    if excess <= 0 or isinf(twice := 2 * inverse_trigamma(excess)):
        return VariancePrior(inf, float(np.average(variances, weights=df)), float(np.mean(df)) * independent)
    variance = float(np.exp(np.mean(logs) + digamma(twice / 2) - np.log(twice / 2)))
    return VariancePrior(twice, variance, 2 * inverse_trigamma((noise + excess) / independent))


def outlying(variances: Floats, df: Floats) -> Bools:
    """Return bool (r,): which variances are too large for the prior of the others, and must not be moderated by it.

    From the largest on, each is compared with the prior of those below it (an F test at 5 % for all of them together),
    until one is not too large. Without this, a row that is ten times as noisy as the others differs from them significantly
    too often (cf. Phipson et al. 2016, Robust Hyperparameter Estimation). With 5 % for each test, intervals of differences
    would be a fifth wider among 17 equally noisy rows and more than half among 50.
    """
    from scipy import stats

    result = np.zeros(len(variances), dtype=np.bool_)
    order = np.argsort(-variances, kind="stable")
    for number, row in enumerate(order):
        rest = order[number + 1 :]
        prior = variance_prior(variances[rest], df[rest])
        if len(rest) < _OTHERS or prior is NO_PRIOR:
            break
        certainty = prior.certainty if isinf(prior.df) else prior.df
        if stats.f.sf(variances[row] / prior.variance, df[row], certainty) >= (1 - LEVEL) / len(variances):
            break
        result[row] = True
    return result


def prior_of_rows(variances: Floats, df: Floats) -> tuple[VariancePrior, Floats, Bools]:
    """Return the prior of (r,) sample variances with (r,) degrees of freedom; its df for each row, 0 for a row that is not
    moderated; and bool (r,), which rows are `outlying`. Outlying rows are not moderated.

    No row is moderated where there are two, or few with unequal numbers of seeds. Pooled, a noisy row of few seeds would
    count as no noisier than one of many: two rows of 2 and 10 seeds would differ significantly by chance in up to 19 %
    instead of 5, two of 2 and 2 in 9 %. Without moderation, the test is Behrens and Fisher's, which errs in less than 5 %.
    """
    outliers = outlying(variances, df)
    if len(variances) <= 2 or (len(variances) <= _OTHERS and len(np.unique(df)) > 1):
        return NO_PRIOR, np.zeros(len(df)), outliers
    prior = variance_prior(variances[~outliers], df[~outliers])
    return prior, np.where(outliers, 0.0, prior.df), outliers


def moderated(variances: Floats, df: Floats, prior_df: Floats, prior: VariancePrior) -> Floats:
    """Return moderated variances: means of each variance and the prior's, weighted by their degrees of freedom, but never
    less than the variance itself times the prior's weight.

    Where the prior's weight is near 1, since the rows seem equally noisy, limma reduces every variance to the prior's: among
    17 rows of three seeds, one three times as noisy makes the joint test err in 7 to 12 % instead of 5. With the bound, such
    a row keeps its own variance (docs/findings/statistics.md). The bound has no effect up to a weight of a half.
    prior_df: the prior's df for each variance, 0 for one that is not moderated. All arrays have one shape.
    """
    share = prior_share(df, prior_df)
    return np.asarray(np.maximum(share * prior.variance + (1 - share) * variances, share * variances))


def redrawn(
    variances: Floats, df: Floats, prior_df: Floats, prior: VariancePrior, draws: int, rng: np.random.Generator
) -> Floats:
    """Return (r, draws) draws of the true variances of r rows, given their sample variances and the prior.

    The prior's variance is drawn, too: where the seeds are noisy, a test that ignores its uncertainty errs in 6.5 % instead
    of 5 % (17 rows of three seeds).
    """
    share, total = prior_share(df, prior_df)[:, None], (df + prior_df)[:, None]
    of_row = variances[:, None]
    scale = np.maximum(share * redrawn_prior(prior, draws, rng) + (1 - share) * of_row, share * of_row)
    finite = np.where(np.isinf(total), 1.0, total)
    spread = rng.chisquare(np.broadcast_to(finite, scale.shape)) / finite
    return np.asarray(scale / np.where(np.isinf(total), 1.0, spread))


def redrawn_prior(prior: VariancePrior, draws: int, rng: np.random.Generator) -> Floats:
    """Return (draws,) draws of the prior's variance, scaled inverse chi-square; equal where its certainty is infinite."""
    if isinf(prior.certainty):
        return np.full(draws, prior.variance)
    return np.asarray(prior.variance * prior.certainty / rng.chisquare(prior.certainty, draws))


def prior_share(df: Floats, prior_df: Floats) -> Floats:
    """Return the prior's weight in each moderated variance, 0 to 1, of the shape of `df` and `prior_df`."""
    certain = np.isinf(prior_df)
    finite = np.where(certain, 1.0, prior_df)
    return np.where(certain, 1.0, finite / (finite + df))


def df_of_two(first: float, second: float, count: int) -> float:
    """Return Student's degrees of freedom of the difference between two means of `count` >= 2 seeds each, for a test that
    errs in 5 % whatever the ratio of the two variances (5.04 % at most, by integration; benchmarks/two_sides.py).

    first, second: the squared standard errors of the two means, not both 0. Satterthwaite's degrees of freedom err in up to
    6.4 % with two seeds a side, 5.9 with three, 5.4 with five. With count - 1 a test cannot err in more than 5 % (Hsu 1938,
    Contribution to the Theory of Student's t Test as Applied to the Problem of Two Samples; Mickey & Brown 1966, Bounds on
    the Distribution Functions of the Behrens-Fisher Statistic), but is needlessly wide where there are more than two seeds.
    The result therefore lies 1 - 2 / count of the way from count - 1 to Satterthwaite's.

    >>> df_of_two(1.0, 5.0, 2), round(df_of_two(1.0, 1.0, 3), 2), round(df_of_two(1.0, 1.0, 10), 2)
    (1.0, 2.67, 16.2)
    """
    share = first / (first + second)
    least = count - 1
    satterthwaite = least / (share**2 + (1 - share) ** 2)
    return least + (1 - 2 / count) * (satterthwaite - least)


def inverse_trigamma(value: float) -> float:
    """Return x > 0 with trigamma(x) = value > 0, by Newton's method on 1 / trigamma, which is nearly linear (Smyth 2004,
    appendix); inf where the value is so small that x would exceed 5 million.
    """
    from scipy.special import polygamma

    if value < 2e-7:
        return inf
    if value > 1e7:
        return float(1 / np.sqrt(value))
    x = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(polygamma(1, x))
        step = trigamma * (1 - trigamma / value) / float(polygamma(2, x))
        x += step
        if -step / x < 1e-10:  # x converges from below: a step down is only rounding
            break
    return x
