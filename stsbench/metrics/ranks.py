"""Joint tests of which of several scores differ significantly; and rank intervals, letter displays and tiers from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import inf

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stsbench.metrics.noise import Noise, Scores
from stsbench.metrics.paired import BLOCK, LEVEL, critical_value, critical_values, rejected

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Significance:
    """Which pairs of r scores differ significantly, bool (r, r): `jointly`, at 5 % for all pairs together, symmetric; in
    row i of `alone`, at 5 % for the pairs of score i together. Pairs that differ jointly differ alone, too.

    statistics: (r, r) absolute differences in standard errors; largest: (draws,) the maximum over all pairs of each draw.
    halves: (r, r) half the width of each difference's 95 % interval, for the pair by itself, in the scores' unit: the
    interval excludes 0 exactly where p < 5 % for the pair. NaN where draws are too few; None where not requested.
    """

    jointly: Bools
    alone: Bools
    statistics: Floats
    largest: Floats
    halves: Floats | None = None


def significantly_different(
    scores: Scores, seed: Sequence[int] = (0,), level: float = LEVEL, *, intervals: bool = False
) -> Significance:
    """Return which scores differ, by studentised differences and the step-down method (Mogstad, Romano, Shaikh & Wilhelm
    2024, Inference for Ranks, sections 3 and 4; Romano & Wolf 2005).

    seed: of the random draws of the variance over training seeds. intervals: whether to compute `halves`.
    With too few resamples (19 at 5 %), no pair differs. A difference that is the same in every resample is significant,
    unless it is 0.
    """
    noise = Noise(scores, np.random.default_rng(seed))
    count, draws = len(scores.values), noise.draws
    jointly, alone = (np.zeros((count, count), dtype=np.bool_) for _ in range(2))
    statistics, largest = noise.statistics(), np.zeros(draws)
    if count < 2 or critical_value(largest, level) == inf:
        return Significance(jointly, alone, statistics, largest, np.full((count, count), np.nan) if intervals else None)
    of_rows, critical = _largest_of_rows(noise, level, intervals)
    largest = of_rows.max(axis=0)
    for i in range(count):
        others = np.delete(np.arange(count), i)
        alone[i, others] = _rejected(
            statistics[i, others], lambda some: noise.drawn(np.asarray(i), others[some]),  # noqa: B023 (called at once)
            of_rows[i], level,
        )
    one, other = np.triu_indices(count, 1)
    jointly[one, other] = _rejected(statistics[one, other], lambda some: noise.drawn(one[some], other[some]), largest, level)
    jointly |= jointly.T
    halves = noise.bound(critical) if intervals else None
    return Significance(jointly, alone | jointly, statistics, largest, halves)


def _largest_of_rows(noise: Noise, level: float, intervals: bool) -> tuple[Floats, Floats]:
    """Return (r, draws), the maximum over each row's pairs of every draw; and (r, r), the critical value of each pair by
    itself, 0 unless `intervals`. Each pair is drawn only once, as a thousand rows have half a million pairs."""
    count, block = len(noise.values), max(1, BLOCK // noise.draws)
    largest, critical = np.zeros((count, noise.draws)), np.zeros((count, count))
    for i in range(count - 1):
        for start in range(i + 1, count, block):
            others = np.arange(start, min(start + block, count))
            drawn = noise.drawn(np.asarray(i), others)
            np.maximum(largest[i], drawn.max(axis=0), out=largest[i])
            np.maximum(largest[others[0] : others[-1] + 1], drawn, out=largest[others[0] : others[-1] + 1])
            if intervals:
                critical[i, others] = critical[others, i] = critical_values(drawn, level)
    return largest, critical


def _rejected(statistics: Floats, draw: Callable[[Ints], Floats], largest: Floats, level: float) -> Bools:
    """Return what `rejected` returns first, where the maxima of all hypotheses are known: only hypotheses that they do not
    reject are drawn."""
    result = statistics > critical_value(largest, level)
    left = np.flatnonzero(~result)
    if len(left):
        result[left], _ = rejected(statistics[left], lambda some: draw(left[some]), len(largest), level)
    return np.asarray(result)


def significant_in_all(tests: Sequence[Significance], level: float = LEVEL) -> list[Bools]:
    """Return for each test bool (r, r): which pairs differ, at a family-wise error rate of 1 - `level` for all pairs of all.

    The tests must be of scores on the same resamples, such as those of one set of items under several settings.
    """
    draws = min((len(test.largest) for test in tests), default=0)
    critical = critical_value(np.max([test.largest[:draws] for test in tests], axis=0), level) if draws else inf
    return [test.statistics > critical for test in tests]


def rank_intervals(values: Floats, different: Bools, lower_is_better: bool = False) -> tuple[Ints, Ints, Ints]:
    """Return (place, first, last), each int (r,): the rank among r scores, and the best and worst rank that is not ruled
    out.

    place: 1 + the number of better scores, ties share it; first: 1 + the number of significantly better ones; last: r - the
    number of significantly worse ones. With `Significance.jointly` as `different`, the intervals cover all true ranks
    together; with `alone`, which need not be symmetric, each interval by itself covers its row's true rank.
    """
    better = values[None, :] < values[:, None] if lower_is_better else values[None, :] > values[:, None]  # [i, j]: j beats i
    rank = 1 + better.sum(axis=1)
    first = 1 + (better & different).sum(axis=1)
    last = len(values) - (better.T & different).sum(axis=1)
    return rank.astype(np.int64), first.astype(np.int64), last.astype(np.int64)


def letters(values: Floats, different: Bools, lower_is_better: bool = False) -> list[str]:
    """Return a compact letter display: two scores share a letter exactly where they do not differ significantly; 'a' is the
    best.

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


