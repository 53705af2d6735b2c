"""The difference between two scores over several training seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from stsbench.metrics.noise import Noise, Scores
from stsbench.metrics.paired import LEVEL, Difference, critical_value

Floats = NDArray[np.float64]
_NORMAL, _FEWEST = 1e4, 0.5  # degrees of freedom: from here on Student's distribution is the normal one; the least


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


def difference_spread(a: Floats, b: Floats, draws_a: Floats, draws_b: Floats, *, paired: bool = False) -> Spread | None:
    """Return the `Spread` of what `difference_over_seeds` tests; None where fewer than two resamples have a score."""
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
    (`Noise`). paired: a and b have the same seeds, in the same order. A side of one seed has the noise of its items
    alone. With more than 5 % of resamples without a score there is no interval and no test.
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
    """Return the difference that `difference_over_seeds` tests, and (n,) the sizes that its deviations have in n further
    experiments, in the scores' unit: n is 0 where there is no test."""
    value, noise, drawn = _draw(a, b, draws_a, draws_b, paired, seed)
    return value, noise.bound(drawn[:, None, None])[:, 0, 1]


def _draw(
    a: Floats, b: Floats, draws_a: Floats, draws_b: Floats, paired: bool, seed: Sequence[int]
) -> tuple[float, Noise, Floats]:
    """Return the difference of the means, 0 where it is rounding; its noise; and (n,) drawn statistics, none where no
    test is."""
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
    errors: at least _FEWEST, and infinite up to the normal quantile."""
    from scipy import special

    if ratio <= special.stdtrit(_NORMAL, (1 + LEVEL) / 2):
        return inf
    return max(_FEWEST, float(special.stdtridf((1 + LEVEL) / 2, ratio)))
