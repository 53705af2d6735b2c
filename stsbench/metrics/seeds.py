"""The difference between two scores over several training seeds; and how many more seeds would settle it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import hypot, inf, sqrt

import numpy as np
from numpy.typing import NDArray

from stsbench.errors import StsbenchError
from stsbench.metrics.moderation import df_of_two
from stsbench.metrics.noise import Noise, Scores
from stsbench.metrics.paired import LEVEL, Difference, critical_value

Floats = NDArray[np.float64]
_NORMAL, _FEWEST = 1e4, 0.5  # degrees of freedom: from here on Student's distribution is the normal one; the least
POWER = 0.8
MOST = 1000  # more seeds than that are no plan
_POINTS, _OF_TWO, _DRAWN = 400, 60, 12  # quantiles that stand for a distribution, for each of two, for a variance's


@dataclass(frozen=True)
class Spread:
    """What makes the difference of two means over seeds uncertain. item_error: its standard error for the items alone.

    sds: of A's and of B's seeds, 0 for a side of one; counts: how many they are. paired: compared seed by seed; then the
    first of sds is that of the seeds' differences, and the second 0.
    """

    item_error: float
    sds: tuple[float, float]
    counts: tuple[int, int]
    paired: bool = False


def spread_of(a: Floats, b: Floats, draws_a: Floats, draws_b: Floats, *, paired: bool = False) -> Spread | None:
    """The `Spread` of what `difference_over_seeds` tests; None where fewer than two resamples have a score."""
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
    """The mean of a (n,) less that of b (m,), scores of seeds, with a 95 % interval and a test, which always agree.

    draws: (B,) of each mean over resamples of the items that both share. The noise is that of the leaderboard's ranks
    (`Noise`). paired: a and b have the same seeds, in the same order. A side of one seed has the noise of its items
    alone. With more than 5 % of resamples without a score there is no interval and no test.
    """
    value, noise, drawn = _drawn(a, b, draws_a, draws_b, paired, seed)
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
    """The difference that `difference_over_seeds` tests, and (n,) the sizes that its deviations have in n further
    experiments, in the scores' unit: n is 0 where there is no test."""
    value, noise, drawn = _drawn(a, b, draws_a, draws_b, paired, seed)
    return value, noise.bound(drawn[:, None, None])[:, 0, 1]


def _drawn(
    a: Floats, b: Floats, draws_a: Floats, draws_b: Floats, paired: bool, seed: Sequence[int]
) -> tuple[float, Noise, Floats]:
    """The difference of the means, 0 where it is rounding; its noise; and (n,) drawn statistics, none where no test is."""
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
    """Those at which Student's 97.5 % quantile is `ratio`: how many standard errors half the interval is wide. Infinite for
    the normal one's or less. What an interval over items and seeds is that of, as far as one number can say it."""
    from scipy import special

    if ratio <= special.stdtrit(_NORMAL, (1 + LEVEL) / 2):
        return inf
    return max(_FEWEST, float(special.stdtridf((1 + LEVEL) / 2, ratio)))


@dataclass(frozen=True)
class MoreSeeds:
    """How many more seeds each side of several needs until the difference would be significant at 5 % with 80 % power.

    more: with the variance over seeds as estimated, 0 where today's seeds have that power, None where `MOST` are too few;
    low, high: the same with the ends of that variance's 95 % interval. All three are None where no number suffices.
    item_error, seed_error: today's standard errors of the difference, for its items and for its seeds; power: of a test with
    today's seeds; most_power: with any number of seeds; times_items: how many times as many items as today's would be needed
    at least, 1 or less where these suffice.
    """

    more: int | None
    low: int | None
    high: int | None
    item_error: float
    seed_error: float
    power: float
    most_power: float
    times_items: float

    @property
    def settleable(self) -> bool:
        """Whether any number of seeds suffices."""
        return self.times_items < 1


def more_seeds(
    difference: float, item_error: float, sds: tuple[float, float], counts: tuple[int, int], *, paired: bool = False,
    power: float = POWER,
) -> MoreSeeds:
    """The number of seeds, as many for either side, that would show a true difference as large as `difference`.

    item_error: standard error of the difference for the items alone, in the scores' unit as all of these; sds: over the
    seeds of A and of B, 0 for a side of one seed, which is taken as it is and gets no more; paired: seeds are pairs, and
    sds[0] is that of their differences. The test is `difference_over_seeds`; how often more seeds show the difference is by
    noncentral Student's t, nearly so with three seeds or more. The interval of the variance is that of chi-square, of both
    sides together with Satterthwaite's degrees of freedom (1946, An Approximate Distribution of Estimates of Variance
    Components). Raises StsbenchError for two sides of one seed, numbers below 0, or a power outside (0, 1).

    >>> needed = more_seeds(1.0, 0.2, (0.8, 0.6), (3, 3))
    >>> needed.more, needed.low, needed.high, round(needed.power, 2)
    (10, 3, 105, 0.13)
    >>> round(more_seeds(0.5, 0.2, (0.8, 0.6), (3, 3)).times_items, 2)
    1.26
    """
    from scipy import stats

    _check(difference, item_error, sds, counts, power)
    enough = float(stats.norm.isf((1 - LEVEL) / 2) + stats.norm.ppf(power))  # standard errors
    size = abs(difference)
    several = [count > 1 for count in counts]
    variances = [sd**2 if many else 0.0 for sd, many in zip(sds, several, strict=True)]
    if paired:
        variances[1], several[1] = 0.0, False
    parts = [variance / count for variance, count in zip(variances, counts, strict=True)]
    df = _satterthwaite(parts, counts)
    times = (enough * item_error / size) ** 2 if size else inf

    def power_with(more: int, scale: float) -> float:
        sizes = [count + more if many else count for count, many in zip(counts, several, strict=True)]
        return _power(size, item_error, [scale * variance for variance in variances], sizes)

    def needed(scale: float) -> int | None:
        return _smallest(lambda more: power_with(more, scale) >= power) if times < 1 else None

    ends = (1.0, 1.0)  # times the variance of the seeds: df over the quantiles of chi-square
    if sum(parts):
        ends = (df / float(stats.chi2.ppf((1 + LEVEL) / 2, df)), df / float(stats.chi2.ppf((1 - LEVEL) / 2, df)))
    limit = float(stats.norm.cdf(size / item_error - stats.norm.isf((1 - LEVEL) / 2))) if item_error else float(size > 0)
    today = _power_now(size, item_error, parts, counts)
    return MoreSeeds(needed(1.0), needed(ends[0]), needed(ends[1]), item_error, sqrt(sum(parts)), today, limit, times)


