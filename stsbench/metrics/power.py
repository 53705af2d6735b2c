"""Statistical power of the test of a difference, minimum detectable differences, and warnings on results of few items.

The difference is taken to be normal about the truth, with a standard error that is known (df infinite: from a bootstrap over
the items) or estimated with df degrees of freedom (over training seeds). The test is two-sided at the 5 % level. Its power
is then that of the z test, or of Student's t test (the noncentral t distribution; Cohen 1988, Statistical Power Analysis for
the Behavioral Sciences, chapter 2). The standard error shrinks with the square root of the number of items, as that of a
smooth statistic of independent items does; its part due to training seeds does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf, isinf

from stsbench.metrics.aggregation import FEWEST_ITEMS

POWER, LEVEL = 0.8, 0.95  # a detectable difference is significant at the 5 % level in 80 % of experiments
_ONE_SIDED = 5.0  # standard errors; beyond, a significant result of the wrong sign has p < 3e-7, and scipy may return NaN
_NORMAL_FROM = 1e5  # degrees of freedom from which Student's distribution counts as normal
WIDEST = 10.0  # points: a score whose 95 % interval is wider than +-WIDEST counts as one of few items
_NORMAL = 1.959963984540054  # half a 95 % interval, in standard errors


def difference_power(difference: float, error: float, df: float = inf) -> float:
    """Return the power: the probability that a true `difference` is significant (of either sign), 0.05 for none, at most 1.

    error: the standard error of the difference, above 0 and in its unit; df: its degrees of freedom. Raises ValueError for
    an error or df that is not above 0.

    >>> from stsbench.metrics.power import difference_power
    >>> round(difference_power(0.5, error=34 ** -0.5, df=33), 3)  # a paired t test of 34 pairs, d = .5
    0.808
    """
    _check(error, df)
    return _power(abs(difference) / error, df)


def detectable_difference(error: float, df: float = inf, power: float = POWER) -> float:
    """Return the minimum detectable difference, in the unit of `error`: a true difference of this size is significant with
    probability `power`.

    With df infinite and power .8 it is 2.80 standard errors. Raises ValueError for an error or df that is not above 0, or a
    power that is not between .05 and 1.

    >>> from stsbench.metrics.power import detectable_difference
    >>> round(detectable_difference(1.0), 3), round(detectable_difference(1.0, df=4), 3)
    (2.802, 3.761)
    """
    _check(error, df)
    return error * _standard_errors(df, power)


def _check(error: float, df: float) -> None:
    if not error > 0 or not df > 0:
        raise ValueError(f"error and df must be above 0, not {error} and {df}")


def _power(size: float, df: float) -> float:
    """Return the power for a difference of `size` standard errors."""
    from scipy import special

    tail = (1 + LEVEL) / 2
    if df >= _NORMAL_FROM:
        critical = special.ndtri(tail)
        return float(special.ndtr(size - critical) + special.ndtr(-size - critical))
    critical = special.stdtrit(df, tail)
    wrong_way = 0.0 if size > _ONE_SIDED else special.nctdtr(df, size, -critical)
    return float(1 - special.nctdtr(df, size, critical) + wrong_way)


@lru_cache(maxsize=1024)
def _standard_errors(df: float, power: float) -> float:
    """Return the minimum detectable difference in standard errors. Raises ValueError where `power` cannot be reached."""
    from scipy.optimize import brentq

    if not 1 - LEVEL < power < 1:
        raise ValueError(f"power must be between {1 - LEVEL:.2f} and 1, not {power}")
    high = 4.0
    while _power(high, df) < power:
        high *= 2
        if isinf(high):
            raise ValueError(f"no difference has a power of {power} with {df} degrees of freedom")
    return float(brentq(lambda size: _power(size, df) - power, 0.0, high, xtol=1e-10))


@dataclass(frozen=True)
class Measurement:
    """A score, or a difference between two, with its number of items and the width of its interval.

    n: items; half: half the width of its 95 % interval, None without one. points: whether the unit is points (x 100).
    """

    name: str
    n: int
    half: float | None
    points: bool = True
    digits: int = 2

    @property
    def few(self) -> bool:
        """Return whether it has fewer than 50 items, or a 95 % interval wider than +-10 points."""
        return self.n < FEWEST_ITEMS or (self.points and self.half is not None and self.half > WIDEST)


def few_items(measurements: Sequence[Measurement]) -> str:
    """Return a sentence on the measurements with few items; "" without any.

    >>> from stsbench.metrics.power import Measurement, few_items
    >>> few_items([Measurement("STS-B", 1379, 2.5)])
    ''
    >>> few_items([Measurement("mine", 12, 31.2)])
    'Few items (mine 12): the 95 % interval is ±31 points, and smaller differences would often be missed.'
    """
    few = [one for one in measurements if one.few]
    if not few:
        return ""
    sizes = f"{few[0].name} {few[0].n:,}" if len(few) == 1 else f"{len(few)} tasks of {_range([one.n for one in few], 0)}"
    halves = [one.half for one in few if one.half]  # a half of 0, where all resamples score the same, shows no precision
    if not halves:
        return f"Few items ({sizes}): differences between encoders may well be chance."
    unit, digits = (" points", int(min(halves) < 1)) if few[0].points else ("", few[0].digits)
    intervals = "interval is" if len(halves) == 1 else "intervals are"
    return (f"Few items ({sizes}): the 95 % {intervals} ±{_range(halves, digits)}{unit}, and smaller differences would "
            "often be missed.")


def _range(values: Sequence[float], digits: int) -> str:
    low, high = (f"{value:,.{digits}f}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
