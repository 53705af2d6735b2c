"""Noise of differences between scores, from the test items and from the training seeds; and intervals and tests of the
difference between two scores over several seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isinf, sqrt

import numpy as np
from numpy.typing import NDArray

from stsbench.metrics.bootstrap import ROUNDING
from stsbench.metrics.moderation import (
    df_of_two,
    moderated,
    prior_of_rows,
    prior_share,
    redrawn,
    redrawn_prior,
    variance_prior,
)
from stsbench.metrics.paired import LEVEL, Difference, critical_value

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_FARTHEST, _POINTS = 8.0, 4001  # range and points of the table that maps normal deviates to Student's
_TAIL = 0.995  # the quantile at which the tails of distributions are compared
_NORMAL, _FEWEST = 1e4, 0.5  # degrees of freedom: the number from which Student's distribution counts as normal; the least
_SMALL = 1e-6  # a variance of a difference below this share of the rows' variances lost its digits, and is summed again


@dataclass(frozen=True)
class Scores:
    """Scores of r rows (encoders). values: (r,), each the mean over its seeds; draws: (r, b) of these means over b resamples
    of the items that all rows share; seeds: for each row the scores of its seeds, at most one where others are not known.

    groups: (r,), rows with equal numbers, 0 or above, have the same seeds in the same order, and are compared by seed.
    """

    values: Floats
    draws: Floats
    seeds: Sequence[Floats] = ()
    groups: Ints | None = None


class Noise:
    """Standard errors of all differences between `scores`, and draws of their deviations in further experiments.

    A deviation is that of a bootstrap over the items plus, for rows of several seeds, one of Student's t: the variance over
    seeds is moderated over the rows and drawn from its posterior. The difference of two rows with equally many seeds, where
    no third row has several, deviates by Student's t with `df_of_two`. A resample in which any score is NaN is left out for
    all rows.

    Differences that seeds make uncertain have longer tails than others. Each is measured in standard errors that are
    stretched by the ratio of Student's quantile to the normal one, so that no pair's tails set the critical value of all.
    size: smaller differences are rounding; errors: (r, r) the stretched standard errors, in the scores' unit."""

    def __init__(self, scores: Scores, rng: np.random.Generator) -> None:
        draws = scores.draws[:, np.isfinite(scores.draws).all(axis=0)]
        self.values, self.draws = scores.values, draws.shape[1]
        largest = float(np.abs(draws).max()) if draws.size else 0.0
        self.size = max(float(np.abs(scores.values).max(initial=0.0)), largest) * ROUNDING
        self._items = self._both = draws - scores.values[:, None]  # deviations due to items; due to items and seeds
        counts = np.array([len(seeds) for seeds in scores.seeds] or [0] * len(scores.values))
        self._groups = np.where(counts > 1, -1 if scores.groups is None else scores.groups, -1)
        # Of each difference: its variance due to seeds, and the sum of the two rows' parts of it, each divided by its df.
        between, doubt = (np.zeros((len(counts), len(counts))) for _ in range(2))
        several = np.flatnonzero(counts > 1)
        self._two: _TwoRows | None = None
        if len(several):
            from scipy import stats

            n = counts[several].astype(np.float64)
            variances = np.array([np.var(scores.seeds[int(i)], ddof=1) for i in several])
            prior, prior_df, outliers = prior_of_rows(variances, n - 1)
            errors = np.zeros(len(counts))
            errors[several] = moderated(variances, n - 1, prior_df, prior) / n
            between = errors[:, None] + errors
            doubts = np.zeros(len(counts))
            doubts[several] = errors[several] / (n - 1 + prior_df)
            doubt = doubts[:, None] + doubts
            normal = np.zeros(self._items.shape)
            normal[several] = rng.standard_normal((len(several), self.draws))
            if len(counts) == 2 and self._groups[0] == self._groups[1] >= 0:
                # Only the difference of two paired rows matters: divided by the root of 2, it takes every quantile of the
                # normal distribution once, in random order. Random deviates would change p and intervals by several %.
                quantiles = stats.norm.ppf((np.arange(self.draws) + 0.5) / max(self.draws, 1))
                deviates = rng.permutation(quantiles) / np.sqrt(2)
                normal = np.stack([deviates, -deviates])
            spread = redrawn(variances, n - 1, prior_df, prior, self.draws, rng)
            self._both = self._items.copy()
            self._both[several] += normal[several] * np.sqrt(spread / n[:, None])
            self._paired = _PairedSeeds(scores.seeds, self._groups, several[outliers], normal, rng)
            self._paired.fill(between, doubt)
            if _TwoRows.fits(several, counts, self._groups) and errors.any():
                self._two = _TwoRows(several, errors, int(n[0]), self.draws, rng)
                self._two.fill(doubt)
        of_items = _difference_variances(self._items)
        variances = of_items + between
        self._share = np.divide(of_items, variances, out=np.zeros_like(variances), where=variances > 0)
        self.errors = np.sqrt(variances) * _stretched(variances, doubt)
        self._variances = variances

    def error(self, first: int, second: int) -> float:
        """Return the standard error of the difference between two rows, not stretched; 0 where it is only rounding."""
        error = sqrt(self._variances[first, second])
        return error if error > self.size else 0.0

    def deviations(self, first: Ints, second: Ints) -> Floats:
        """Return (p, draws) deviations of the differences between rows `first` (p,), or one row, and rows `second` (p,), in
        the scores' unit."""
        deviations = self._both[second]
        np.subtract(self._both[first], deviations, out=deviations)
        groups = self._groups[first]
        paired = np.flatnonzero((groups >= 0) & (groups == self._groups[second]) & (first != second))
        if len(paired):
            a, b = np.broadcast_to(first, second.shape)[paired], second[paired]
            deviations[paired] = self._items[a] - self._items[b] + self._paired.deviations(a, b)
        if self._two is not None:
            for at, sign in self._two.pairs(first, second):
                i, j = self._two.rows[::sign]
                deviations[at] = self._items[i] - self._items[j] + sign * self._two.drawn
        return np.asarray(deviations)

    def statistics(self) -> Floats:
        """Return (r, r) absolute differences in standard errors; inf for one that is equal in every draw, and not rounding.

        They are slightly reduced, as drawn differences are too small in units of a standard error that they contribute to
        (they are not externally studentised). Without this, tests of 50 rows would err in 5.6 % instead of 5, with 1000
        draws.
        """
        sizes = np.abs(self.values[:, None] - self.values)
        certain = np.where(sizes > self.size, np.inf, 0.0)
        ratios = np.divide(sizes, self.errors, out=certain, where=self.errors > self.size)
        finite = np.where(np.isinf(ratios), 0.0, ratios)
        return np.asarray(ratios * np.sqrt((self.draws - 1) / (self.draws - 1 + self._share * (finite**2 - 1))))

    def bound(self, critical: float | Floats) -> Floats:
        """Return (r, r) the differences, in the scores' unit, with the statistic `critical`, one number or (r, r)."""
        left = self.draws - 1 - self._share
        right = np.maximum(self.draws - 1 - self._share * critical**2, 1.0)
        return np.asarray(self.errors * critical * np.sqrt(left / right))

    def drawn(self, first: Ints, second: Ints) -> Floats:
        """Return (p, draws) draws of `statistics` under the null hypothesis that the rows do not differ; 0 where the
        difference is the same in every draw."""
        errors = self.errors[first, second]
        drawn = self.deviations(first, second)
        np.abs(drawn, out=drawn)
        drawn *= np.divide(1.0, errors, out=np.zeros_like(errors), where=errors > self.size)[:, None]
        return drawn


