"""Which results are of few items, by one rule, and the sentence that says so below every table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stsbench.metrics.aggregation import FEWEST_ITEMS
from stsbench.metrics.inference.field import typical_ratio
from stsbench.metrics.inference.power import detectable_difference
from stsbench.wording import counted

WIDEST = 10.0  # points that half a 95 % interval may be wide before something is said
_LISTED = 8  # names that a sentence holds
_NORMAL = 1.959963984540054  # half a 95 % interval, in standard errors


@dataclass(frozen=True)
class Measurement:
    """A score, or a difference between two, as the rule reads it.

    n: items; half: half the width of its 95 % interval, None without one; detectable: the minimum detectable difference,
    None where it is not known: then `likely_detectable` of the interval. points: whether the unit is points (x 100).
    """

    name: str
    n: int
    half: float | None
    detectable: float | None = None
    points: bool = True
    digits: int = 2

    @property
    def few(self) -> bool:
        """Whether it has fewer than 50 items, or a 95 % interval that reaches more than 10 points either way."""
        return self.n < FEWEST_ITEMS or (self.points and self.half is not None and self.half > WIDEST)


def likely_detectable(half: float) -> float:
    """The difference from another encoder on the same items that is detectable (80 % power, 5 % level), by `half` the width
    of one score's 95 % interval, in its unit.

    The rival is taken to share as much of the noise as two rows of the leaderboard usually do (`typical_ratio`).
    """
    return detectable_difference(half / _NORMAL * typical_ratio())


def few_items(measurements: Sequence[Measurement], *, differences: bool = False) -> str:
    """The sentence on those that are of few items; "" where none is. differences: whether they are of two encoders.

    >>> from stsbench.metrics.inference.few_items import Measurement, few_items
    >>> few_items([Measurement("STS-B", 1379, 2.5)])
    ''
    >>> few_items([Measurement("mine", 12, 31.2, detectable=44.6)], differences=True)
    'Few items (mine 12): the 95 % interval is ±31 points; a difference of less than 45 points would often be missed.'
    """
    few = [one for one in measurements if one.few]
    if not few:
        return ""
    sizes = ", ".join(f"{one.name} {one.n:,}" for one in few[:_LISTED])
    more = f" and {counted(len(few) - _LISTED, 'other')}" if len(few) > _LISTED else ""
    known = [(one, one.half) for one in few if one.half]  # 0: every resample scores the same, which says nothing
    if not known:
        return f"Few items ({sizes}{more}): differences between encoders may well be chance."
    unit, digits = (" points", 0) if known[0][0].points else ("", known[0][0].digits)
    reach = [(half, one.detectable if differences and one.detectable else likely_detectable(half)) for one, half in known]
    halves, least = zip(*reach, strict=True)
    intervals = "interval is" if len(known) == 1 else "intervals are"
    whom = "" if differences else " from another encoder"
    return (f"Few items ({sizes}{more}): the 95 % {intervals} ±{_range(halves, digits)}{unit}; a difference{whom} of less "
            f"than {_range(least, digits)}{unit} would often be missed.")


def _range(values: Sequence[float], digits: int) -> str:
    low, high = (f"{value:.{digits}f}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