def _split(columns: set[int], first: int, second: int) -> set[int]:
    """Return the columns, split so that none contains both `first` and `second` and none is a subset of another."""
    both = {column for column in columns if column & first and column & second}
    kept = columns - both
    for piece in {column & ~bit for column in both for bit in (first, second)}:
        # Two pieces of different columns are never subsets of each other, as the columns were not.
        if not any(piece & column == piece for column in kept):
            kept = {*kept, piece}
    return kept


def tiers(values: ArrayLike, different: ArrayLike, lower_is_better: bool = False) -> Ints:
    """Return int64 (r,), the tier of each score: 1 for the best score and all that do not differ significantly from it.

    values: (r,), in any unit; different: bool (r, r), symmetric, which pairs differ significantly
    (`metrics.ranks.Significance.jointly`). The best of the remaining scores leads the next tier. Scores that tie for the
    best lead together: a score that does not differ from one of them is in their tier, whatever the order of the rows.

    With differences that are significant at 5 % jointly, the following holds in 95 % of all tables: every score in a later
    tier is truly worse than the leaders of all earlier tiers, so that tier 1 contains the truly best. Two scores in one tier
    may differ significantly from each other, though neither differs from the leader, and scores that do not differ
    significantly need not be equal. A noisy score may be in an earlier tier than a better score with less noise.

    >>> import numpy as np
    >>> from stsbench.metrics.ranks import tiers
    >>> different = np.array([[False, False, True], [False, False, True], [True, True, False]])
    >>> tiers(np.array([79.1, 78.9, 75.0]), different).tolist()
    [1, 1, 2]
    """
    signed = np.asarray(values, dtype=np.float64) * (-1 if lower_is_better else 1)
    different = np.asarray(different, dtype=np.bool_)
    result = np.zeros(len(signed), dtype=np.int64)
    left = np.arange(len(signed))
    while len(left):
        leaders = left[signed[left] == signed[left].max()]
        members = ~different[np.ix_(leaders, left)].all(axis=0)
        members |= np.isin(left, leaders)
        result[left[members]] = result.max() + 1
        left = left[~members]
    return result
