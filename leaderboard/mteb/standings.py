"""Ranks from published scores: their intervals over other draws of tasks and, under assumptions, over other items of the
same tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.metrics.ranks import rank_intervals

from .differences import compare_over_tasks, mean_difference_error
from .results import ITEMS, Published, Source
from .rows import Language, PublishedRow, critical, languages, over_items, seven_task_rows

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
_ITEMS = tuple(ITEMS.values())


def tiers(values: Floats, different: Bools) -> Ints:
    """Return int (r,): the tier of each row (higher values are better), 1 for rows that no row is significantly better than.

    different: bool (r, r), line i: the rows that row i differs from in its own test. If that test errs in 5 % of the cases,
    tier 1 contains the truly best row in 95 %, since only that row's own test can exclude it. Each further tier is the first
    tier of the remaining rows. Two rows of one tier may differ significantly.
    """
    result = np.zeros(len(values), dtype=np.int64)
    worse = different & (values[None, :] > values[:, None])  # (i, j): row j is significantly better than row i
    left = np.arange(len(values))
    while len(left):
        members = ~worse[np.ix_(left, left)].any(axis=1)
        result[left[members]] = result.max() + 1
        left = left[~members]
    return result


@dataclass(frozen=True)
class Standing:
    """The rank of a published row. position: 1 + the number of rows with a better mean; first, last: 95 % interval of the
    rank over draws of tasks, for this row by itself; jointly: for all rows jointly; on_items: over other items of the seven
    tasks, if two models' errors are independent (a wide interval); tier: see `tiers`; differs: whether the row differs from
    that of the best mean, in a test of these two alone."""

    position: int
    first: int
    last: int
    jointly: tuple[int, int]
    on_items: tuple[int, int]
    tier: int
    differs: bool


@dataclass(frozen=True)
class SharedErrors:
    """The correlation of two encoders' errors on one set of items: quantiles over the `pairs` of `rows` measured rows; and
    the median ratio of a mean's bootstrap error to that computed from score and number of items."""

    rows: int
    pairs: int
    low: float  # 5 % of the pairs are below
    middle: float
    high: float  # 95 % are
    ratio: float  # the median


@dataclass(frozen=True)
class Check:
    """A comparison of tests from printed scores with tests over items, on all pairs of measured rows, each pair by itself.

    differ: pairs that differ by the test over items. sure_differ: pairs that differ from printed scores under every
    assumption on shared errors; sure_same: under none; wrong_differ, wrong_same: those of them that the items contradict.
    tasks: pairs that differ in the test over tasks.
    """

    pairs: int
    differ: int
    sure_differ: int
    sure_same: int
    wrong_differ: int
    wrong_same: int
    tasks: int


@dataclass(frozen=True)
class Separated:
    """Numbers under one assumption: pairs of neighbours that differ, pairs that differ, and rows that could be first."""

    assumption: str
    adjacent: int
    pairs: int
    first: int


@dataclass(frozen=True)
class MeasuredHere:
    """An entry of the board that measures a published model. scores: task -> score x 100, of MTEB's seven tasks."""

    entry: str
    model: str
    scores: Mapping[str, float]

    @property
    def mean(self) -> float:
        return sum(self.scores.values()) / len(self.scores)


@dataclass(frozen=True)
class AsPublished:
    """The published models with all seven tasks, best first, with their standings (None for a row that is not ranked)."""

    rows: tuple[PublishedRow, ...]
    standings: tuple[Standing | None, ...]
    separated: tuple[Separated, ...]  # over tasks, then over items
    shared: SharedErrors | None
    check: Check | None
    source: Source
    measured_here: tuple[MeasuredHere, ...]
    languages: tuple[Language, ...]
    training: Mapping[str, Sequence[str]]  # as in `Published`
    declared: tuple[Standing | None, ...]  # standings among models whose known training sets hold no pairs of the tasks
    without: tuple[Standing | None, ...] = ()  # standings among all models but those trained on pairs of the tasks
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # as in `Published`
    models: Mapping[str, str] = field(default_factory=dict)  # entry -> the model it measures, some of the tasks or all

    @property
    def ranked(self) -> int:
        return sum(standing is not None for standing in self.standings)

    def tier(self, number: int, declared: bool = False) -> list[PublishedRow]:
        """Return the rows of a tier, best first. declared: whether to take the tier from the standings in `declared`."""
        standings = self.declared if declared else self.standings
        return [row for row, at in zip(self.rows, standings, strict=True) if at and at.tier == number]

    def trained(self, model: str) -> str:
        """Return "yes", "no" or "unknown": whether a model's makers state training sets with pairs of the tasks."""
        return trained_on_kin(self.training, model)


