"""Inter-annotator agreement, and the score that a perfect model is expected to reach against the mean of raw labels, which
are read as a column per annotator, a list in one column, long form, or best-worst votes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from scipy.stats import rankdata

from stsbench.data.own.table import column_names, is_number, named_columns
from stsbench.display.table import Column, Document, Table
from stsbench.errors import DataError
from stsbench.evaluation.records import ScoreRow

FIGURES = Path(__file__).with_name("figures.yaml")
LABELS = "labels"  # the default column, with several labels per cell
SPLITS = 50  # random halves whose correlations are averaged
RESAMPLES, SPLITS_EACH = 500, 4  # resamples of the interval, and random halves of each resample
FEWEST = 10  # least number of items with two labels
Floats = NDArray[np.float64]
Halves = Callable[[NDArray[np.intp], np.random.Generator], tuple[Floats, Floats]]


def measure_ceiling(
    path: str | Path, labels: Sequence[str] = (LABELS,), *, item: str | None = None, votes: Sequence[str] = (),
    best: str = "best", worst: str = "worst", seed: int = 0,
) -> Ceiling:
    """Return the score that a perfect model is expected to reach against the mean of raw labels in a table.

    labels: a column for each annotator, or one whose cells hold several (1,2,2 or [1, 2, 2]). item: column that names the
    item in a table in long form, with a row for each label. votes: for best-worst votes, the columns of the items shown;
    best, worst: columns with the chosen item, or its position from 1. Raises DataError, one line that names file and row.

    >>> from stsbench.extensions.ceiling.labels import measure_ceiling
    >>> rows = [f"{i % 6},{i % 6 + i % 2},{i % 6}" for i in range(60)]
    >>> _ = open("raw.csv", "w").write("\\n".join(["a,b,c", *rows]))
    >>> round(measure_ceiling("raw.csv", ["a", "b", "c"]).best, 1) > 95
    True
    """
    path = Path(path)
    if item and (votes or len(labels) > 1):
        raise DataError(f"{path}: --item is of long form, with one column of --labels and without --votes")
    try:
        if votes:
            return ceiling_of_votes(path.name, _votes(path, votes, best, worst), seed)
        return ceiling_of_ratings(path.name, _long(path, labels[0], item) if item else _wide(path, labels), seed)
    except ValueError as error:
        raise DataError(f"{path}: {error}") from error


def remarks(protocol: str, source: Path | None, set_id: str, scores: Sequence[ScoreRow]) -> list[str]:
    """Return a sentence with the ceiling for a file of scored pairs with a column of raw labels, or for each part of a set
    whose ceiling is known, and a warning for a score above it; [] without a ceiling."""
    if protocol != "sts":
        return []
    if figures := known_ceilings().get(set_id):
        parts = {part: [row for row in scores if row.subset == part] for part in figures}
        return [_remark(part, *figures[part], rows) for part, rows in parts.items() if rows]
    try:
        if source is None or not source.is_file() or LABELS not in column_names(source):
            return []
        ceiling = measure_ceiling(source)
    except DataError:
        return []
    return [_remark(source.name, ceiling.best, ceiling.low, ceiling.high, [row for row in scores if row.subset is None])]


@cache
def known_ceilings() -> dict[str, dict[str, tuple[float, float, float]]]:
    """Return set -> part -> (best, low, high): results of `measure_ceiling` on raw labels that the authors published, for
    sets that hold only the labels' means."""
    known: dict[str, dict[str, tuple[float, float, float]]] = yaml.safe_load(FIGURES.read_text("utf-8"))
    return known


def _remark(name: str, best: float, low: float, high: float, scores: Sequence[ScoreRow]) -> str:
    above = [row for row in scores if row.metric == "spearman" and row.value > high][:1]
    doubt = "".join(f"; {row.value:.2f} is above it: were these labels trained on?" for row in above)
    return (f"{name}: a perfect model is expected to score {best:.1f} ({low:.1f} to {high:.1f}) against these labels, by "
            f"how far their annotators agree{doubt}")


def _wide(path: Path, names: Sequence[str]) -> Floats:
    rows = [[value for name in names for value in _numbers(row[name], location, name, len(names) == 1)]
            for location, row in named_columns(path, names)]
    return _matrix(rows)


def _long(path: Path, label: str, item: str) -> Floats:
    rows: dict[str, list[float]] = {}
    for location, row in named_columns(path, [item, label]):
        rows.setdefault(str(row[item]), []).extend(_numbers(row[label], location, label, False))
    return _matrix(list(rows.values()))


def _matrix(rows: Sequence[Sequence[float]]) -> Floats:
    """Return (n, k) labels, padded with NaN for items with fewer."""
    matrix = np.full((len(rows), max(map(len, rows), default=0)), np.nan)
    for row, values in zip(matrix, rows, strict=True):
        row[: len(values)] = values
    return matrix


