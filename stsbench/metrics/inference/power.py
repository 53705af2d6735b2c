"""The power of the test of a difference between two scores: what it can detect, and how many items that takes.

The difference is taken to be normal about the truth, with a standard error that is known (df infinite: from a bootstrap over
the items) or estimated with df degrees of freedom (over training seeds). The test is two-sided at the 5 % level. Its power
is then that of the z test, or of Student's t test (the noncentral t distribution; Cohen 1988, Statistical Power Analysis for
the Behavioral Sciences, chapter 2). The standard error shrinks with the square root of the number of items, as that of a
smooth statistic of independent items does; the part of it that is due to training seeds does not.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, inf, isinf

POWER, LEVEL = 0.8, 0.95  # what is called detectable: in 80 % of experiments, by a test at the 5 % level
_ONE_SIDED = 5.0  # standard errors: beyond, the wrong way has a probability below 3e-7, of which scipy may give NaN
_NORMAL_FROM = 1e5  # degrees of freedom: from here on Student's distribution is the normal one


def power_of(difference: float, error: float, df: float = inf) -> float:
    """The probability that a true `difference` is significant (either way): 0.05 for none, 1 at the most.

    error: the standard error of the difference, above 0 and in its unit; df: its degrees of freedom. Raises ValueError for
    an error or df that is not above 0.

    >>> from stsbench.metrics.inference.power import power_of
    >>> round(power_of(0.5, error=34 ** -0.5, df=33), 3)  # a paired t test of 34 pairs, d = .5
    0.808
    """
    _check(error, df)
    return _power(abs(difference) / error, df)


def detectable_difference(error: float, df: float = inf, power: float = POWER) -> float:
    """The minimum detectable difference: the true one that is significant with probability `power`, in the unit of `error`.

    With df infinite and power .8 it is 2.80 standard errors. Raises ValueError for an error or df that is not above 0, or a
    power that is not between .05 and 1.

    >>> from stsbench.metrics.inference.power import detectable_difference
    >>> round(detectable_difference(1.0), 3), round(detectable_difference(1.0, df=4), 3)
    (2.802, 3.761)
    """
    _check(error, df)
    return error * _standard_errors(df, power)


def error_of(error: float, n: int, items: int) -> float:
    """The standard error that `items` items have, where n of them have `error`.

    >>> from stsbench.metrics.inference.power import error_of
    >>> error_of(1.5, n=400, items=100)
    3.0
    """
    if min(n, items) < 1:
        raise ValueError(f"the number of items must be 1 or more, not {min(n, items)}")
    return float(error * (n / items) ** 0.5)


def items_needed(difference: float, error: float, n: int, power: float = POWER) -> int:
    """The fewest items with which a true `difference` is significant with probability `power`, where n have `error`.

    Raises ValueError for a difference of 0, which no number of items can show.

    >>> from stsbench.metrics.inference.power import items_needed
    >>> items_needed(1.0, error=1.2, n=1379)
    15586
    """
    if not difference:
        raise ValueError("no number of items shows a difference of 0")
    return max(1, ceil(n * (detectable_difference(error, inf, power) / difference) ** 2 - 1e-9))


def _check(error: float, df: float) -> None:
    if not error > 0 or not df > 0:
        raise ValueError(f"error and df must be above 0, not {error} and {df}")


def _power(size: float, df: float) -> float:
    """Of a difference of `size` standard errors."""
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
    """How many standard errors the minimum detectable difference is."""
    from scipy.optimize import brentq

    if not 1 - LEVEL < power < 1:
        raise ValueError(f"power must be between {1 - LEVEL:.2f} and 1, not {power}")
    high = 4.0
    while _power(high, df) < power:
        high *= 2
        if isinf(high):
            raise ValueError(f"no difference has a power of {power} with {df} degrees of freedom")
    return float(brentq(lambda size: _power(size, df) - power, 0.0, high, xtol=1e-10))