def _stretched(variances: Floats, doubt: Floats) -> Floats:
    """Return the ratio of Student's quantile to the normal one, at the harmonic mean of the degrees of freedom of the parts
    of the variances, weighted by the parts. doubt: the sum of the parts, each divided by its degrees of freedom."""
    from scipy import stats

    share = np.divide(doubt, variances, out=np.zeros_like(doubt), where=variances > 0)  # 1 / df
    at = np.linspace(0, max(1.0, float(share.max(initial=0.0))), _POINTS)
    known = np.r_[1.0, stats.t.ppf(_TAIL, 1 / at[1:]) / stats.norm.ppf(_TAIL)]
    return np.asarray(np.interp(share, at, known))


def _difference_variances(deviations: Floats) -> Floats:
    """Return (r, r) variances of the differences between rows of (r, b) deviations; 0 for fewer than two draws."""
    rows, draws = deviations.shape
    if draws < 2:
        return np.zeros((rows, rows))
    centred = deviations - deviations.mean(axis=1, keepdims=True)
    products = centred @ centred.T
    total = products.diagonal()[:, None] + products.diagonal()
    variances = total - 2 * products
    for i, j in np.argwhere(np.triu(variances <= _SMALL * total, 1)):
        variances[i, j] = variances[j, i] = float(np.sum((centred[i] - centred[j]) ** 2))
    np.fill_diagonal(variances, 0.0)
    return np.asarray(np.maximum(variances, 0.0) / (draws - 1))