def _numbers(cell: Any, location: str, name: str, several: bool) -> list[float]:
    """Return the labels of a cell: one, several of a list, or none of an empty cell. Raises DataError."""
    if isinstance(cell, str) and several:
        try:
            cell = json.loads(cell) if cell.strip().startswith("[") else cell.split(",")
        except ValueError as error:
            raise DataError(f"{location}: {name} is no list of numbers: {cell!r}") from error
    values = cell if isinstance(cell, list) else [cell]
    if wrong := [value for value in values if value not in (None, "") and not is_number(str(value))]:
        raise DataError(f"{location}: {name} must be a number, not {wrong[0]!r}")
    return [float(value) for value in values if value not in (None, "")]


def _votes(path: Path, names: Sequence[str], best: str, worst: str) -> NDArray[np.intp]:
    number: dict[str, int] = {}
    rows = []
    for location, row in named_columns(path, [*names, best, worst]):
        shown = [str(row[name]) for name in names]
        chosen = [_chosen(str(row[name]), shown, location, name) for name in (best, worst)]
        rows.append([*(number.setdefault(text, len(number)) for text in shown), *(number[text] for text in chosen)])
    return np.array(rows, dtype=np.intp).reshape(-1, len(names) + 2)


def _chosen(cell: str, items: Sequence[str], location: str, name: str) -> str:
    """Return the item that a vote chose; the cell holds the item or its position from 1."""
    if cell in items:
        return cell
    if cell.strip().isdecimal() and 1 <= int(cell) <= len(items):
        return items[int(cell) - 1]
    raise DataError(f"{location}: {name} must be a position from 1 to {len(items)}, or one of the items, not {cell[:40]!r}")


@dataclass(frozen=True)
class Ceiling:
    """Agreement of n items' labels; all correlations are Spearman's, x 100.

    one: a random label of each item against the mean of its others, None for votes; half: split-half correlation, the mean
    of a random half of an item's labels against that of the other half. reliability: of all labels, from `half` by the
    Spearman-Brown formula, generalised to halves of unequal size. best: 100 times the root of the reliability, the expected
    score of a model that knows the true score (Spearman 1904, attenuation); low, high: its 95 % interval, over items. alpha:
    Krippendorff's alpha for an interval scale, None for votes.
    """

    name: str
    items: int
    labels: int
    half: float
    reliability: float
    best: float
    low: float
    high: float
    one: float | None = None
    alpha: float | None = None

    def document(self) -> Document:
        """Return a table of the agreement, with the expected best score below it."""
        rows = {
            "one label against the mean of the others": self.one, "half against half": self.half,
            "reliability of all labels (Spearman and Brown)": self.reliability,
            "Krippendorff's alpha, interval scale, x 100": None if self.alpha is None else 100 * self.alpha,
        }
        shown = {name: value for name, value in rows.items() if value is not None}
        table = Table(f"{self.name}: {self.items:,} items, {self.labels:,} labels", [
            Column("Spearman x 100", list(shown)), Column("value", list(shown.values()), 1),
        ])
        return Document([table], below=[
            "The root of the reliability: what a model that knows the true scores would score against these labels' mean.",
            f"expected best of a perfect model: {self.best:.1f} ({self.low:.1f} to {self.high:.1f})",
        ])


