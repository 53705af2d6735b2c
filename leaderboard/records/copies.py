"""Records that are copies of others: the same observations, or the same but for noise that no retraining is as small as.

The closest seeds on the board correlate at .998. A sketch of each record's similarities finds the candidates among many
entries; which of them are copies is then asked of the similarities themselves.
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

CLASSES = 500  # items, of which two encoders may classify fewer alike: the closest here differ in four of 500
FEWEST_SCORES = 4  # with fewer scores of a task two encoders may agree by chance
FEWEST = 20  # items, of which two encoders may order fewer alike
# 1 less the correlation of values or of ranks, below which two runs are no two seeds, and rows are flagged. A run in
# bfloat16 is 8e-6 from that in float32, two seeds after two steps of training 1e-4, after a training at least 1e-3.
SAME, NEAR = 3e-5, 1e-4
PERMUTED = 1e-7  # the same of sorted values: of two encoders, at least 8e-6 here
PARTS, FEWEST_PARTS = 32, 4  # the items fall into so many parts, of which so many are compared: a changed item spoils one
# A sketch's directions: for all values, or one for so many items, in which two seeds are still apart; for the sorted ones;
# for a part.
DIRECTIONS, ITEMS, FEWER, FEWEST_DIRECTIONS = 64, 16, 16, 8
ROWS = 32  # sketches that are compared with all others at a time: their products stay near the core
Floats = NDArray[np.float64]
Owned = tuple[str, Measured]  # the entry or run that a record is of, and the record
Pair = tuple[Owned, Owned]  # two runs


def refuse_equal(records: Iterable[Owned]) -> None:
    """Raise StsbenchError where two owners, an entry's runs or a board's entries by their folders, have the same
    observations: those of two encoders, or of two seeds, never are."""
    owners: dict[str, str] = {}
    for owner, measured in records:
        if (key := _never_equal(measured)) and (other := owners.setdefault(key, owner)) != owner:
            record, what = measured.record, _per_item(measured) or "scores"
            problem = f"has the {what} of {other} on {record.data.id}: one run, measured twice"
            raise StsbenchError(f"{owner} {problem}; leave one out")


def _never_equal(measured: Measured) -> str:
    """Return what no two encoders have in common, on whichever data; "" of a record that holds nothing of the kind."""
    record, values = measured.record, [row.value for row in measured.record.scores]
    if measured.protocol.main_metric:  # what is observed beside the scores may tell how long it took
        return repr(values) if len(values) >= FEWEST_SCORES else ""
    classes = any(measured.protocol.metric(row.metric).range == SHARE.range for row in record.scores)
    few = classes and (record.data.n < CLASSES or set(values) == {100.0})
    return record.observations.sha256 if _per_item(measured) and not few else ""


def refuse_near(runs: Sequence[tuple[str, Sequence[Measured]]], near: Collection[Pair] | None = None) -> None:
    """Raise StsbenchError where two runs of an entry differ by less than two seeds ever do. runs: path and records; near:
    the records that `near_pairs` found, if it was asked: no others are read."""
    paths = None if near is None else {(a.path, b.path) for (_, a), (_, b) in near}
    for (one, its), (other, others) in combinations(runs, 2):
        for a, b in product(its, others):
            if (paths is None or (a.path, b.path) in paths) and (reason := _copied(a, b, SAME)):
                raise StsbenchError(f"{other} and {one} are no two seeds: on {a.set_id} {reason}; leave one out")


def _copied(first: Measured, second: Measured, within: float) -> str:
    """Return `nearly_equal` of two records."""
    a, b = comparable_values(first), comparable_values(second)
    return "" if a is None or b is None else nearly_equal(a, b, within)


def nearly_equal(first: Floats, second: Floats, within: float = NEAR) -> str:
    """Return why two encoders' values are a copy, "" where they are not. Whatever a copy calls its data, text and
    setting, it has as many items as what it was copied from."""
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
    """Return 1 less the size of the correlation along the last axis; exact where that is tiny."""
    a, b = _unit(first), _unit(second)
    nearest = np.minimum(np.sum((a - b) ** 2, axis=-1), np.sum((a + b) ** 2, axis=-1)) / 2
    return np.where(a.any(axis=-1) & b.any(axis=-1), nearest, 1.0)


def comparable_values(measured: Measured) -> Floats | None:
    """Return (n,) what is compared of a record: numbers of many digits; None where there are none."""
    name = _per_item(measured)
    values = measured.observed().arrays.get(name) if name else None  # an optional array may not be there
    return None if values is None or values.dtype.kind != "f" else np.asarray(values, dtype=np.float64)


def _per_item(measured: Measured) -> str:
    """Return the array with the encoder's own value of each item, "" for none."""
    return next((key for key, array in measured.protocol.arrays.items() if array.per_item), "")


