"""Which of many hypotheses are rejected jointly: the step-down method of Romano & Wolf (2005, Exact and Approximate Stepdown
Methods for Multiple Hypothesis Testing), for statistics that all share their draws."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from stsbench.metrics.paired import LEVEL

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
BLOCK = 65_536  # numbers at a time: 512 kB, which a core keeps at hand


def few_enough(reached: Ints, draws: int, level: float = LEVEL) -> Bools:
    """Whether p = (1 + how many of the draws reached a statistic) / (1 + draws) is below 1 - `level`."""
    return np.asarray(1 + reached < (1 - level) * (draws + 1) - 1e-9)


def rejected(statistics: Floats, drawn: Callable[[Ints], Floats], draws: int, level: float = LEVEL) -> tuple[Bools, Floats]:
    """bool (m,): which of m hypotheses are rejected, at a family-wise error rate of 1 - `level`; (draws,): the largest drawn
    statistics of all.

    drawn: m' indices -> (m', draws) statistics where the null hypotheses hold, of the same draws each time. From the largest
    statistic on, each is compared with the largest drawn one of all hypotheses that are not yet rejected; the first that
    is reached by too many draws ends it. The hypotheses are looked at from the smallest statistic on, some at a time, so
    that one pass gives all these maxima.
    """
    order = np.argsort(statistics, kind="stable")
    passed = np.empty(len(order), dtype=np.bool_)
    largest = np.zeros(draws)
    block = max(1, BLOCK // max(draws, 1))
    for start in range(0, len(order), block):
        some = order[start : start + block]
        maxima = drawn(some)
        np.maximum(maxima[0], largest, out=maxima[0])
        np.maximum.accumulate(maxima, axis=0, out=maxima)
        largest = maxima[-1].copy()
        passed[start : start + block] = few_enough((maxima >= statistics[some][:, None]).sum(axis=1), draws, level)
    # Equal statistics stand or fall together: the first of them is met with fewer maxima than the last.
    sizes = statistics[order]
    last = np.searchsorted(sizes, sizes, side="right") - 1
    passed = passed[last]
    standing = np.flatnonzero(~passed)
    result = np.zeros(len(order), dtype=np.bool_)
    result[order[(standing[-1] + 1 if len(standing) else 0) :]] = True
    return result, largest
