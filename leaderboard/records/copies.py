"""Detection of copied records: the same observations as another's, or observations closer than two seeds ever are.

The closest seeds on the board correlate at .998. A sketch (a short projection) of each record's similarities finds candidate
pairs among many entries; the similarities themselves then decide which candidates are copies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.comparison.comparability import Measured
from stsbench.errors import StsbenchError
from stsbench.evaluation.schema import SHARE

CLASSES = 500  # two encoders may classify fewer items alike by chance: the closest here differ in four of 500
FEWEST_SCORES = 4  # with fewer scores of a task two encoders may agree by chance
FEWEST = 20  # two encoders may order fewer items alike by chance
# Thresholds of 1 - correlation of values or ranks: below SAME two runs cannot be two seeds, below NEAR rows are flagged. A
# run in bfloat16 is 8e-6 from that in float32; two seeds are 1e-4 apart after two steps, 1e-3 or more after a training.
SAME, NEAR = 3e-5, 1e-4
PERMUTED = 1e-7  # the threshold for sorted values: those of two encoders are at least 8e-6 apart here
PARTS, FEWEST_PARTS = 32, 4  # items are compared in PARTS parts, too, if at least FEWEST_PARTS: a changed item affects one
# The numbers of directions that a sketch projects on: DIRECTIONS for all values, or one for every ITEMS items if these are
# more; FEWER for the sorted values; FEWEST_DIRECTIONS for a part.
DIRECTIONS, ITEMS, FEWER, FEWEST_DIRECTIONS = 64, 16, 16, 8
ROWS = 32  # sketches compared with all others at a time, so that their products fit into the processor's cache
Floats = NDArray[np.float64]
Owned = tuple[str, Measured]  # the entry or run that a record is of, and the record
Pair = tuple[Owned, Owned]  # two runs


def refuse_equal(records: Iterable[Owned]) -> None:
    """Raise StsbenchError where two owners (runs of an entry, or entries of a board, by their folders) have equal
    observations, which two encoders or two seeds never have."""
    owners: dict[str, str] = {}
    for owner, measured in records:
        if (key := _never_equal(measured)) and (other := owners.setdefault(key, owner)) != owner:
            record, what = measured.record, _per_item(measured) or "scores"
            problem = f"has the {what} of {other} on {record.data.id}: one run, measured twice"
            raise StsbenchError(f"{owner} {problem}; leave one out")


def _never_equal(measured: Measured) -> str:
    """Return a key that is equal for two records only if one is a copy; "" for records that may be equal by chance."""
    record, values = measured.record, [row.value for row in measured.record.scores]
    if measured.protocol.main_metric:  # observations may hold times, which differ between copies: the scores are compared
        return repr(values) if len(values) >= FEWEST_SCORES else ""
    classes = any(measured.protocol.metric(row.metric).range == SHARE.range for row in record.scores)
    few = classes and (record.data.n < CLASSES or set(values) == {100.0})
    return record.observations.sha256 if _per_item(measured) and not few else ""


def refuse_near(runs: Sequence[tuple[str, Sequence[Measured]]], near: Collection[Pair] | None = None) -> None:
    """Raise StsbenchError where two runs of an entry differ by less than two seeds ever do. runs: path and records; near:
    the result of `near_pairs`, to compare these pairs only."""
    paths = None if near is None else {(a.path, b.path) for (_, a), (_, b) in near}
    for (one, its), (other, others) in combinations(runs, 2):
        for a, b in product(its, others):
            if (paths is None or (a.path, b.path) in paths) and (reason := _copied(a, b, SAME)):
                raise StsbenchError(f"{other} and {one} are no two seeds: on {a.set_id} {reason}; leave one out")


def _copied(first: Measured, second: Measured, within: float) -> str:
    """Return `nearly_equal` of the values of two records; "" where either has none."""
    a, b = comparable_values(first), comparable_values(second)
    return "" if a is None or b is None else nearly_equal(a, b, within)


def nearly_equal(first: Floats, second: Floats, within: float = NEAR) -> str:
    """Return in what way two arrays of values, (n,) each, are copies; "" where they are not. Arrays of different lengths
    never are: a copy has as many items as its original."""
    if len(first) != len(second) or len(first) < FEWEST:
        return ""
    if (distance := _distance(first, second)) < within:
        return f"the similarities correlate at 1 less {distance:.1g}"
    if (distance := _distance(_ranks(first), _ranks(second))) < within:
        return f"the ranks of the similarities correlate at 1 less {distance:.1g}"
    if _distance(np.sort(first), np.sort(second)) < PERMUTED:
        return "the similarities are the same in another order"
    a, b = _parts(first), _parts(second)
    equal = np.minimum(_distance(a, b), _distance(_ranks(a), _ranks(b))) < within
    if 2 * np.count_nonzero(equal) > len(a) >= FEWEST_PARTS:
        return f"{np.count_nonzero(equal)} of {len(a)} parts of the similarities are nearly the same"
    return ""


def _distance(first: Floats, second: Floats) -> Any:
    """Return 1 - |correlation| along the last axis, computed from differences so that tiny values are exact."""
    a, b = _unit(first), _unit(second)
    nearest = np.minimum(np.sum((a - b) ** 2, axis=-1), np.sum((a + b) ** 2, axis=-1)) / 2
    return np.where(a.any(axis=-1) & b.any(axis=-1), nearest, 1.0)


def comparable_values(measured: Measured) -> Floats | None:
    """Return (n,) the values of a record that are compared, one float per item; None where it has none."""
    name = _per_item(measured)
    values = measured.observed().arrays.get(name) if name else None  # an optional array may be missing
    return None if values is None or values.dtype.kind != "f" else np.asarray(values, dtype=np.float64)


def _per_item(measured: Measured) -> str:
    """Return the name of the protocol's array with one value per item; "" for none."""
    return next((key for key, array in measured.protocol.arrays.items() if array.per_item), "")