def _parts(values: Floats) -> Floats:
    """Return (parts, items of each) in their order, without the last few items."""
    count = min(PARTS, len(values) // FEWEST)
    return values[: len(values) // count * count].reshape(count, -1)


def _ranks(values: Floats) -> Floats:
    from scipy.stats import rankdata

    return np.asarray(rankdata(values, axis=-1), dtype=np.float64)


def _unit(values: Floats) -> Floats:
    """Return centred along the last axis, of length 1: the product of two is their correlation. Zeros where all are
    equal."""
    centred = values - values.mean(axis=-1, keepdims=True)
    length = np.linalg.norm(centred, axis=-1, keepdims=True)
    varied = length > 1e-12 * np.maximum(1.0, np.abs(values).max(axis=-1, keepdims=True))
    return np.where(varied, centred / np.where(varied, length, 1.0), 0.0)


def _along(values: Floats, most: int, mixed: bool = True) -> Floats:
    """Return (..., most) of values (..., n) along fixed orthonormal directions, zeros where there are not so many: waves,
    over the sorted values as they are, which two encoders' differ along; else each item with a random sign."""
    from scipy.fft import dct

    n = values.shape[-1]
    signs = np.random.default_rng(n).choice([-1.0, 1.0], n) if mixed else np.ones(n)
    along = np.zeros((*values.shape[:-1], most))
    along[..., :n] = dct(values * signs, norm="ortho", axis=-1)[..., :most]
    return along


def _most(n: float) -> int:
    """Return how many directions n values are known along: the more there are, the less of a difference one shows."""
    return max(DIRECTIONS, int(n) // ITEMS)


def sketch(measured: Measured) -> list[float]:
    """Return the number of values; these, their ranks, the sorted values, and both of their parts along fixed directions,
    in which no two are further apart than they are. [] for none."""
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
    """Return the records of several runs that may be copies of each other, as far as their sketches tell. records: entry,
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
    """Return entry -> the others that it is a copy of but for tiny noise, itself where two of its runs are -> why. pairs:
    those of `near_pairs`."""
    copies: dict[str, dict[str, str]] = {}
    for (one, a), (other, b) in pairs:
        if other not in copies.get(one, {}) and (reason := _copied(a, b, NEAR)):
            copies.setdefault(one, {})[other] = f"on {a.set_id} {reason}"
            copies.setdefault(other, {})[one] = f"on {a.set_id} {reason}"
    return copies


def _candidates(sketches: Floats) -> Iterator[tuple[int, int]]:
    """Yield pairs of rows, sketches of equally many values, that may be of copies. Some rows at a time with all below
    them: a thousand entries of three seeds have four million pairs on each set."""
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
    """Return whether the rows from `start` on, `ROWS` of them, are as near as that to each row from `start` on, or to its
    negative: |a - b|^2 = |a|^2 + |b|^2 - 2 ab."""
    rest = points[start:]
    half = (rest**2).sum(axis=1) / 2
    products = np.abs(rest[:ROWS] @ rest.T)
    return np.asarray(products >= half[:ROWS, None] + (half - square / 2))


def near_copy_notes(entry: str, others: Mapping[str, str]) -> tuple[str, ...]:
    """Return a sentence for each entry that a row is a near-copy of."""
    return tuple(f"two of its seeds are nearly one: {reason}" if other == entry else f"nearly the row of {other}: {reason}"
                 for other, reason in sorted(others.items()))