class _TwoRows:
    """Deviations of the difference between the only two rows of several seeds, equally many each and not paired."""

    def __init__(self, rows: Ints, errors: Floats, count: int, draws: int, rng: np.random.Generator) -> None:
        """Draw the deviations. rows: (2,); errors: (r,) squared standard errors of the means over `count` seeds."""
        from scipy import stats

        self.rows = rows
        one, other = errors[rows]
        self._variance, self._df = float(one + other), df_of_two(float(one), float(other), count)
        # Every quantile once, in random order: with one degree of freedom, random deviates would change p by several %.
        deviates = stats.t.ppf((np.arange(draws) + 0.5) / max(draws, 1), self._df)
        self.drawn = np.sqrt(self._variance) * rng.permutation(deviates)

    @staticmethod
    def fits(rows: Ints, counts: Ints, groups: Ints) -> bool:
        """Return whether the rows of several seeds are two, with equal counts, not paired. counts, groups: (r,) of all."""
        if len(rows) != 2 or counts[rows[0]] != counts[rows[1]]:
            return False
        return bool(groups[rows[0]] != groups[rows[1]] or groups[rows[0]] < 0)

    def fill(self, doubt: Floats) -> None:
        """Write the variance of the difference, divided by its degrees of freedom, into (r, r) `doubt`."""
        i, j = self.rows
        doubt[i, j] = doubt[j, i] = self._variance / self._df

    def pairs(self, one: Ints, second: Ints) -> list[tuple[int, int]]:
        """Return the indices of these two rows among the pairs of `Noise.deviations`, each with 1, or -1 if reversed."""
        first, signs = np.broadcast_to(one, second.shape), (1, -1)
        at = [np.flatnonzero((first == self.rows[::sign][0]) & (second == self.rows[::sign][1])) for sign in signs]
        return [(int(index), sign) for sign, some in zip(signs, at, strict=True) for index in some]


class _PairedSeeds:
    """Differences by seed between rows of one group: their variances, moderated over all these pairs, and deviations."""

    def __init__(
        self, seeds: Sequence[Floats], groups: Ints, single: Ints, normal: Floats, rng: np.random.Generator
    ) -> None:
        """Estimate the variances of pairs and their prior. normal: (r, draws) normal deviates of each row; that of a pair is
        the difference of its rows', scaled to unit variance.

        single: rows whose variances are not moderated.
        """
        self._normal = normal
        self._variances, self._df, self._prior_df = (np.zeros((len(groups), len(groups))) for _ in range(3))
        by_group = [np.flatnonzero(groups == group) for group in np.unique(groups[groups >= 0])]
        self._blocks = [np.ix_(members, members) for members in by_group if len(members) > 1]
        for rows, block in zip([members for members in by_group if len(members) > 1], self._blocks, strict=True):
            scores = np.stack([seeds[int(i)] for i in rows])
            centred = scores - scores.mean(axis=1, keepdims=True)
            squares = np.sum([(column[:, None] - column) ** 2 for column in centred.T], axis=0)
            self._df[block] = scores.shape[1] - 1
            self._variances[block] = squares / (scores.shape[1] - 1)
        usual = np.triu(self._df > 0, 1)
        usual[single] = usual[:, single] = False
        # Not all pairs are independent: a group of n rows has n - 1 independent differences.
        free = [len(set(members) - set(single)) for members in by_group]
        independent = sum(max(count - 1, 0) for count in free)
        self._prior = variance_prior(self._variances[usual], self._df[usual], independent if independent >= 4 else 0)
        self._prior_df[usual | usual.T] = self._prior.df
        self._centre = redrawn_prior(self._prior, normal.shape[1], rng)
        self._grid = np.linspace(0, _FARTHEST, _POINTS)
        totals = np.unique((self._df + self._prior_df)[self._df > 0])
        self._tables = {float(total): self._student(float(total)) for total in totals}

    def _student(self, df: float) -> Floats:
        from scipy import stats

        return self._grid if isinf(df) else np.asarray(stats.t.isf(stats.norm.sf(self._grid), df))

    def fill(self, between: Floats, doubt: Floats) -> None:
        """Write the variances of the paired differences of means into (r, r) `between`, and divided by df into `doubt`."""
        for block in self._blocks:
            df, prior_df = self._df[block], self._prior_df[block]
            between[block] = moderated(self._variances[block], df, prior_df, self._prior) / (df + 1)
            doubt[block] = between[block] / (df + prior_df)

    def deviations(self, first: Ints, second: Ints) -> Floats:
        """Return (p, draws) deviations of the differences of means: the normal deviates mapped to the same quantile of
        Student's t (a Gaussian copula)."""
        df, prior_df = self._df[first, second], self._prior_df[first, second]
        normal = (self._normal[first] - self._normal[second]) / np.sqrt(2)
        deviates = np.empty_like(normal)
        for total, table in self._tables.items():
            same = df + prior_df == total
            deviates[same] = np.copysign(np.interp(np.abs(normal[same]), self._grid, table), normal[same])
        share = prior_share(df, prior_df)[:, None]
        variances = self._variances[first, second][:, None]
        scale = np.maximum(share * self._centre + (1 - share) * variances, share * variances)
        return np.asarray(deviates * np.sqrt(scale / (df + 1)[:, None]))


