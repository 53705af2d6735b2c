"""Records that are copies of others: the same observations, or the same but for noise that no retraining is as small as.

The closest seeds on the board correlate at .998. A sketch of each record's similarities finds the candidates among many
entries; which of them are copies is then asked of the similarities themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.errors import StsbenchError
from stsbench.evaluation.comparability import Measured
from stsbench.evaluation.protocol import Observations
from stsbench.evaluation.records import Record

# What an encoder alone decides, as numbers of many digits: ranks, classes and accuracies of two encoders may well be equal.
CONTINUOUS = {"sts": "similarity", "regression": "predicted", "geometry": "cosine"}
FEWEST = 20  # items, of which two encoders may order fewer alike
# 1 less the correlation of values or of ranks, below which two runs are no two seeds, and two entries' rows are flagged.
SAME, NEAR = 1e-6, 1e-4
DIRECTIONS = 64  # of a sketch
Floats = NDArray[np.float64]
Owned = tuple[str, Measured]  # the entry or run that a record is of, and the record


def refuse_equal(records: Iterable[tuple[str, Record]]) -> None:
    """Raises StsbenchError where two owners, an entry's runs or a board's entries by their folders, have the same
    observations of a set: those of two encoders, or of two seeds, never are."""
    owners: dict[tuple[str, str, str], str] = {}
    for owner, record in records:
        if record.protocol.name not in CONTINUOUS or any(row.metric == "accuracy" for row in record.scores):
            continue  # classes of SICK-E
        key = record.protocol.name, record.data.digest, record.observations.sha256
        if (other := owners.setdefault(key, owner)) != owner:
            what = CONTINUOUS[record.protocol.name]
            said = f"has the {what} of {other} on {record.data.id}: one run, measured twice"
            raise StsbenchError(f"{owner} {said}; leave one out")


def refuse_near(runs: Sequence[tuple[str, Sequence[Measured]]]) -> None:
    """Raises StsbenchError where two runs of an entry differ by less than two seeds ever do. runs: path and records."""
    for (one, its), (other, others) in combinations(runs, 2):
        for a, b in _common(its, others):
            if reason := nearly_equal(_values(a), _values(b), SAME):
                raise StsbenchError(f"{other} and {one} are no two seeds: on {a.set_id} {reason}; leave one out")


def _common(its: Sequence[Measured], others: Sequence[Measured]) -> Iterator[tuple[Measured, Measured]]:
    by_set = {_set_of(each): each for each in others if each.record.protocol.name in CONTINUOUS}
    return ((each, by_set[_set_of(each)]) for each in its if _set_of(each) in by_set)


def _set_of(each: Measured) -> tuple[str, str]:
    return each.record.protocol.name, each.digest


def nearly_equal(one: Floats | None, other: Floats | None, within: float = NEAR) -> str:
    """Why two encoders' values of the same items are a copy, "" where they are not."""
    if one is None or other is None or len(one) != len(other) or len(one) < FEWEST:
        return ""
    if (distance := _distance(_unit(one), _unit(other))) < within:
        return f"the similarities correlate at 1 less {distance:.1g}"
    if (distance := _distance(_unit(_ranks(one)), _unit(_ranks(other)))) < within:
        return f"the ranks of the similarities correlate at 1 less {distance:.1g}"
    return ""


def _distance(one: Floats, other: Floats) -> float:
    """1 less the correlation of two unit vectors; exact where that is tiny."""
    return float(np.sum((one - other) ** 2)) / 2 if one.any() and other.any() else 1.0


def _values(each: Measured) -> Floats | None:
    return values_of(each.record, each.observed())


def values_of(record: Record, observations: Observations) -> Floats | None:
    """(n,) what is compared of a record; None where there is nothing of the kind."""
    values = observations.arrays.get(CONTINUOUS.get(record.protocol.name, ""))
    return None if values is None or values.dtype.kind != "f" else np.asarray(values, dtype=np.float64)


def _ranks(values: Floats) -> Floats:
    from scipy.stats import rankdata

    return np.asarray(rankdata(values), dtype=np.float64)


def _unit(values: Floats) -> Floats:
    """Centred, of length 1: the product of two is their correlation. Zeros where all are equal."""
    centred = values - values.mean()
    length = float(np.linalg.norm(centred))
    return centred / length if length > 1e-12 * max(1.0, float(np.abs(values).max())) else np.zeros_like(centred)


@lru_cache(maxsize=64)
def _directions(n: int) -> NDArray[Any]:
    """(DIRECTIONS, n), orthonormal."""
    return np.linalg.qr(np.random.default_rng(n).standard_normal((n, min(n, DIRECTIONS))))[0].T


def sketch(record: Record, observations: Observations) -> list[float]:
    """The values and their ranks along fixed directions, in which no two are further apart than they are; [] for none."""
    values = values_of(record, observations)
    if values is None or len(values) < FEWEST:
        return []
    along = _directions(len(values))
    return [float(each) for part in (values, _ranks(values)) for each in (along @ _unit(part)).round(9)]


def near_copies(records: Sequence[tuple[str, Measured, Sequence[float]]]) -> dict[str, dict[str, str]]:
    """Entry -> the others that it is a copy of but for tiny noise -> why. records: entry, record and its sketch."""
    groups: dict[tuple[str, str, int], list[tuple[str, Measured, Sequence[float]]]] = {}
    for each in records:
        if each[2]:
            groups.setdefault((*_set_of(each[1]), each[1].record.data.n), []).append(each)
    copies: dict[str, dict[str, str]] = {}
    for members in groups.values():
        for i, j in _candidates(np.array([part for _, _, part in members])):
            (one, a, _), (other, b, _) = members[i], members[j]
            if one == other or other in copies.get(one, {}):
                continue
            if reason := nearly_equal(_values(a), _values(b)):
                copies.setdefault(one, {})[other] = f"on {a.set_id} {reason}"
                copies.setdefault(other, {})[one] = f"on {a.set_id} {reason}"
    return copies


def _candidates(sketches: Floats) -> Iterator[tuple[int, int]]:
    """Pairs of rows whose values, the first half of a sketch, or ranks may be nearly equal."""
    half = sketches.shape[1] // 2
    for i, mine in enumerate(sketches[:-1]):
        squares = (sketches[i + 1 :] - mine) ** 2
        nearest = np.minimum(squares[:, :half].sum(axis=1), squares[:, half:].sum(axis=1))
        yield from ((i, i + 1 + int(j)) for j in np.flatnonzero(nearest <= 2 * NEAR + 1e-6))


def said_of(others: Mapping[str, str]) -> tuple[str, ...]:
    """A sentence for each entry that a row is a near-copy of."""
    return tuple(f"nearly the row of {other}: {reason}" for other, reason in sorted(others.items()))