def _parts(values: Floats) -> Floats:
    """Return (parts, items per part): the values in their order, without the last few that do not fill all parts."""
    count = min(PARTS, len(values) // FEWEST)
    return values[: len(values) // count * count].reshape(count, -1)


def _ranks(values: Floats) -> Floats:
    from scipy.stats import rankdata

    return np.asarray(rankdata(values, axis=-1), dtype=np.float64)


def _unit(values: Floats) -> Floats:
    """Return the values centred along the last axis and scaled to length 1, so that the product of two is their
    correlation; zeros where all values are equal."""
    centred = values - values.mean(axis=-1, keepdims=True)
    length = np.linalg.norm(centred, axis=-1, keepdims=True)
    varied = length > 1e-12 * np.maximum(1.0, np.abs(values).max(axis=-1, keepdims=True))
    return np.where(varied, centred / np.where(varied, length, 1.0), 0.0)


def _along(values: Floats, most: int, mixed: bool = True) -> Floats:
    """Return (..., most): projections of values (..., n) on fixed orthonormal directions, padded with zeros if n < most.
    They are the first terms of a cosine transform, of the values with fixed random signs if `mixed`."""
    from scipy.fft import dct

    n = values.shape[-1]
    signs = np.random.default_rng(n).choice([-1.0, 1.0], n) if mixed else np.ones(n)
    along = np.zeros((*values.shape[:-1], most))
    along[..., :n] = dct(values * signs, norm="ortho", axis=-1)[..., :most]
    return along


def _most(n: float) -> int:
    """Return the number of directions that n values are projected on: more for more values, so that seeds stay apart."""
    return max(DIRECTIONS, int(n) // ITEMS)


def sketch(measured: Measured) -> list[float]:
    """Return a record's sketch: the number of values, then the projections of the values, their ranks, the sorted values,
    and the values and ranks of each part. Projections are never further apart than the originals. [] for too few values."""
    values = comparable_values(measured)
    if values is None or len(values) < FEWEST:
        return []
    parts, most = _parts(values), _most(len(values))
    along = [
        _along(_unit(values), most), _along(_unit(_ranks(values)), most), _along(_unit(np.sort(values)), FEWER, mixed=False),
        _along(_unit(parts), FEWEST_DIRECTIONS), _along(_unit(_ranks(parts)), FEWEST_DIRECTIONS),
    ]
    return [len(values), *np.concatenate([part.ravel() for part in along]).round(7).tolist()]


def near_pairs(records: Sequence[tuple[str, Measured, Sequence[float]]]) -> list[Pair]:
    """Return the pairs of records, of different runs, that may be copies of each other by their sketches. records: entry,
    record and its sketch."""
    groups: dict[float, list[tuple[str, Measured, Sequence[float]]]] = {}
    for record in records:
        if record[2]:
            groups.setdefault(record[2][0], []).append(record)
    pairs = []
    for members in groups.values():
        for i, j in _candidates(np.array([part for _, _, part in members])):
            (one, a, _), (other, b, _) = members[i], members[j]
            if a.path.parent != b.path.parent:
                pairs.append(((one, a), (other, b)))
    return pairs


def near_copies(pairs: Iterable[Pair]) -> dict[str, dict[str, str]]:
    """Return entry -> near-copies of it -> the reason; an entry is its own near-copy where two of its runs are. pairs: the
    result of `near_pairs`."""
    copies: dict[str, dict[str, str]] = {}
    for (one, a), (other, b) in pairs:
        if other not in copies.get(one, {}) and (reason := _copied(a, b, NEAR)):
            copies.setdefault(one, {})[other] = f"on {a.set_id} {reason}"
            copies.setdefault(other, {})[one] = f"on {a.set_id} {reason}"
    return copies


def _candidates(sketches: Floats) -> Iterator[tuple[int, int]]:
    """Yield (i, j), i < j, of the sketches that may be of copies; all are of equally many values. `ROWS` rows at a time are
    compared with all below: a thousand entries of three seeds have four million pairs on each set."""
    most = _most(sketches[0, 0])
    _, whole, ranks, ordered, parts = np.split(sketches, np.cumsum([1, most, most, FEWER]), axis=1)
    by_part = parts.reshape(len(sketches), 2, -1, FEWEST_DIRECTIONS).transpose(2, 1, 0, 3).copy()
    near, permuted = 2 * NEAR + 1e-6, 2 * PERMUTED + 1e-8  # squares of distances, and what rounding adds to them
    for start in range(0, len(sketches), ROWS):
        may = _within(whole, start, near) | _within(ranks, start, near) | _within(ordered, start, permuted)
        if len(by_part) >= FEWEST_PARTS:
            equal = np.zeros(may.shape, dtype=np.int16)
            for values, of_ranks in by_part:
                equal += _within(values, start, near) | _within(of_ranks, start, near)
            may |= 2 * equal > len(by_part)
        yield from ((start + int(i), start + int(j)) for i, j in np.argwhere(np.triu(may, 1)))


def _within(points: Floats, start: int, square: float) -> NDArray[np.bool_]:
    """Return bool (ROWS, rest): whether the squared distance of `ROWS` rows from `start` on to each row from `start` on, or
    to its negative, is at most `square`, by |a - b|^2 = |a|^2 + |b|^2 - 2 ab."""
    rest = points[start:]
    half = (rest**2).sum(axis=1) / 2
    products = np.abs(rest[:ROWS] @ rest.T)
    return np.asarray(products >= half[:ROWS, None] + (half - square / 2))


def near_copy_notes(entry: str, others: Mapping[str, str]) -> tuple[str, ...]:
    """Return a sentence for each entry that a row is a near-copy of."""
    return tuple(f"two of its seeds are nearly one: {reason}" if other == entry else f"nearly the row of {other}: {reason}"
                 for other, reason in sorted(others.items()))