def ceiling_of_ratings(name: str, ratings: Floats, seed: int = 0) -> Ceiling:
    """Return the ceiling of (n, k) labels, NaN where an annotator gave none; items with fewer than two are left out.

    Raises ValueError where fewer than FEWEST items have two labels, or all labels are equal.
    """
    ratings = ratings[np.isfinite(ratings).sum(axis=1) >= 2]
    if len(ratings) < FEWEST:
        raise ValueError(f"{len(ratings)} items have two labels or more, and {FEWEST} are needed")
    known = np.isfinite(ratings)
    if np.ptp(ratings[known]) == 0:
        raise ValueError("all labels are equal")
    counts, values = known.sum(axis=1), np.where(known, ratings, 0.0)

    def first_labels(rows: NDArray[np.intp], taken: NDArray[np.intp], rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Return for each row the mean of `taken` randomly drawn labels, and the mean of its other labels."""
        order = np.argsort(np.where(known[rows], rng.random((len(rows), ratings.shape[1])), 2.0), axis=1)
        sums = np.cumsum(np.take_along_axis(values[rows], order, axis=1), axis=1)
        first, whole = sums[np.arange(len(rows)), taken - 1], sums[:, -1]
        return first / taken, (whole - first) / (counts[rows] - taken)

    def halves(rows: NDArray[np.intp], rng: np.random.Generator) -> tuple[Floats, Floats]:
        return first_labels(rows, counts[rows] // 2, rng)

    rng, rows = np.random.default_rng(seed), np.arange(len(ratings))
    singles = [_spearman(*first_labels(rows, np.ones(len(rows), np.intp), rng)) for _ in range(SPLITS)]
    sizes = float(np.mean(counts // 2)), float(np.mean(counts - counts // 2))
    return _ceiling(name, len(ratings), int(counts.sum()), halves, rng, sizes=sizes, single=100 * float(np.mean(singles)),
                    alpha=krippendorff_alpha(ratings))


def ceiling_of_votes(name: str, votes: NDArray[np.intp], seed: int = 0) -> Ceiling:
    """Return the ceiling of best-worst votes (v, m + 2): the m items shown, then the best and the worst of them.

    An item's score is the share of its votes as best minus that as worst. Votes on the same items are divided between the
    halves, and the interval resamples groups of items that were shown together. Raises ValueError where fewer than FEWEST
    items are in both halves.
    """
    shown, best, worst = votes[:, :-2], votes[:, -2], votes[:, -1]
    items = int(shown.max()) + 1
    group = np.unique(np.sort(shown, axis=1), axis=0, return_inverse=True)[1].ravel()
    members = np.split(np.argsort(group, kind="stable"), np.cumsum(np.bincount(group))[:-1])

    def scores(chosen: NDArray[np.intp]) -> Floats:
        gained = np.bincount(best[chosen], minlength=items) - np.bincount(worst[chosen], minlength=items)
        with np.errstate(invalid="ignore"):
            return np.asarray(gained / np.bincount(shown[chosen].ravel(), minlength=items))

    def halves(groups: NDArray[np.intp], rng: np.random.Generator) -> tuple[Floats, Floats]:
        chosen = np.concatenate([members[number] for number in groups])
        copy = np.repeat(np.arange(len(groups)), [len(members[number]) for number in groups])
        order = np.lexsort((rng.random(len(chosen)), copy))  # at random within each group
        position = np.arange(len(chosen)) - np.searchsorted(copy, copy)
        second = (position + rng.integers(0, 2, len(groups))[copy]) % 2 == 1
        first_half, second_half = (scores(chosen[order][half]) for half in (~second, second))
        both = np.isfinite(first_half) & np.isfinite(second_half)
        return first_half[both], second_half[both]

    rng = np.random.default_rng(seed)
    if len(halves(np.arange(len(members)), rng)[0]) < FEWEST:
        raise ValueError(f"fewer than {FEWEST} items are in the votes of both halves")
    return _ceiling(name, items, len(votes), halves, rng, units=len(members))


def krippendorff_alpha(ratings: Floats) -> float:
    """Return Krippendorff's alpha of (n, k) labels on an interval scale, NaN for a missing label: 1 - observed / expected
    disagreement, both mean squared differences of two labels (Krippendorff 2004, Content Analysis, chapter 11)."""
    known = np.isfinite(ratings)
    counts, values = known.sum(axis=1), np.where(known, ratings, 0.0)

    def differences(count: Floats, total: Floats, squares: Floats) -> Floats:
        """Return the sum of (x - y)^2 over ordered pairs of `count` labels, from their sum and their sum of squares."""
        return 2 * (count * squares - total**2)

    observed = np.sum(differences(counts, values.sum(axis=1), (values**2).sum(axis=1)) / (counts - 1))
    every = known.sum()
    expected = differences(every, values.sum(), (values**2).sum()) / (every - 1)
    return float(1 - observed / expected)


def _ceiling(
    name: str, items: int, labels: int, halves: Halves, rng: np.random.Generator, units: int | None = None,
    sizes: tuple[float, float] = (1.0, 1.0), single: float | None = None, alpha: float | None = None,
) -> Ceiling:
    units = items if units is None else units

    def half(chosen: NDArray[np.intp], splits: int) -> float:
        return float(np.mean([_spearman(*halves(chosen, rng)) for _ in range(splits)]))

    whole = half(np.arange(units), SPLITS)
    draws = [_best(half(rng.integers(0, units, units), SPLITS_EACH), sizes) for _ in range(RESAMPLES)]
    reach = np.abs(np.array(draws) - np.median(draws))  # only the spread is used: repeated items shift the median
    width = float(np.quantile(reach, 0.95))
    best = _best(whole, sizes)
    return Ceiling(name, items, labels, 100 * whole, 100 * best**2, 100 * best, 100 * max(0.0, best - width),
                   100 * min(1.0, best + width), single, alpha)


def _best(half: float, sizes: tuple[float, float]) -> float:
    """Return the root of the reliability of all labels, 0 for a split-half correlation `half` of 0 or less.

    sizes: labels a and b per half. If r is the reliability of one label, that of k labels is k r / (1 + (k - 1) r), and
    half^2 is the product of those of a and of b labels.
    """
    if half <= 0:
        return 0.0
    a, b = sizes
    square = half**2
    r = max(np.roots([a * b - square * (a - 1) * (b - 1), -square * (a + b - 2), -square]).real)
    return float(np.sqrt((a + b) * r / (1 + (a + b - 1) * r)))


def _spearman(first: Floats, second: Floats) -> float:
    return float(np.corrcoef(rankdata(first), rankdata(second))[0, 1])
