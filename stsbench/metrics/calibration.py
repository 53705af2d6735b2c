"""From a similarity to the probability of a match, and the threshold for a wanted precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stsbench.errors import ScoreError, StsbenchError
from stsbench.metrics.bootstrap import Ints, distinct, share_interval, stratified_folds

from .matching import Cuts

Floats = NDArray[np.float64]
Method = Literal["isotonic", "logistic"]
METHODS: tuple[Method, ...] = ("isotonic", "logistic")


@dataclass(frozen=True)
class Curve:
    """P(match | similarity), which never falls.

    isotonic: straight lines between points, similarity (m,) ascending and probability (m,), level beyond them; logistic:
    1 / (1 + exp(-(slope * similarity + intercept))).
    """

    method: Method
    similarity: Floats | None = None
    probability: Floats | None = None
    slope: float = 0.0
    intercept: float = 0.0

    def __call__(self, similarity: Floats) -> Floats:
        """The probabilities (n,) of similarities (n,)."""
        from scipy.special import expit

        if self.method == "logistic":
            return np.asarray(expit(self.slope * similarity + self.intercept))
        assert self.similarity is not None and self.probability is not None
        return np.asarray(np.interp(similarity, self.similarity, self.probability))


def fit_curve(similarity: Floats, label: Floats, method: Method = "isotonic") -> Curve:
    """The curve of n pairs by scikit-learn: similarity float (n,), label (n,) 1 for a match, else 0.

    isotonic: least squares (Zadrozny and Elkan 2002). logistic: maximum likelihood without a penalty (Platt 1999, without
    his smoothed labels), of which a slope below 0 becomes 0. Raises StsbenchError for another method, ScoreError where all
    pairs are of one kind.
    """
    if method not in METHODS:
        raise StsbenchError(f"method {method!r} is unknown (there are {', '.join(METHODS)})")
    Cuts(similarity, label)  # what has no score has no curve
    if method == "isotonic":
        from sklearn.isotonic import IsotonicRegression

        fitted = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(similarity, label)
        return Curve(method, np.asarray(fitted.X_thresholds_, np.float64), np.asarray(fitted.y_thresholds_, np.float64))
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=np.inf, tol=1e-8, max_iter=1000).fit(np.asarray(similarity)[:, None], label)
    if (slope := float(model.coef_[0, 0])) <= 0:
        share = float(np.mean(label))
        return Curve(method, slope=0.0, intercept=float(np.log(share / (1 - share))))
    return Curve(method, slope=slope, intercept=float(model.intercept_[0]))


def cross_fitted(
    similarity: Floats, label: Floats, method: Method = "isotonic", folds: int = 5, seed: int = 0, item: Ints | None = None
) -> Floats:
    """(n,) the probability of each pair by the curve of the other folds, which are stratified and drawn by `seed`.

    item: (n,), equal for rows of one pair, which stand in one fold; None: every row is a pair. Raises ScoreError where a
    kind has fewer pairs than there are folds.
    """
    label, item = np.asarray(label), np.arange(len(similarity)) if item is None else item
    kinds = label[np.unique(item, return_index=True)[1]] > 0
    if (fewest := int(min(np.sum(kinds), np.sum(~kinds)))) < folds:
        raise ScoreError(f"{folds} folds need as many pairs of each kind, and of one there are {fewest}")
    fitted, fold = np.empty(len(label)), stratified_folds(label, folds, seed, item)
    for number in range(folds):
        rest, held_out = fold != number, fold == number
        fitted[held_out] = fit_curve(similarity[rest], label[rest], method)(similarity[held_out])
    return fitted


@dataclass(frozen=True)
class Bin:
    """Pairs of like probability: their number, mean probability, and the share that matches with its 95 % interval."""

    n: int
    probability: float
    share: float
    low: float
    high: float


def reliability(probability: Floats, label: Floats, bins: int = 10, item: Ints | None = None) -> list[Bin]:
    """The pairs in `bins` groups of equal size by their probability, equal probabilities in one group. item: as for
    `cross_fitted`."""
    item = np.arange(len(label)) if item is None else item
    order = np.argsort(probability, kind="stable")
    ends = np.searchsorted(probability[order], probability[order][np.linspace(0, len(order), bins + 1)[1:-1].astype(int)])
    groups = (group for group in np.split(order, np.unique(ends)) if len(group))
    made = []
    for group in groups:
        hits, pairs = label[group] > 0, item[group]
        made.append(Bin(distinct(pairs), float(probability[group].mean()), float(hits.mean()), *share_interval(hits, pairs)))
    return made


def brier(probability: Floats, label: Floats) -> float:
    """The mean squared distance of the probabilities from the labels (Brier 1950): 0 is best."""
    return float(np.mean((probability - (np.asarray(label) > 0)) ** 2))


@dataclass(frozen=True)
class Threshold:
    """Pairs at least as similar as `value` have the wanted precision, `precision`; `recall` is the share of the matches that
    they hold. low, high: the 95 % interval of the true threshold, high None where the pairs are too few to bound it."""

    value: float
    precision: float
    recall: float
    low: float
    high: float | None


def threshold_for(similarity: Floats, label: Floats, precision: float, item: Ints | None = None) -> Threshold | None:
    """The smallest threshold whose pairs have this precision, 0 to 1; None where no threshold has it.

    similarity float (n,), label (n,) 1 for a match, else 0. The interval inverts Wilson's test of a share (Wilson 1927) at
    each threshold: from the smallest one whose pairs may have the precision to the smallest one from which on all have
    it surely, taking for granted that the precision does not fall as the threshold rises. item: as for `cross_fitted`; of
    rows that repeat the test counts as many as make the share as noisy (`metrics.bootstrap.effective_rows`).
    """
    if not 0 < precision <= 1:
        raise StsbenchError(f"precision must be above 0 and at most 1, not {precision}")
    cuts = Cuts(similarity, label)
    true, above = cuts.counts()
    enough = np.flatnonzero((above > 0) & (true >= precision * above - 1e-9))
    if not len(enough):
        return None
    at = enough[-1]
    shares, effective = true[1:] / above[1:], above[1:]
    if item is not None:  # the rows of a pair are equally similar: each cut has all of them, or none
        _, of_row, sizes = np.unique(item, return_inverse=True, return_counts=True)
        effective = effective**2 / cuts.counts(sizes[of_row].astype(np.float64))[1][1:]
    low, high = _ends(cuts.thresholds[1:], *_wilson(shares, effective), precision)
    return Threshold(float(cuts.thresholds[at]), float(true[at] / above[at]), float(true[at] / true[-1]), low, high)


def _ends(thresholds: Floats, lower: Floats, upper: Floats, precision: float) -> tuple[float, float | None]:
    """thresholds (k,) decreasing, and the ends of the interval of each one's precision."""
    low = float(thresholds[np.flatnonzero(upper >= precision)[-1]])
    sure = lower > precision
    if not sure.any():
        return low, None
    first = int(np.argmax(sure))  # above it the pairs are too few to be sure of anything
    last = first + int(np.argmin(np.r_[sure[first:], False])) - 1
    return low, float(thresholds[last])


def _wilson(share: Floats, n: Floats) -> tuple[Floats, Floats]:
    """The 95 % score intervals of shares of n, as `metrics.bootstrap.wilson` of each."""
    z = 1.959963984540054
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    spread = z * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return middle - spread, middle + spread
