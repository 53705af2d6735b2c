"""How far two sets of vectors of the same texts are from each other, in directions, lengths and points of a score."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stsbench.comparison.compare import compare
from stsbench.encoders.base import Encoder
from stsbench.errors import StsbenchError, StsbenchWarning
from stsbench.evaluation.api import evaluate
from stsbench.extensions.parity.options import ParityOptions
from stsbench.metrics.paired import Difference

Floats = NDArray[np.float64]
# How far the direction of a text's vector may move, and by what share its length, where nothing but rounding differs. The
# distance of two directions is sqrt(2 - 2 cos). docs/how-to/parity.md has what was measured.
TOLERANCES = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 8e-2}
UNIT = 5e-3  # how far from 1 the length of a vector is that was scaled to 1, and then rounded to 16 bits
QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5)
_BOARD = "cannot enter the public leaderboard"  # a warning of no interest here
EQUIVALENT, UNEQUAL, OPEN = "equivalent", "not equivalent", "undecided"


def lengths(vectors: Floats) -> Floats:
    """Return (n,) Euclidean lengths."""
    return np.asarray(np.linalg.norm(vectors, axis=1))


def directions(vectors: Floats) -> Floats:
    """Return (n, d) vectors of length 1; zero vectors stay, and a text without a finite vector keeps none."""
    size = lengths(vectors)[:, None]
    with np.errstate(invalid="ignore"):
        return np.asarray(vectors / np.where(size == 0, 1, size))


def turned(a: Floats, b: Floats) -> Floats:
    """Return (n,) distances of the directions of a and b, (n, d): 0 for two zero vectors, infinite where one alone is
    finite, and 0 where neither is."""
    finite_a, finite_b = np.isfinite(a).all(1), np.isfinite(b).all(1)
    with np.errstate(invalid="ignore"):
        distance = lengths(directions(a) - directions(b))
    return np.asarray(np.where(finite_a & finite_b, distance, np.where(finite_a == finite_b, 0.0, np.inf)))


def cosines(a: Floats, b: Floats) -> Floats:
    """Return (n,) cosines in float64, computed of the distance, so that those close to 1 keep their digits; of a zero
    vector 0, of two 1; NaN where one is not finite."""
    finite, zero = np.isfinite(a).all(1) & np.isfinite(b).all(1), (lengths(a) == 0) != (lengths(b) == 0)
    cosine = 1 - np.where(finite, turned(a, b), np.nan) ** 2 / 2
    return np.asarray(np.where(zero & finite, 0.0, cosine))


def stretched(a: Floats, b: Floats) -> Floats:
    """Return (n,) lengths of b as a share of a's: 1 for two zero vectors, NaN where one is not finite."""
    size_a, size_b = lengths(a), lengths(b)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where((size_a == 0) & (size_b == 0), 1.0, size_b / size_a))


def same_lengths(a: Floats, b: Floats, tolerance: float) -> bool:
    """Return whether no length differs by more than the share `tolerance`, of texts that have a finite vector in both."""
    ratio = stretched(a, b)
    return bool((np.abs(ratio[np.isfinite(ratio)] - 1) <= tolerance).all())


def unit(vectors: Floats, tolerance: float = UNIT) -> bool:
    """Return whether all finite vectors but those of zeros have length 1, and there are some."""
    size = lengths(vectors)
    size = size[np.isfinite(size) & (size > 0)]
    return bool(len(size)) and bool((np.abs(size - 1) <= tolerance).all())


@dataclass(frozen=True)
class Fit:
    """How well vectors stand for B's: the distance of each text's directions."""

    distance: Floats  # (n,)

    def explains(self, tolerance: float) -> bool:
        """Return whether no text is farther away."""
        return bool((self.distance <= tolerance).all())

    def share(self, before: Fit) -> float:
        """Of the squared distances that there were before, the share that is gone; below 0 where they have grown."""
        old = float((np.minimum(before.distance, 2) ** 2).sum())
        return 1 - float((np.minimum(self.distance, 2) ** 2).sum()) / old if old else 0.0


def likeness(start: Floats, moved: Floats, b: Floats) -> tuple[float, float]:
    """Return (correlation, size): whether b lies off `start` in the way that `moved` does, all (n, d).

    Of the differences of directions, from which the mean over the texts is taken: a shift that all texts share is alike in
    much that has nothing in common. size: b's difference as a share of moved's. 0, 0 where one of them is none.
    """
    finite = np.isfinite(start).all(1) & np.isfinite(moved).all(1) & np.isfinite(b).all(1)
    base = directions(start[finite])
    by_b, by_moved = (part - part.mean(0) for part in (directions(b[finite]) - base, directions(moved[finite]) - base))
    size_b, size_moved = float(np.linalg.norm(by_b)), float(np.linalg.norm(by_moved))
    if not size_b or not size_moved:
        return 0.0, 0.0
    return float((by_b * by_moved).sum()) / (size_b * size_moved), size_b / size_moved


@dataclass(frozen=True)
class Scores:
    """One task, or the average: the scores a and b, b less a with its 95 % interval, and the verdict at a margin."""

    protocol: str
    metric: str
    task: str
    n: int
    a: float
    b: float
    difference: Difference
    margin: float

    @property
    def verdict(self) -> str:
        """equivalent: the 95 % interval lies within +-margin, so that two one-sided tests at 2.5 % each say so (Schuirmann
        1987); not equivalent: it lies wholly outside; else undecided."""
        low, high = self.difference.low, self.difference.high
        if low is None or high is None:
            return OPEN
        if -self.margin < low and high < self.margin:
            return EQUIVALENT
        return UNEQUAL if low > self.margin or high < -self.margin else OPEN


def measure_scores(encoders: Sequence[Encoder], options: ParityOptions) -> tuple[tuple[Scores, ...], tuple[str, ...]]:
    """Return a row for each task of each protocol, the average last; and what a user must know of the two runs.
    StsbenchError: nothing can be compared."""
    assert options.protocols is not None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", StsbenchWarning)
        runs = [evaluate(
            encoder.identified(), protocols=options.protocols, tasks=options.tasks, data_dir=options.data_dir,
            sample=options.sample, resamples=0,
        ) for encoder in encoders]
    if lacking := [line for run in runs for line in run.failed_lines()]:
        raise StsbenchError(f"no verdict on the scores, a task has none: {lacking[0]}; name the others with --tasks")
    comparison = compare(runs[1], runs[0], resamples=options.resamples)
    heard = [str(one.message) for one in caught if issubclass(one.category, StsbenchWarning)]
    notes = [line for line in heard if _BOARD not in line] + comparison.omissions()
    rows = [
        Scores(table.setting.protocol, table.setting.metric, name, row.n, row.b, row.a, row.difference, options.margin)
        for table in comparison.tables for name, row in table.named
    ]
    if not rows:
        raise StsbenchError(f"{', '.join(options.protocols)}: no task was scored for both: no verdict on the scores")
    return tuple(rows), tuple(dict.fromkeys(notes))
