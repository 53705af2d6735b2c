"""Equivalence tests: two one-sided tests (TOST) of whether two scores differ by less than a margin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stsbench.errors import StsbenchError
from stsbench.metrics.noise import deviations_over_seeds
from stsbench.metrics.paired import LEVEL, critical_value, paired_deviations

Floats = NDArray[np.float64]
Verdict = Literal["different", "practically equal", "different, yet within", "undecided"]


@dataclass(frozen=True)
class Equivalence:
    """The two one-sided tests (TOST) of a difference against a margin, both in the scores' unit.

    low, high: the difference's 90 % interval; p_low: p of a true difference of -margin or less; p_high: of margin or more.
    """

    margin: float
    low: float
    high: float
    p_low: float
    p_high: float

    @property
    def p(self) -> float:
        """Return the p-value of a true difference of the margin or more in either direction, the larger of the two. It is
        below 5 % exactly where the 90 % interval lies inside the margin."""
        return max(self.p_low, self.p_high)


def equivalence(
    value_a: float, value_b: float, draws_a: ArrayLike, draws_b: ArrayLike, margin: float
) -> Equivalence | None:
    """Return the TOST of two scores over the same items (Schuirmann 1987, A Comparison of the Two One-Sided Tests Procedure
    and the Power Approach for Assessing the Equivalence of Average Bioavailability), with the bootstrap deviations of
    `metrics.paired.paired_difference`.

    draws: (B,) of each score over the same resamples; margin: above 0, in the scores' unit. None where there is no test:
    fewer than 20 resamples, or more than 5 % of them without a score. Raises StsbenchError for any other margin.

    >>> import numpy as np
    >>> from stsbench.metrics.equivalence import equivalence
    >>> a, b = np.random.default_rng(0).normal([[79.0], [78.9]], 0.1, (2, 999))
    >>> test = equivalence(79.0, 78.9, a, b, margin=0.5)
    >>> round(test.low, 2), round(test.high, 2), test.p < 0.05
    (-0.13, 0.33, True)
    """
    return from_deviations(*paired_deviations(value_a, value_b, draws_a, draws_b), margin)


def equivalence_over_seeds(
    a: Floats, b: Floats, draws_a: Floats, draws_b: Floats, margin: float, *, paired: bool = False,
    seed: Sequence[int] = (0,),
) -> Equivalence | None:
    """Return the TOST of the means of a (n,) and b (m,), scores of training seeds, with the noise of
    `metrics.noise.difference_over_seeds`: a bootstrap over items, and Student's t for the seeds.

    draws: (B,) of each mean over the same resamples; paired: a and b have the same seeds, in the same order; seed: of the
    random draws of the variance over seeds. None where there is no test.
    """
    return from_deviations(*deviations_over_seeds(a, b, draws_a, draws_b, paired=paired, seed=seed), margin)


def from_deviations(value: float, deviations: Floats, margin: float) -> Equivalence | None:
    """Return the TOST of a difference `value` whose absolute deviations from the truth are distributed as (n,) `deviations`.

    Where `value` is inside of a bound, its one-sided p is half the two-sided p of its distance from the bound, (1 +
    #{deviations >= |value +- margin|}) / (n + 1), and else 1 less that half. None for fewer than 20 deviations.
    """
    if not 0 < margin < inf:
        raise StsbenchError(f"margin={margin}: not a finite number above 0, in the scores' unit")
    half = critical_value(deviations, 2 * LEVEL - 1)
    if critical_value(deviations) == inf:
        return None

    def one_sided(inside: float) -> float:
        """Return the p-value of one bound. inside: distance of the difference from it, negative outside of the margin."""
        both = (1 + int(np.count_nonzero(deviations >= abs(inside)))) / (len(deviations) + 1)
        return both / 2 if inside > 0 else 1 - both / 2

    return Equivalence(margin, value - half, value + half, one_sided(value + margin), one_sided(margin - value))


def verdict(different: bool, equivalent: bool) -> Verdict:
    """Return the joint verdict of a test of the difference and a test of equivalence.

    The two never err at once, since a true difference of 0 is not outside the margin; each at 5 %, they err in at most 5 %.

    >>> from stsbench.metrics.equivalence import verdict
    >>> verdict(different=False, equivalent=False)
    'undecided'
    """
    if different:
        return "different, yet within" if equivalent else "different"
    return "practically equal" if equivalent else "undecided"
