"""From a similarity to the probability of a match, and the threshold for a wanted precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stsbench.errors import ScoreError, StsbenchError

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
    similarity: Floats, label: Floats, method: Method = "isotonic", folds: int = 5, seed: int = 0
) -> Floats:
    """(n,) the probability of each pair by the curve of the other folds, which are stratified and drawn by `seed`.

    Raises ScoreError where a kind has fewer pairs than there are folds.
    """
    from sklearn.model_selection import StratifiedKFold

    label = np.asarray(label)
    if (fewest := int(min(np.sum(label > 0), np.sum(label <= 0)))) < folds:
        raise ScoreError(f"{folds} folds need as many pairs of each kind, and of one there are {fewest}")
    fitted = np.empty(len(label))
    for rest, fold in StratifiedKFold(folds, shuffle=True, random_state=seed).split(similarity, label):
        fitted[fold] = fit_curve(similarity[rest], label[rest], method)(similarity[fold])
    return fitted


@dataclass(frozen=True)
class Bin:
    """Pairs of like probability: their number, mean probability, and the share that matches with its 95 % interval."""

    n: int
    probability: float
    share: float
    low: float
    high: float


def reliability(probability: Floats, label: Floats, bins: int = 10) -> list[Bin]:
    """The pairs in `bins` groups of equal size by their probability, equal probabilities in one group."""
    from stsbench.metrics.proportion import wilson

    order = np.argsort(probability, kind="stable")
    ends = np.searchsorted(probability[order], probability[order][np.linspace(0, len(order), bins + 1)[1:-1].astype(int)])
    groups = (group for group in np.split(order, np.unique(ends)) if len(group))
    made = []
    for group in groups:
        hits = int(np.sum(label[group] > 0))
        made.append(Bin(len(group), float(probability[group].mean()), hits / len(group), *wilson(hits, len(group))))
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


def threshold_for(similarity: Floats, label: Floats, precision: float) -> Threshold | None:
    """The smallest threshold whose pairs have this precision, 0 to 1; None where no threshold has it.

    similarity float (n,), label (n,) 1 for a match, else 0. The interval inverts Wilson's test of a share (Wilson 1927) at
    each threshold: from the smallest one whose pairs may have the precision to the smallest one from which on all have
    it surely, taking for granted that the precision does not fall as the threshold rises.
    """
    if not 0 < precision <= 1:
        raise StsbenchError(f"precision must be above 0 and at most 1, not {precision}")
    cuts = Cuts(similarity, label)
    true, above = cuts.counts()
    enough = np.flatnonzero((above > 0) & (true >= precision * above - 1e-9))
    if not len(enough):
        return None
    at = enough[-1]
    low, high = _ends(cuts.thresholds[1:], *_wilson(true[1:], above[1:]), precision)
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


def _wilson(hits: Floats, n: Floats) -> tuple[Floats, Floats]:
    """The 95 % score intervals of shares, as `metrics.proportion.wilson` of each."""
    z, share = 1.959963984540054, hits / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    spread = z * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return middle - spread, middle + spread
