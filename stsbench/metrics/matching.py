"""Scores of binary pairs (match or not) by similarity: average precision, ROC AUC, best F1 and accuracy with their
thresholds; and influence values, bootstrap draws and intervals of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stsbench.errors import ScoreError

Floats = NDArray[np.float64]
Criterion = Literal["f1", "accuracy"]
CRITERIA: tuple[Criterion, ...] = ("f1", "accuracy")
# Factor of the bandwidth with which a criterion's curvature is estimated, in pooled standard deviations of the two kinds of
# pairs times n^(-1/7). Its intervals' coverage was simulated (tests/metrics/test_ranking.py, benchmarks/thresholds.py).
BANDWIDTH = 0.95
_LEAST = 1e-300


class Cuts:
    """All thresholds on the similarity of n pairs with k distinct similarities: k + 1 cuts, from no match to all matches.

    similarity: float (n,), finite; label: (n,), 1 for a match, else 0, with both present. thresholds: float64 (k + 1,),
    decreasing: a pair is called a match where its similarity is at least the threshold. The first is just above the largest
    similarity, the last is the smallest, the others lie midway between two neighbours. Equal similarities are on one side of
    every cut. Raises ScoreError where all pairs are of one kind, and for a label that is NaN or a similarity that is not
    finite.
    """

    def __init__(self, similarity: Floats, label: Floats) -> None:
        if not np.isfinite(similarity).all():
            raise ScoreError("a similarity is not finite")
        if np.isnan(np.asarray(label, dtype=np.float64)).any():
            raise ScoreError("a label is NaN: it is neither a match nor none")
        matching = np.asarray(label, dtype=np.float64) > 0
        if matching.all() or not matching.any():
            raise ScoreError(f"every pair is {'a match' if len(matching) and matching.all() else 'no match'}: "
                             "pairs of both kinds are needed")
        self.order = np.argsort(-similarity, kind="stable")
        self.similarity, self.matching = np.asarray(similarity, np.float64)[self.order], matching[self.order]
        values = self.similarity
        self.ends = np.flatnonzero(np.r_[values[1:] != values[:-1], True])
        distinct = values[self.ends]
        between = (distinct[:-1] + distinct[1:]) / 2
        self.thresholds = np.r_[np.nextafter(distinct[0], np.inf), between, distinct[-1]]

    def counts(self, weights: Floats | None = None) -> tuple[Floats, Floats]:
        """Return two arrays (..., k + 1), the numbers of true matches and of all pairs above each cut.

        weights: (..., n), how often each pair counts; by default once.
        """
        above = np.ones(len(self.order)) if weights is None else weights[..., self.order]
        none = np.zeros((*above.shape[:-1], 1))
        true = np.cumsum(above * self.matching, axis=-1)[..., self.ends]
        return np.concatenate([none, true], -1), np.concatenate([none, np.cumsum(above, axis=-1)[..., self.ends]], -1)


@dataclass(frozen=True)
class Matching:
    """Scores of how well similarities separate matches from other pairs, 0 to 1, and the thresholds of F1 and accuracy."""

    ap: float
    auc: float
    f1: float
    f1_threshold: float
    accuracy: float
    accuracy_threshold: float


def matching_scores(similarity: Floats, label: Floats) -> Matching:
    """Return the scores of n pairs: similarity float (n,), label (n,) 1 for a match, else 0.

    Average precision and ROC AUC as scikit-learn defines them; the best F1 and accuracy over all thresholds, the highest of
    equally good ones. As these pairs choose the thresholds, F1 and accuracy will be lower on other pairs. Raises ScoreError
    where all pairs are of one kind, as `Cuts` does.
    """
    cuts = Cuts(similarity, label)
    true, above = cuts.counts()
    best = {name: int(np.argmax(criterion(name, true, above))) for name in CRITERIA}
    return Matching(
        float(average_precision(true, above)), float(roc_auc(true, above)),
        float(criterion("f1", true, above)[best["f1"]]), float(cuts.thresholds[best["f1"]]),
        float(criterion("accuracy", true, above)[best["accuracy"]]), float(cuts.thresholds[best["accuracy"]]),
    )


def average_precision(true: Floats, above: Floats) -> Floats:
    """Return (...) the average precision: the sum over cuts of (recall - recall of the cut before) * precision. Arguments:
    what `Cuts.counts` returns."""
    with np.errstate(invalid="ignore", divide="ignore"):
        precision = true[..., 1:] / np.maximum(above[..., 1:], _LEAST)
        return np.asarray((np.diff(true, axis=-1) * precision).sum(-1) / true[..., -1])


def roc_auc(true: Floats, above: Floats) -> Floats:
    """Return (...) the ROC AUC: the probability that a match is more similar than another pair, ties counting half."""
    false = above - true
    with np.errstate(invalid="ignore", divide="ignore"):
        area = (np.diff(false, axis=-1) * (true[..., 1:] + true[..., :-1]) / 2).sum(-1)
        return np.asarray(area / (true[..., -1] * false[..., -1]))


def matching_influences(similarity: Floats, label: Floats) -> dict[str, Floats]:
    """Return (n,) influence values, of mean 0, of ap, auc, f1 and accuracy: n times their derivative by a pair's weight.

    F1 and accuracy are taken at the best threshold of these pairs, where the derivative by the threshold is 0. Arguments and
    errors: as for `matching_scores`.
    """
    cuts = Cuts(similarity, label)
    true, above = cuts.counts()
    scores, n = matching_scores(similarity, label), len(cuts.order)
    matching, share = cuts.matching.astype(np.float64), true[-1] / n
    group = np.searchsorted(cuts.ends, np.arange(n))  # index of the cut's group of equal similarities
    # AUC: for a match, the share of other pairs below it; for another pair, the share of matches above it; ties count half.
    false = above - true
    below = 1 - (false[:-1] + false[1:])[group] / (2 * false[-1])
    over = (true[:-1] + true[1:])[group] / (2 * true[-1])
    auc = np.where(matching > 0, (below - scores.auc) / share, (over - scores.auc) / (1 - share))
    # AP: a match's own precision, and each pair's effect on the precision of every match below it.
    precision = true[1:] / above[1:]
    weight = np.diff(true) / true[-1] / above[1:] * n  # of the matches of each group
    from_here = np.cumsum(weight[::-1])[::-1], np.cumsum((weight * precision)[::-1])[::-1]
    ap = matching * (precision[group] - scores.ap) / share + matching * from_here[0][group] - from_here[1][group]
    values = {"ap": ap, "auc": auc}
    for name in CRITERIA:
        best = int(np.argmax(criterion(name, true, above)))
        called = group < best
        if name == "f1":
            values[name] = (2 * matching * called - scores.f1 * (called + matching)) / ((above[best] + true[-1]) / n)
        else:
            values[name] = (matching == called) - scores.accuracy
    back = np.argsort(cuts.order)
    return {name: ordered[back] for name, ordered in values.items()}


def criterion(name: Criterion, true: Floats, above: Floats) -> Floats:
    """Return (..., k + 1) the F1 of matches, or the accuracy, at every cut. Other arguments: what `Cuts.counts` returns."""
    matches, pairs = true[..., -1:], above[..., -1:]
    if name == "f1":
        return np.asarray(2 * true / np.maximum(above + matches, _LEAST))  # a draw without a match has 0, not 0 / 0
    return np.asarray((pairs - above - matches + 2 * true) / pairs)


@dataclass(frozen=True)
class MatchingDraws:
    """Bootstrap draws, (resamples,) each, of the scores and of the thresholds' errors.

    f1, accuracy: at the best thresholds of the original pairs; the difference to those of each resample is negligible for
    many pairs. shifts: criterion -> draws of its threshold's error, left out where that cannot be estimated.
    """

    ap: Floats
    auc: Floats
    f1: Floats
    accuracy: Floats
    shifts: dict[Criterion, Floats]


def matching_draws(
    similarity: Floats, label: Floats, blocks: Iterable[Floats], items: int | None = None
) -> MatchingDraws:
    """Return bootstrap draws of the scores. blocks: (rows, n) counts of how often each pair is drawn; items: the number of
    distinct pairs, n by default.

    The best threshold converges with the cube root of n, where an ordinary bootstrap is inconsistent (Abrevaya and Huang
    2005). Therefore the deviation of the resampled criterion from the original one is added to a parabola with the
    criterion's curvature, and the argmax of the sum is drawn (Cattaneo, Jansson and Nagasawa 2020).
    """
    cuts = Cuts(similarity, label)
    plain = cuts.counts()
    values = {name: criterion(name, *plain) for name in CRITERIA}
    best = {name: int(np.argmax(values[name])) for name in CRITERIA}
    parabolas = {name: _parabola(cuts, name, best[name], items or len(label)) for name in CRITERIA}
    rows: dict[str, list[Floats]] = {"ap": [], "auc": [], "f1": [], "accuracy": []}
    shifts: dict[Criterion, list[Floats]] = {name: [] for name in CRITERIA if parabolas[name] is not None}
    for weights in blocks:
        counts = cuts.counts(weights)
        rows["ap"].append(average_precision(*counts))
        rows["auc"].append(roc_auc(*counts))
        for name in CRITERIA:
            drawn = criterion(name, *counts)
            rows[name].append(drawn[:, best[name]])
            parabola = parabolas[name]
            if parabola is not None:
                at = np.argmax(drawn - values[name] + parabola, axis=-1)
                shifts[name].append(cuts.thresholds[at] - cuts.thresholds[best[name]])
    parts = {key: np.concatenate([np.empty(0), *some]) for key, some in rows.items()}
    return MatchingDraws(**parts, shifts={name: np.concatenate([np.empty(0), *some]) for name, some in shifts.items()})


def threshold_interval(threshold: float, shifts: Floats, level: float = 0.95) -> tuple[float, float] | None:
    """Return the symmetric interval of a threshold from (resamples,) draws of its error; None for fewer than 2 / (1 - level)
    finite draws, or more than 5 % that are not."""
    finite = shifts[np.isfinite(shifts)]
    if len(finite) < 0.95 * len(shifts) or len(finite) * (1 - level) < 2 - 1e-9:
        return None
    reach = float(np.quantile(np.abs(finite), level))
    return threshold - reach, threshold + reach


def _parabola(cuts: Cuts, name: Criterion, best: int, items: int) -> Floats | None:
    """Return (k + 1,) -curvature (t - t_best)^2 / 2 at every threshold t, where the curvature is minus the second derivative
    of the criterion, smoothed by a normal kernel, at t_best; None where it is not positive."""
    from scipy.special import ndtr

    value, matching, cut = cuts.similarity, cuts.matching, float(cuts.thresholds[best])
    n, kinds = len(value), (value[matching], value[~matching])
    width = BANDWIDTH * float(np.sqrt(sum(len(kind) * kind.var() for kind in kinds) / n)) * items ** (-1 / 7)
    if width == 0:
        return None
    points = cut + width * np.array([-1.0, 0.0, 1.0])
    smooth = [[ndtr((kind - point) / width).sum() for point in points] for kind in kinds]
    true = np.array([*smooth[0], len(kinds[0])])  # `criterion` reads the totals from the end
    values = criterion(name, true, true + np.array([*smooth[1], len(kinds[1])]))
    curvature = float(2 * values[1] - values[0] - values[2]) / width**2
    return np.asarray(-curvature * (cuts.thresholds - cut) ** 2 / 2) if curvature > 0 else None