def _check(difference: float, item_error: float, sds: tuple[float, float], counts: tuple[int, int], power: float) -> None:
    if not np.isfinite([difference, item_error, *sds]).all() or min(item_error, *sds) < 0:
        raise StsbenchError(f"more_seeds: difference={difference}, item_error={item_error}, sds={sds} must be numbers, and "
                            "errors and sds not below 0")
    if min(counts) < 1 or max(counts) < 2:
        raise StsbenchError(f"more_seeds: counts={counts} say nothing of other seeds: give two or more of a side")
    if not 0 < power < 1:
        raise StsbenchError(f"more_seeds: power={power} must lie between 0 and 1")


def _satterthwaite(parts: list[float], counts: list[int] | tuple[int, int]) -> float:
    """Degrees of freedom of the sum of (2,) squared standard errors of means over `counts` seeds."""
    doubt = sum(part**2 / (count - 1) for part, count in zip(parts, counts, strict=True) if part)
    return sum(parts) ** 2 / doubt if doubt else inf


def _power_now(size: float, item_error: float, parts: list[float], counts: tuple[int, int]) -> float:
    """Of the test with these few seeds, over all that their sample variances may be where the true ones are `parts`."""
    from scipy import stats

    error = hypot(item_error, sqrt(sum(parts)))
    if not error:
        return float(size > 0)
    at = (np.arange(_DRAWN) + 0.5) / _DRAWN
    drawn = [part * stats.chi2.ppf(at, count - 1) / (count - 1) if part else np.zeros(1)
             for part, count in zip(parts, counts, strict=True)]
    critical = np.array([_critical(item_error, [float(a), float(b)], list(counts)) for a in drawn[0] for b in drawn[1]])
    return float(np.mean(stats.norm.sf((critical - size) / error) + stats.norm.sf((critical + size) / error)))


def _power(size: float, item_error: float, variances: list[float], counts: list[int]) -> float:
    """Of the test where the seeds' sample variances are as large as these: Student's t, noncentral."""
    from scipy import stats

    parts = [variance / count for variance, count in zip(variances, counts, strict=True)]
    error = hypot(item_error, sqrt(sum(parts)))
    if not error:
        return float(size > 0)
    critical = _critical(item_error, parts, counts)
    doubt = sum(part**2 / (count - 1) for part, count in zip(parts, counts, strict=True) if part)
    if not doubt:
        return float(stats.norm.sf(critical / error - size / error))
    return float(stats.nct.sf(critical / error, error**4 / doubt, size / error))


def _critical(item_error: float, parts: list[float], counts: list[int]) -> float:
    """What a difference must exceed, by the distributions that `Noise` draws from."""
    from scipy import optimize, stats

    at = (np.arange(_POINTS) + 0.5) / _POINTS
    random = [(sqrt(part), count) for part, count in zip(parts, counts, strict=True) if part]
    if len(random) == 2 and counts[0] == counts[1]:
        df = df_of_two(parts[0], parts[1], counts[0])
        deviations = sqrt(sum(parts)) * stats.t.ppf(at, df)
    else:
        at = (np.arange(_OF_TWO) + 0.5) / _OF_TWO if len(random) == 2 else at
        drawn = [error * stats.t.ppf(at, count - 1) for error, count in random] or [np.zeros(1)]
        deviations = drawn[0] if len(drawn) == 1 else np.add.outer(drawn[0], drawn[1]).ravel()
    if not item_error:
        return float(np.quantile(np.abs(deviations), LEVEL))

    def beyond(limit: float) -> float:
        return float(np.mean(2 * stats.norm.sf((limit - deviations) / item_error))) - (1 - LEVEL)

    highest = float(np.abs(deviations).max()) + 10 * item_error
    return float(optimize.brentq(beyond, 0.0, highest, xtol=1e-6 * highest))


def _smallest(enough: Callable[[int], bool]) -> int | None:
    """The smallest number from 0 to `MOST` that is enough, where all above it are; None where none is."""
    if not enough(MOST):
        return None
    low, high = -1, MOST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
