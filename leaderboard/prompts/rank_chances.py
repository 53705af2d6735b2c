"""How much ranks depend on the prompt: chances, intervals and bounds of ranks, concordance, shares of variance.

Scores are higher-is-better: negate those of which lower is. A prompt that was not run is NaN. Kostiuk and Enevoldsen 2026
(arXiv 2605.22544) vary prompts; how their scores are summed up here is stated at each function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stsbench.errors import StsbenchError
from stsbench.metrics.aggregation import measured_scores

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class RankChances:
    """Of m models. ranks: float64 (m, m), line i the chance of model i to have rank 1, 2, ...; lines and columns sum to 1,
    models that tie share their ranks evenly. beats: (m, m), the chance that model i is above model j, a tie counted half.
    """

    ranks: Floats
    beats: Floats

    @property
    def first(self) -> Floats:
        """Return (m,) chances of rank 1."""
        return self.ranks[:, 0]

    @property
    def expected(self) -> Floats:
        """Return (m,) expected ranks, 1 the best."""
        expected: Floats = self.ranks @ np.arange(1.0, len(self.ranks) + 1)
        return expected


def independent_ranks(scores: Sequence[Floats]) -> RankChances:
    """Return where each model draws one of its own prompts, all alike and independently. scores: (p_i,) of each model.

    Exact, ties included: behind a score, each other model is above, equal or below with known chances, and how many are
    above and equal follows by adding one model after another (a Poisson binomial distribution of two counts).
    StsbenchError: a model has no score.
    """
    runs = [np.sort(measured_scores(row)) for row in scores]
    ranks = np.stack([_rank_chances(run, [other for j, other in enumerate(runs) if j != i]) for i, run in enumerate(runs)])
    beats = np.array([[_shares(one, other)[0].mean() + _shares(one, other)[1].mean() / 2 for other in runs] for one in runs])
    return RankChances(ranks, beats)


def chances_of_first(scores: Sequence[Floats]) -> Floats:
    """(m,): `independent_ranks(scores).first`, quick for many models: one whose best score is below the worst of another
    is never first."""
    runs = [measured_scores(row) for row in scores]
    worst = max(float(run.min()) for run in runs)
    able = [i for i, run in enumerate(runs) if run.max() >= worst]
    chances = np.zeros(len(runs))
    chances[able] = independent_ranks([runs[i] for i in able]).first
    return chances


def rank_intervals_over_prompts(
    models: Ints, scores: Floats, different: Bools, level: float = 0.95
) -> tuple[Ints, Ints]:
    """Return (first, last), each int (m,): intervals of the models' ranks where each draws one of its own prompts, all alike
    and independently; exact.

    models: (v,) whose each score is, 0 to m - 1; scores: (v,), one a model and prompt; different: bool (v, v), which of
    them differ significantly. In a draw a model's rank is at best 1 + how many of the others' drawn scores are
    significantly better, and at worst m - how many are significantly worse. At most 2.5 % of the draws have a best rank
    before `first`, at most 2.5 % a worst one behind `last`. Where `different` was tested jointly, at 5 % for all pairs, so
    that the ranks of every draw are covered at once, an interval holds, with 95 % confidence, its model's true rank in at
    least 95 % of the draws.
    """
    better = (scores[None, :] > scores[:, None]) & different  # column than row
    tail = (1 - level) / 2
    return 1 + _fewest(better, models, tail), models.max() + 1 - _fewest(better.T, models, tail)


def common_ranks(scores: Floats) -> RankChances:
    """Return where all models read the same prompt, drawn from the p of (m, p) scores; a prompt that one of them lacks is
    left out.

    StsbenchError: no prompt is left.
    """
    shared = shared_prompts(scores)
    single = [independent_ranks([row[[k]] for row in shared]) for k in range(shared.shape[1])]
    return RankChances(np.mean([one.ranks for one in single], axis=0), np.mean([one.beats for one in single], axis=0))


def shared_prompts(scores: Floats) -> Floats:
    """Return the columns of (m, p) scores that every model has. StsbenchError: there is none."""
    shared: Floats = np.asarray(scores, dtype=np.float64)
    shared = shared[:, np.isfinite(shared).all(axis=0)]
    if not shared.size:
        raise StsbenchError("no prompt was run with every model")
    return shared


@dataclass(frozen=True)
class RankBounds:
    """Best and worst rank of each of m models, int (m,), by choice of prompts; rank: 1 + how many are strictly better.

    own: the model's own prompt is chosen, the others have their default; every: all are chosen, against it or for it.
    """

    own_best: Ints
    own_worst: Ints
    every_best: Ints
    every_worst: Ints


def rank_bounds(low: Floats, high: Floats, default: Floats) -> RankBounds:
    """From each model's worst and best score over prompts and its score by default, each (m,): of a set, or means over
    sets, each of them with a prompt of its own."""
    return RankBounds(_rank(high, default), _rank(low, default), _rank(high, low), _rank(low, high))


@dataclass(frozen=True)
class Split:
    """Shares of the sum of squares of scores around their mean, which add up to 1: what the models' means explain, what the
    prompts' means explain, and the rest, which is the two together and chance."""

    model: float
    prompt: float
    rest: float


