"""Which of several scores differ significantly, tested jointly; rank intervals and tie letters that follow."""

from __future__ import annotations

from itertools import combinations
from math import inf

import numpy as np
from numpy.typing import NDArray

from stsbench.metrics.paired import LEVEL, ROUNDING, critical_value

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def significantly_different(values: Floats, draws: Floats, level: float = LEVEL) -> Bools:
    """bool (r, r), symmetric: which pairs of r scores differ, at a family-wise error rate of 1 - `level`.

    values: (r,) finite scores; draws: (r, b) of them over b resamples that all share. Every pair's difference is compared
    with one critical value: the quantile of the largest studentised deviation over the pairs (Mogstad, Romano, Shaikh &
    Wilhelm 2024, Inference for Ranks, section 3). A resample in which any score is NaN is left out for all; with
    too few left, no pair differs. A difference that is the same in every resample is significant, unless it is 0.
    """
    count = len(values)
    different = np.zeros((count, count), dtype=np.bool_)
    draws = draws[:, np.isfinite(draws).all(axis=0)]
    kept = draws.shape[1]
    if count < 2 or critical_value(np.zeros(kept), level) == inf:
        return different
    size = max(float(np.abs(values).max()), float(np.abs(draws).max())) * ROUNDING
    largest = np.zeros(kept)
    statistic = np.zeros((count, count))
    for i in range(count - 1):  # a row of pairs at a time: a hundred scores have 5000 pairs
        difference = values[i] - values[i + 1 :]
        drawn = draws[i] - draws[i + 1 :]
        error = drawn.std(axis=1, ddof=1)
        varies = error > size
        if varies.any():
            deviations = np.abs(drawn[varies] - difference[varies, None]) / error[varies, None]
            np.maximum(largest, deviations.max(axis=0), out=largest)
        certain = np.where(np.abs(difference) > size, inf, 0.0)
        statistic[i, i + 1 :] = np.divide(np.abs(difference), error, out=certain, where=varies)
    different = statistic > critical_value(largest, level)
    return np.asarray(different | different.T)


def rank_intervals(values: Floats, different: Bools, lower_is_better: bool = False) -> tuple[Ints, Ints, Ints]:
    """(place, first, last), each int (r,): the rank among r scores, and the best and worst rank that is not ruled out.

    place: 1 + how many are better, ties share it; first: 1 + how many are significantly better; last: r - how many are
    significantly worse. The intervals cover all true ranks jointly at the level of `different`.
    """
    better = values[None, :] < values[:, None] if lower_is_better else values[None, :] > values[:, None]  # column than row
    place = 1 + better.sum(axis=1)
    first = 1 + (better & different).sum(axis=1)
    last = len(values) - (better.T & different).sum(axis=1)
    return place.astype(np.int64), first.astype(np.int64), last.astype(np.int64)


def letters(values: Floats, different: Bools, lower_is_better: bool = False) -> list[str]:
    """A compact letter display: two scores share a letter exactly where they do not differ significantly; 'a' is the best.

    Insert and absorb (Piepho 2004, An Algorithm for a Letter-Based Representation of All-Pairwise Comparisons): one column
    with every score is split at each pair that differs, and a column inside another is dropped. After z come a2 to z2, a3
    and so on: a digit belongs to the letter before it, so that 'aba2' can be read in one way only.
    """
    order = np.argsort(values if lower_is_better else -values, kind="stable")
    columns = {(1 << len(order)) - 1} if len(order) else set()  # sets of positions in `order`, as bits
    for i, j in combinations(range(len(order)), 2):
        if different[order[i], order[j]]:
            columns = _split(columns, 1 << i, 1 << j)
    members = sorted([position for position in range(len(order)) if column >> position & 1] for column in columns)
    shown = [""] * len(order)
    for number, positions in enumerate(members):
        turn, letter = divmod(number, 26)
        for position in positions:
            shown[order[position]] += chr(ord("a") + letter) + (str(turn + 1) if turn else "")
    return shown


def _split(columns: set[int], one: int, other: int) -> set[int]:
    """The columns, split so that none contains both `one` and `other` and none is a subset of another."""
    both = {column for column in columns if column & one and column & other}
    kept = columns - both
    for piece in {column & ~bit for column in both for bit in (one, other)}:
        # Two pieces of different columns cannot be inside each other: neither were the columns.
        if not any(piece & column == piece for column in kept):
            kept = {*kept, piece}
    return kept