def as_published(
    published: Published, measured: Floats | None = None, draws: Floats | None = None,
    measured_here: Sequence[MeasuredHere] = (),
) -> AsPublished:
    """Return the published rows with their standings. measured: (m, 7) correlations of the board's rows on the same tasks;
    draws: (m, 7, resamples) bootstrap draws of them with shared resamples, which give the correlation of errors and the
    check. measured_here: the entries that measure one of the published models."""
    rows = seven_task_rows(published.scores)
    scores = score_matrix(rows)
    able = np.flatnonzero([not row.unranked for row in rows])
    shared = check = None
    if measured is not None and draws is not None and len(measured) > 1:
        shared = shared_errors(measured, draws)
        check = checked(measured, draws, shared)
    some, separated = standings(scores[able], shared)
    by_row = dict(zip(able.tolist(), some, strict=True))

    def among(words: str) -> tuple[Standing | None, ...]:
        some = [i for i in able.tolist() if trained_on_kin(published.training, rows[i].model) in words.split()]
        alone = dict(zip(some, standings(scores[some], shared)[0] if some else [], strict=True))
        return tuple(alone.get(i) for i in range(len(rows)))

    return AsPublished(rows, tuple(by_row.get(i) for i in range(len(rows))), tuple(separated), shared, check,
                       published.source, tuple(measured_here), languages(published.scores), published.training,
                       among("no"), among("no unknown"), published.facts, published.measured_here)


def trained_on_kin(training: Mapping[str, Sequence[str]], model: str) -> str:
    """Return "yes", "no" or "unknown": whether a model's makers state training sets with pairs of the tasks (kin)."""
    sets = training.get(model)
    return "unknown" if sets is None else "yes" if sets else "no"


def score_matrix(rows: Sequence[PublishedRow]) -> Floats:
    """Return (r, 7) correlations, in the order of ITEMS."""
    return np.array([[row.scores[task] for task in ITEMS] for row in rows]) / 100


def standings(scores: Floats, shared: SharedErrors | None) -> tuple[list[Standing], list[Separated]]:
    """Return the standings of rows of (r, 7) correlations, and the numbers of separated pairs under each assumption."""
    means = scores.mean(axis=1)
    tested = compare_over_tasks(scores)
    position, first, last = rank_intervals(means, tested.alone)
    _, *jointly = rank_intervals(means, tested.jointly)
    by_items = {assumption: over_items(scores, _ITEMS, value) for assumption, value in assumptions(shared).items()}
    _, *on_items = rank_intervals(means, by_items[next(iter(by_items))][1])
    levels = tiers(means, tested.alone)
    table = zip(position, first, last, zip(*jointly, strict=True), zip(*on_items, strict=True), levels,
                tested.pairs[int(np.argmax(means))], strict=True)
    rows = [Standing(int(at), int(low), int(high), _two(both), _two(items), int(tier), bool(differs))
            for at, low, high, both, items, tier, differs in table]
    separated = [_separated("over tasks", means, tested.pairs, tested.alone)]
    separated += [_separated(name, means, *tests) for name, tests in by_items.items()]
    return rows, separated


def assumptions(shared: SharedErrors | None) -> dict[str, float]:
    """Return description -> assumed correlation of two models' errors on one set of items, the most cautious assumption
    first."""
    known = {"errors independent": 0.0}
    if shared is not None:
        known |= {f"errors correlate by {value:.2f}": value for value in (shared.low, shared.middle, shared.high)}
    return known


def shared_errors(scores: Floats, draws: Floats) -> SharedErrors:
    """Return how much errors correlate, from (m, 7) correlations and their (m, 7, resamples) bootstrap draws."""
    one, other = np.triu_indices(len(scores), 1)
    of_tasks = [np.asarray(np.corrcoef(draws[:, task]))[one, other] for task in range(draws.shape[1])]
    correlations = np.mean(of_tasks, axis=0)
    low, middle, high = (round(float(value), 2) for value in np.quantile(correlations, (0.05, 0.5, 0.95)))
    computed = np.diagonal(mean_difference_error(scores, np.array(_ITEMS, dtype=np.float64), 0.0)) / np.sqrt(2)
    ratio = np.median(draws.mean(axis=1).std(axis=1, ddof=1) / computed)
    return SharedErrors(len(scores), len(one), low, middle, high, round(float(ratio), 2))


def checked(scores: Floats, draws: Floats, shared: SharedErrors) -> Check:
    """Return how far tests from `scores` (m, 7) alone agree with tests over items, by the standard deviation of differences
    in `draws` (m, 7, resamples)."""
    one, other = np.triu_indices(len(scores), 1)
    gaps = np.abs(scores.mean(axis=1)[one] - scores.mean(axis=1)[other])
    means = draws.mean(axis=1)
    spread = (means[one] - means[other]).std(axis=1, ddof=1)
    differ = gaps > critical(1) * spread
    verdicts = [over_items(scores, _ITEMS, value)[0][one, other] for value in (shared.low, shared.high)]
    sure, never = verdicts[0] & verdicts[1], ~verdicts[0] & ~verdicts[1]
    tasks = compare_over_tasks(scores).pairs[one, other]
    return Check(len(one), *(int(some.sum()) for some in (differ, sure, never, sure & ~differ, never & differ, tasks)))


def _separated(assumption: str, means: Floats, pairs: Bools, alone: Bools) -> Separated:
    order = np.argsort(-means, kind="stable")
    better = means[None, :] > means[:, None]
    upper = np.triu_indices(len(means), 1)
    first = ~(better & alone).any(axis=1)
    return Separated(assumption, sum(bool(pairs[i, j]) for i, j in pairwise(order)), int(pairs[upper].sum()),
    int(first.sum()))


def _two(bounds: Sequence[int]) -> tuple[int, int]:
    low, high = bounds
    return int(low), int(high)
