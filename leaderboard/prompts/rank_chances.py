"""Dependence of ranks on the prompt: probabilities, intervals and bounds of ranks, Kendall's W, shares of variance.

Higher scores are better: negate scores of which lower is better. A prompt that was not run is NaN. Kostiuk and Enevoldsen
2026 (arXiv 2605.22544) vary prompts; each function states how it summarises such scores.
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
    """Rank probabilities of m models. ranks: float64 (m, m), line i for ranks 1, 2, ... of model i; lines and columns sum to
    1, and ties share their ranks evenly. beats: (m, m), the probability that model i is above j, a tie counted half.
    """

    ranks: Floats
    beats: Floats

    @property
    def first(self) -> Floats:
        """Return (m,) probabilities of rank 1."""
        return self.ranks[:, 0]

    @property
    def expected(self) -> Floats:
        """Return (m,) expected ranks, 1 the best."""
        expected: Floats = self.ranks @ np.arange(1.0, len(self.ranks) + 1)
        return expected


def independent_ranks(scores: Sequence[Floats]) -> RankChances:
    """Return rank probabilities if each model draws one of its prompts, uniformly and independently. scores: (p_i,) each.

    Exact, with ties: given a model's score, each other model is above, equal or below with known probabilities, and the
    numbers above and equal follow a Poisson binomial distribution of two counts, computed by adding one model after another.
    Raises StsbenchError where a model has no score.
    """
    runs = [np.sort(measured_scores(row)) for row in scores]
    ranks = np.stack([_rank_chances(run, [other for j, other in enumerate(runs) if j != i]) for i, run in enumerate(runs)])
    beats = np.array([[_shares(one, other)[0].mean() + _shares(one, other)[1].mean() / 2 for other in runs] for one in runs])
    return RankChances(ranks, beats)


def chances_of_first(scores: Sequence[Floats]) -> Floats:
    """Return (m,) `independent_ranks(scores).first`, faster for many models: models whose best score is below another's
    worst are skipped, as they are never first."""
    runs = [measured_scores(row) for row in scores]
    worst = max(float(run.min()) for run in runs)
    able = [i for i, run in enumerate(runs) if run.max() >= worst]
    chances = np.zeros(len(runs))
    chances[able] = independent_ranks([runs[i] for i in able]).first
    return chances


def rank_intervals_over_prompts(
    models: Ints, scores: Floats, different: Bools, level: float = 0.95
) -> tuple[Ints, Ints]:
    """Return (first, last), each int (m,): exact intervals of the models' ranks if each draws one of its prompts, uniformly
    and independently.

    models: (v,) the model of each score, 0 to m - 1; scores: (v,), one per model and prompt; different: bool (v, v), which
    scores differ significantly. In a draw a model's best rank is 1 + the number of the others' drawn scores that are
    significantly better, and its worst rank m - the number that are significantly worse. The best rank is below `first` in
    at most 2.5 % of the draws, the worst rank above `last` in at most 2.5 %. If `different` was tested jointly, at 5 % for
    all pairs, an interval contains, with 95 % confidence, its model's true rank in at least 95 % of the draws.
    """
    better = (scores[None, :] > scores[:, None]) & different  # (i, j): score j is significantly better than score i
    tail = (1 - level) / 2
    return 1 + _fewest(better, models, tail), models.max() + 1 - _fewest(better.T, models, tail)


def common_ranks(scores: Floats) -> RankChances:
    """Return rank probabilities if all models read the same prompt, drawn uniformly from the p of (m, p) scores. Prompts
    that a model lacks are left out.

    Raises StsbenchError where no prompt is left.
    """
    shared = shared_prompts(scores)
    single = [independent_ranks([row[[k]] for row in shared]) for k in range(shared.shape[1])]
    return RankChances(np.mean([one.ranks for one in single], axis=0), np.mean([one.beats for one in single], axis=0))


def shared_prompts(scores: Floats) -> Floats:
    """Return the columns of (m, p) scores that every model has. Raises StsbenchError where there are none."""
    shared: Floats = np.asarray(scores, dtype=np.float64)
    shared = shared[:, np.isfinite(shared).all(axis=0)]
    if not shared.size:
        raise StsbenchError("no prompt was run with every model")
    return shared


@dataclass(frozen=True)
class RankBounds:
    """Best and worst ranks, int (m,), of m models over choices of prompts; a rank is 1 + the number of better models.

    own: the model's own prompt is chosen, the others keep their default; every: all prompts are chosen, for or against it.
    """

    own_best: Ints
    own_worst: Ints
    every_best: Ints
    every_worst: Ints


def rank_bounds(low: Floats, high: Floats, default: Floats) -> RankBounds:
    """Return rank bounds from each model's worst and best score over prompts and its default score, each (m,): of one set,
    or means over sets where each set has its own prompt."""
    return RankBounds(_rank(high, default), _rank(low, default), _rank(high, low), _rank(low, high))


@dataclass(frozen=True)
class Split:
    """Shares of the total sum of squares of scores, which add up to 1: explained by the models' means, by the prompts'
    means, and the rest, which is interaction and chance."""

    model: float
    prompt: float
    rest: float


def variance_split(scores: Floats) -> Split:
    """Return the shares of variance of (m, p) scores, without prompts that a model lacks; NaN where all scores are equal."""
    shared = shared_prompts(scores)
    centred = shared - shared.mean()
    total = float((centred**2).sum())
    rows, columns = centred.mean(axis=1, keepdims=True), centred.mean(axis=0, keepdims=True)
    parts = [float((np.broadcast_to(part, shared.shape) ** 2).sum()) for part in (rows, columns, centred - rows - columns)]
    return Split(*(part / total if total > 0 else np.nan for part in parts))


def kendall_w(scores: Floats) -> float:
    """Return Kendall's W (coefficient of concordance) of m models' ranks over p prompts, corrected for ties; 1 means that
    all prompts give the same order.

    scores: (m, p); prompts that a model lacks are left out. NaN for one model, and where all models tie with every prompt.
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
    """Return int (m,): the rank of each model's score among the others' `rivals`."""
    better = np.asarray(rivals)[None, :] > np.asarray(scores)[:, None]
    np.fill_diagonal(better, False)
    rank: Ints = 1 + better.sum(axis=1)
    return rank


def _shares(scores: Floats, rivals: Floats) -> tuple[Floats, Floats]:
    """Return (p,) and (p,): for each score the shares of the sorted `rivals` that are below it, and equal to it."""
    low, high = np.searchsorted(rivals, scores, "left"), np.searchsorted(rivals, scores, "right")
    return low / len(rivals), (high - low) / len(rivals)


def _fewest(counted: Bools, models: Ints, tail: float) -> Ints:
    """Return int (m,): the `tail` quantile over draws of the number of other models whose drawn score is counted: at most
    `tail` of the draws have fewer. counted: bool (v, v), whether the score of a column is counted against that of a line.

    Against a given score each other model is counted with its own probability, so that their number is Poisson binomial;
    models with probability 0 or 1 for all scores are added separately.
    """
    sizes = np.bincount(models)
    m = len(sizes)
    chances = counted.astype(np.float64) @ (models[:, None] == np.arange(m)) / sizes
    chances[np.arange(len(models)), models] = 0  # a model draws one prompt, so its other prompts are not counted
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
    """Return (m,) rank probabilities of a model that draws one of (p,) scores, against m - 1 others that draw theirs."""
    m = len(rivals) + 1
    chance = np.zeros((m, m, len(scores)))  # (a, e, i): probability that a models are above and e equal, for score i
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