@dataclass(frozen=True)
class Spread:
    """Sources of the uncertainty of a difference of two means over seeds. item_error: its standard error due to the items.

    sds: standard deviations over A's and B's seeds, 0 for a side of one seed; counts: numbers of seeds. paired: compared by
    seed; the first of sds is then that of the seeds' differences, and the second 0.
    """

    item_error: float
    sds: tuple[float, float]
    counts: tuple[int, int]
    paired: bool = False


def difference_spread(a: Floats, b: Floats, draws_a: Floats, draws_b: Floats, *, paired: bool = False) -> Spread | None:
    """Return the `Spread` of the difference that `difference_over_seeds` tests; None for fewer than two finite draws."""
    drawn = draws_a - draws_b
    drawn = drawn[np.isfinite(drawn)]
    if len(drawn) < 2:
        return None
    several = (a - b, np.zeros(1)) if paired else (a, b)
    one, other = (float(np.std(seeds, ddof=1)) if len(seeds) > 1 else 0.0 for seeds in several)
    return Spread(float(np.std(drawn, ddof=1)), (one, other), (len(a), len(b)), paired)


def difference_over_seeds(
    a: Floats, b: Floats, draws_a: Floats, draws_b: Floats, *, paired: bool = False, seed: Sequence[int] = (0,)
) -> Difference:
    """Return the mean of a (n,) less that of b (m,), scores of seeds, with a 95 % interval and a test, which always agree.

    draws: (B,) of each mean over resamples of the items that both share. The noise is that of the leaderboard's ranks
    (`Noise`). paired: a and b have the same seeds, in the same order. seed: of the random draws. For a side of one seed,
    only the noise of items counts. Where more than 5 % of resamples have no score, there is no interval and no test.
    """
    value, noise, drawn = _draw(a, b, draws_a, draws_b, paired, seed)
    critical = critical_value(drawn)
    if critical == inf:
        return Difference(value)
    half = float(noise.bound(critical)[0, 1])
    p = (1 + int(np.count_nonzero(drawn >= noise.statistics()[0, 1]))) / (noise.draws + 1)
    error = noise.error(0, 1)
    df = degrees_of_freedom(half / error) if error and max(len(a), len(b)) > 1 else inf
    return Difference(value, value - half, value + half, p, error or None, df)


def deviations_over_seeds(
    a: Floats, b: Floats, draws_a: Floats, draws_b: Floats, *, paired: bool = False, seed: Sequence[int] = (0,)
) -> tuple[float, Floats]:
    """Return the difference that `difference_over_seeds` tests, and (n,) absolute deviations of it in n further experiments,
    in the scores' unit; n is 0 where there is no test."""
    value, noise, drawn = _draw(a, b, draws_a, draws_b, paired, seed)
    return value, noise.bound(drawn[:, None, None])[:, 0, 1]


def _draw(
    a: Floats, b: Floats, draws_a: Floats, draws_b: Floats, paired: bool, seed: Sequence[int]
) -> tuple[float, Noise, Floats]:
    """Return the difference of the means, 0 where it is only rounding; its noise; and (n,) drawn statistics, n = 0 without a
    test."""
    values = np.array([a.mean(), b.mean()])
    draws = np.stack([draws_a, draws_b])
    groups = np.zeros(2, dtype=np.int64) if paired else None
    noise = Noise(Scores(values, draws, [a, b], groups), np.random.default_rng(seed))
    value = float(values[0] - values[1])
    value = 0.0 if abs(value) <= noise.size else value
    if not noise.draws or noise.draws < LEVEL * draws.shape[1]:
        return value, noise, np.zeros(0)
    return value, noise, noise.drawn(np.asarray(0), np.array([1]))[0]


def degrees_of_freedom(ratio: float) -> float:
    """Return the degrees of freedom at which Student's 97.5 % quantile is `ratio`, half an interval's width in standard
    errors; at least _FEWEST, and infinite for a ratio up to the normal quantile."""
    from scipy import special

    if ratio <= special.stdtrit(_NORMAL, (1 + LEVEL) / 2):
        return inf
    return max(_FEWEST, float(special.stdtridf((1 + LEVEL) / 2, ratio)))