def variance_split(scores: Floats) -> Split:
    """Of (m, p) scores in two ways, one score a cell, without prompts that a model lacks. All NaN where no score differs."""
    shared = shared_prompts(scores)
    centred = shared - shared.mean()
    total = float((centred**2).sum())
    rows, columns = centred.mean(axis=1, keepdims=True), centred.mean(axis=0, keepdims=True)
    parts = [float((np.broadcast_to(part, shared.shape) ** 2).sum()) for part in (rows, columns, centred - rows - columns)]
    return Split(*(part / total if total > 0 else np.nan for part in parts))


def kendall_w(scores: Floats) -> float:
    """Return Kendall's coefficient of concordance of m models' ranks over p prompts, corrected for ties; 1: the same order
    always.

    scores (m, p), without prompts that a model lacks. NaN for one model, and where all models tie with every prompt.
    """
    from scipy.stats import rankdata

    shared = shared_prompts(scores)
    m, p = shared.shape
    ranks = rankdata(shared, axis=0)
    ties = [np.unique(column, return_counts=True)[1] for column in shared.T]
    tied = sum(float((counts**3 - counts).sum()) for counts in ties)
    square = float(((ranks.sum(axis=1) - p * (m + 1) / 2) ** 2).sum())
    below = p**2 * (m**3 - m) - p * tied
    return 12 * square / below if below > 0 else np.nan


def _rank(scores: Floats, rivals: Floats) -> Ints:
    """(m,): the rank of each model's score among the others' `rivals`."""
    better = np.asarray(rivals)[None, :] > np.asarray(scores)[:, None]
    np.fill_diagonal(better, False)
    rank: Ints = 1 + better.sum(axis=1)
    return rank


def _shares(scores: Floats, rivals: Floats) -> tuple[Floats, Floats]:
    """For each of (p,) scores the shares of sorted `rivals` that are below it, and equal to it."""
    low, high = np.searchsorted(rivals, scores, "left"), np.searchsorted(rivals, scores, "right")
    return low / len(rivals), (high - low) / len(rivals)


def _fewest(counted: Bools, models: Ints, tail: float) -> Ints:
    """(m,): the smallest number of other models' drawn scores that are counted, where at most `tail` of the draws have
    fewer. counted: bool (v, v), whether the score of a column is counted against that of a line.

    Against one score each other model counts with a chance of its own, so that their number is Poisson binomial; those
    that surely count, or surely not, are left out of it.
    """
    sizes = np.bincount(models)
    m = len(sizes)
    chances = counted.astype(np.float64) @ (models[:, None] == np.arange(m)) / sizes
    chances[np.arange(len(models)), models] = 0  # another prompt of the same model is not drawn with this one
    open_ = ((chances > 0) & (chances < 1)).any(axis=0)
    sure = np.rint(chances[:, ~open_].sum(axis=1)).astype(np.int64)
    number = np.zeros((len(models), int(open_.sum()) + 1))
    number[:, 0] = 1
    for chance in chances.T[open_]:
        after = number * (1 - chance[:, None])
        after[:, 1:] += number[:, :-1] * chance[:, None]
        number = after
    of_models = np.zeros((m, m + number.shape[1]))
    at = sure[:, None] + np.arange(number.shape[1])
    np.add.at(of_models, (models[:, None], at), number / sizes[models][:, None])
    fewest: Ints = (of_models.cumsum(axis=1) > tail + 1e-9).argmax(axis=1)
    return fewest


def _rank_chances(scores: Floats, rivals: Sequence[Floats]) -> Floats:
    """(m,): the chances of ranks of a model that draws one of (p,) scores, against m - 1 others that draw theirs."""
    m = len(rivals) + 1
    chance = np.zeros((m, m, len(scores)))  # the chance of so many rows above and so many equal, by score
    chance[0, 0] = 1
    for other in rivals:
        below, equal = _shares(scores, other)
        after = chance * below
        after[1:] += chance[:-1] * np.clip(1 - below - equal, 0, None)
        after[:, 1:] += chance[:, :-1] * equal
        chance = after
    over = chance.mean(axis=2)
    ranks = np.zeros(m)
    for above in range(m):
        for ties in range(m - above):
            ranks[above : above + ties + 1] += over[above, ties] / (ties + 1)
    return ranks
