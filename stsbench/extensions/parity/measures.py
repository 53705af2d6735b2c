"""Distances between two encoders' vectors of the same texts: in direction, in length, and in points of a score."""

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
# By how much rounding alone may change a vector: the distance of the two directions, sqrt(2 - 2 cos), and the relative
# difference of the lengths. docs/how-to/parity.md has the measurements behind the values.
TOLERANCES = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 8e-2}
UNIT = 5e-3  # by how much rounding to 16 bits may change the length of a vector that was normalised to 1
QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5)
_BOARD = "cannot enter the public leaderboard"  # part of a warning that says nothing about the comparison
EQUIVALENT, UNEQUAL, OPEN = "equivalent", "not equivalent", "undecided"


def lengths(vectors: Floats) -> Floats:
    """Return (n,) Euclidean lengths."""
    return np.asarray(np.linalg.norm(vectors, axis=1))


def directions(vectors: Floats) -> Floats:
    """Return (n, d) vectors scaled to length 1; zero vectors stay zero, vectors with NaN or infinity stay not finite."""
    size = lengths(vectors)[:, None]
    with np.errstate(invalid="ignore"):
        return np.asarray(vectors / np.where(size == 0, 1, size))


def turned(a: Floats, b: Floats) -> Floats:
    """Return (n,) distances of the directions of a and b, both (n, d): infinite where only one of two vectors is finite, 0
    where neither is, and 0 for two zero vectors."""
    finite_a, finite_b = np.isfinite(a).all(1), np.isfinite(b).all(1)
    with np.errstate(invalid="ignore"):
        distance = lengths(directions(a) - directions(b))
    return np.asarray(np.where(finite_a & finite_b, distance, np.where(finite_a == finite_b, 0.0, np.inf)))


def cosines(a: Floats, b: Floats) -> Floats:
    """Return (n,) cosines in float64, computed from the distance, so that cosines close to 1 keep their digits: 0 where one
    vector is zero, 1 where both are, NaN where one is not finite."""
    finite, zero = np.isfinite(a).all(1) & np.isfinite(b).all(1), (lengths(a) == 0) != (lengths(b) == 0)
    cosine = 1 - np.where(finite, turned(a, b), np.nan) ** 2 / 2
    return np.asarray(np.where(zero & finite, 0.0, cosine))


def stretched(a: Floats, b: Floats) -> Floats:
    """Return (n,) lengths of b divided by those of a: 1 for two zero vectors, NaN where one contains NaN."""
    size_a, size_b = lengths(a), lengths(b)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where((size_a == 0) & (size_b == 0), 1.0, size_b / size_a))


def same_lengths(a: Floats, b: Floats, tolerance: float) -> bool:
    """Return whether lengths of a and b agree within the relative `tolerance` for all texts with two finite vectors."""
    ratio = stretched(a, b)
    return bool((np.abs(ratio[np.isfinite(ratio)] - 1) <= tolerance).all())


def unit(vectors: Floats, tolerance: float = UNIT) -> bool:
    """Return whether all finite vectors other than zero have length 1 within `tolerance`; False if there are none."""
    size = lengths(vectors)
    size = size[np.isfinite(size) & (size > 0)]
    return bool(len(size)) and bool((np.abs(size - 1) <= tolerance).all())


@dataclass(frozen=True)
class Fit:
    """How close vectors are to B's: the distance of the directions for each text."""

    distance: Floats  # (n,)

    def explains(self, tolerance: float) -> bool:
        """Return whether all distances are within `tolerance`."""
        return bool((self.distance <= tolerance).all())

    def share(self, before: Fit) -> float:
        """Return the share of `before`'s squared distances that is gone: 1 for all, below 0 where they have grown."""
        old = float((np.minimum(before.distance, 2) ** 2).sum())
        return 1 - float((np.minimum(self.distance, 2) ** 2).sum()) / old if old else 0.0


def likeness(start: Floats, moved: Floats, b: Floats) -> tuple[float, float]:
    """Return (correlation, size) of two changes of direction, from `start` to b and from `start` to `moved`, (n, d) each.

    Both changes are centred over the texts, as a shift that all texts share looks alike for unrelated causes. size: the norm
    of b's change divided by that of moved's. (0, 0) where a change is zero.
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
    """The scores of one task or the average, in points: a, b, b - a with its 95 % interval, and the verdict at a margin."""

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
        """Return "equivalent" where the 95 % interval lies within +-margin, as by two one-sided tests at 2.5 % each
        (Schuirmann 1987), "not equivalent" where it lies wholly outside, else "undecided"."""
        low, high = self.difference.low, self.difference.high
        if low is None or high is None:
            return OPEN
        if -self.margin < low and high < self.margin:
            return EQUIVALENT
        return UNEQUAL if low > self.margin or high < -self.margin else OPEN


def measure_scores(encoders: Sequence[Encoder], options: ParityOptions) -> tuple[tuple[Scores, ...], tuple[str, ...]]:
    """Return a row for each task of each protocol, the average last, and the remarks and warnings of the two runs. Raises
    StsbenchError where a task has no score, or nothing can be compared."""
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
