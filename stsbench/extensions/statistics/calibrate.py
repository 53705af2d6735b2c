"""Calibrate similarities: the probability that two texts match, and thresholds of similarity for a wanted precision."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stsbench.display.style import COLOURS, GREY, PAGE, new_figure, style
from stsbench.errors import ScoreError, StsbenchError
from stsbench.evaluation.protocol import item_numbers, load_protocol
from stsbench.evaluation.records import Record
from stsbench.evaluation.run_file import load_records, read_observations, run_folder
from stsbench.evaluation.tables import encoder_in_words, repeated_in_record
from stsbench.files import atomic_write
from stsbench.metrics.bootstrap import Ints, distinct, share_interval, stratified_folds
from stsbench.metrics.matching import Cuts
from stsbench.options import takes
from stsbench.registry import did_you_mean

Floats = NDArray[np.float64]
BARS = 40  # a histogram's bars
FORMAT = "stsbench-calibration/1"
PRECISIONS = (0.9, 0.95, 0.99)
Method = Literal["isotonic", "logistic"]
METHODS: tuple[Method, ...] = ("isotonic", "logistic")


def figure(bins: Sequence[Bin], similarity: Floats, label: NDArray[np.int64], curve: Curve, title: str) -> Any:
    """Return a matplotlib figure of two panels. Left: reliability diagram, the share of matches against the probability in
    `bins` of held-out pairs. Right: histograms of the similarities of both kinds of pairs, and the curve.

    similarity: float (n,); label: (n,), 1 for a match.
    """
    with style():
        drawing = new_figure(PAGE, 2.9)
        left, right = drawing.subplots(1, 2)
        left.plot([0, 1], [0, 1], "--", color=GREY, linewidth=0.8)
        for one in bins:
            left.plot([one.probability] * 2, [one.low, one.high], "-", color=COLOURS[0], linewidth=1)
        left.plot([one.probability for one in bins], [one.share for one in bins], "o", color=COLOURS[0], markersize=4)
        left.set_xlabel("probability of a match, by the other folds")
        left.set_ylabel("share that matches, 95 %")
        left.set_title(title, loc="left", wrap=True)
        edges = np.linspace(float(similarity.min()), float(similarity.max()), BARS + 1)
        for kind, name, colour in ((1, "match", COLOURS[0]), (0, "no match", COLOURS[1])):
            right.hist(similarity[label == kind], edges, color=colour, alpha=0.55, label=name)
        right.set_xlabel("similarity")
        right.set_ylabel("pairs")
        drawing.legend(loc="outside lower right", ncols=3)
        probability = right.twinx()
        probability.spines["right"].set_visible(True)
        probability.plot(edges, curve(edges), color="black", linewidth=1)
        probability.set_ylim(0, 1)
        probability.set_ylabel("probability of a match")
    return drawing


@dataclass(frozen=True)
class Calibration:
    """The calibration of an encoder's similarities: `curve` is P(match | similarity), `thresholds` reach a precision.

    item: int64 (n,), equal for rows of one pair; fitted: float64 (n,), each row's probability by a curve fitted without the
    fold of its pair; brier: Brier score of `fitted`; bins: reliability of `fitted`; thresholds: wanted precision -> the
    threshold, None where no threshold reaches it.
    """

    encoder: str  # in words
    record: Record
    similarity: Floats
    label: NDArray[np.int64]
    item: NDArray[np.int64]
    curve: Curve
    fitted: Floats
    brier: float
    bins: Sequence[Bin]
    thresholds: dict[float, Threshold | None]

    @property
    def pairs(self) -> int:
        """Return the number of different pairs."""
        return distinct(self.item)

    @property
    def matches(self) -> int:
        """Return the number of different pairs of which at least one row is a match."""
        return distinct(self.item[self.label > 0])

    def probability(self, similarity: Floats | Sequence[float] | float) -> Floats:
        """Return P(match) of similarities, by the curve of all pairs."""
        return self.curve(np.asarray(similarity, dtype=np.float64))

    def as_json(self) -> dict[str, Any]:
        """Return curve, thresholds and their origin as JSON values, for other programs."""
        record, curve = self.record, self.curve
        form: dict[str, Any] = {"method": curve.method}
        if curve.similarity is not None and curve.probability is not None:
            form |= {"similarity": curve.similarity.tolist(), "probability": curve.probability.tolist()}
        else:
            form |= {"slope": curve.slope, "intercept": curve.intercept}
        return {
            "format": FORMAT, "encoder": self.encoder, "fingerprint": record.encoder.fingerprint,
            "similarity": record.protocol.settings["similarity"], "data": record.data.task, "digest": record.data.digest,
            "pairs": self.pairs, "matches": self.matches, "rows": len(self.label), "curve": form, "brier": self.brier,
            "reliability": [asdict(one) for one in self.bins],
            "thresholds": [{"wanted": wanted, **(asdict(threshold) if threshold else {"value": None})}
                           for wanted, threshold in self.thresholds.items()],
        }

    def save(self, path: str | Path) -> Path:
        """Write `as_json` to a file, atomically, and return the path."""
        with atomic_write(Path(path)) as stream:
            stream.write(json.dumps(self.as_json(), indent=1) + "\n")
        return Path(path)

    def lines(self) -> list[str]:
        """Return the lines that the command prints: data, curve, and a line for each wanted precision."""
        share = float(self.label.mean())
        made = [f"{self.encoder}; {self.record.data.task}: {self.pairs:,} pairs, {self.matches:,} of them match",
                f"P(match | similarity): {self.curve.method}; Brier score of held-out pairs {self.brier:.4f} (the share of "
                f"matches alone: {share * (1 - share):.4f})", *filter(None, [repeated_in_record(self.record)])]
        for wanted, threshold in self.thresholds.items():
            if threshold is None:
                made.append(f"precision {wanted:g}: no threshold reaches it on these pairs")
                continue
            ends = (f" (95 %: at least {threshold.low:.4f}; so few pairs give no upper end)" if threshold.high is None else
                    f" (95 %: {threshold.low:.4f} to {threshold.high:.4f})")
            made.append(f"precision {wanted:g}: a similarity of {threshold.value:.4f} or more{ends}, which "
                        f"{100 * threshold.recall:.1f} % of the matches have")
        return made

    def plot(self) -> Any:
        """Return a matplotlib figure: the reliability diagram, and the similarities of both kinds of pairs."""
        return figure(self.bins, self.similarity, self.label, self.curve, f"{self.encoder}: {self.record.data.task}")

    def __repr__(self) -> str:
        return f"<Calibration of {self.encoder} on {self.record.data.task}: {self.pairs:,} pairs>"


@takes()
def calibrate(
    run: Any, *, task: str | None = None, method: Method = "isotonic", precision: Sequence[float] = PRECISIONS,
    folds: int = 5, seed: int = 0,
) -> Calibration:
    """Return P(match | similarity) and thresholds of similarity for wanted precisions, from a run of `pairs:FILE`.

    run: a run folder, or what `evaluate` returned. task: the file's name, where the run has several. method: isotonic or
    logistic. precision: wanted precisions, each above 0 and at most 1. folds: number of folds of the cross-fitted
    probabilities, drawn with `seed`. Raises StsbenchError where the run has no labelled pairs.

    >>> import stsbench
    >>> rows = ["sentence1,sentence2,label", *(f"text {i},text {i + i % 2},{1 - i % 2}" for i in range(40))]
    >>> _ = open("pairs.csv", "w").write("\\n".join(rows))
    >>> run = stsbench.evaluate("lexical:token-set", protocol="pairs:pairs.csv", resamples=0)
    >>> stsbench.calibrate(run, precision=[0.9]).thresholds[0.9].recall
    1.0
    """
    folder = run_folder(run)
    stored = [(path, record) for path, record in load_records(folder)
              if {"similarity", "label"} <= load_protocol(record.protocol.name).arrays.keys()]
    if not stored:
        raise StsbenchError(f"{folder} holds no labelled pairs: measure them by stsbench eval --protocol pairs:FILE")
    tasks = {record.data.task: (path, record) for path, record in stored}
    if task is None and len(tasks) > 1:
        raise StsbenchError(f"{folder} has several tasks: name one ({', '.join(tasks)})")
    if task is not None and task not in tasks:
        raise StsbenchError(f"{folder} has no task {task!r}{did_you_mean(task, tasks)}")
    _, record = tasks[task or next(iter(tasks))]
    observations = read_observations(folder, record)
    similarity, label = observations.arrays["similarity"], observations.arrays["label"]
    item = item_numbers(observations, len(label))
    fitted = cross_fitted(similarity, label, method, folds, seed, item)
    return Calibration(
        encoder_in_words(record), record, similarity, label, item, fit_curve(similarity, label, method), fitted,
        brier(fitted, label), reliability(fitted, label, item=item),
        {value: threshold_for(similarity, label, value, item) for value in precision},
    )


@dataclass(frozen=True)
class Curve:
    """P(match | similarity), a non-decreasing curve.

    isotonic: linear interpolation between points, similarity (m,) ascending and probability (m,), constant beyond them;
    logistic: 1 / (1 + exp(-(slope * similarity + intercept))).
    """

    method: Method
    similarity: Floats | None = None
    probability: Floats | None = None
    slope: float = 0.0
    intercept: float = 0.0

    def __call__(self, similarity: Floats) -> Floats:
        """Return the probabilities (n,) of similarities (n,)."""
        from scipy.special import expit

        if self.method == "logistic":
            return np.asarray(expit(self.slope * similarity + self.intercept))
        assert self.similarity is not None and self.probability is not None
        return np.asarray(np.interp(similarity, self.similarity, self.probability))


def fit_curve(similarity: Floats, label: Floats, method: Method = "isotonic") -> Curve:
    """Return the curve fitted to n pairs by scikit-learn: similarity float (n,), label (n,) 1 for a match, else 0.

    isotonic: least squares (Zadrozny and Elkan 2002). logistic: maximum likelihood without a penalty (Platt 1999, without
    his smoothed labels); a negative slope becomes 0. Raises StsbenchError for another method, ScoreError where all labels
    are equal.
    """
    if method not in METHODS:
        raise StsbenchError(f"method {method!r} is unknown (there are {', '.join(METHODS)})")
    Cuts(similarity, label)  # raises ScoreError where all pairs have one label
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
    """Return (n,) probabilities, each by the curve fitted to the other folds, which are stratified and drawn with `seed`.

    item: (n,), equal for rows of one pair, which are kept in one fold; None: every row is a pair. Raises ScoreError where
    there are fewer matches, or fewer other pairs, than folds.
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
    """A bin of a reliability diagram: number of pairs, mean probability, and share of matches with its 95 % interval."""

    n: int
    probability: float
    share: float
    low: float
    high: float


def reliability(probability: Floats, label: Floats, bins: int = 10, item: Ints | None = None) -> list[Bin]:
    """Return a reliability diagram: at most `bins` bins of about equal size by probability, equal probabilities in one bin.
    item: as for `cross_fitted`."""
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
    """Return the Brier score, the mean squared difference of probabilities (n,) and labels (n,) (Brier 1950): 0 is best."""
    return float(np.mean((probability - (np.asarray(label) > 0)) ** 2))


@dataclass(frozen=True)
class Threshold:
    """A threshold of similarity. precision, recall: of the pairs at least as similar as `value`. low, high: 95 % interval of
    the true threshold, high None where there are too few pairs to bound it."""

    value: float
    precision: float
    recall: float
    low: float
    high: float | None


def threshold_for(similarity: Floats, label: Floats, precision: float, item: Ints | None = None) -> Threshold | None:
    """Return the smallest threshold above which pairs have at least this precision, 0 to 1; None where no threshold does.

    similarity float (n,), label (n,) 1 for a match, else 0. The interval inverts Wilson's test of a proportion (Wilson 1927)
    at each threshold: from the smallest threshold at which the precision is not rejected to the smallest from which on it is
    significantly exceeded, assuming that precision does not fall as the threshold rises. item: as for `cross_fitted`; the
    test uses the effective number of rows where pairs repeat (`metrics.bootstrap.effective_rows`).
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
    """Return the ends of a threshold's interval. thresholds: (k,) decreasing; lower, upper: bounds of their precision."""
    low = float(thresholds[np.flatnonzero(upper >= precision)[-1]])
    sure = lower > precision
    if not sure.any():
        return low, None
    first = int(np.argmax(sure))  # at higher thresholds there are too few pairs for any precision to be significant
    last = first + int(np.argmin(np.r_[sure[first:], False])) - 1
    return low, float(thresholds[last])


def _wilson(share: Floats, n: Floats) -> tuple[Floats, Floats]:
    """Return lower and upper ends, (k,) each, of Wilson's 95 % intervals of proportions, as `metrics.bootstrap.wilson`."""
    z = 1.959963984540054
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    spread = z * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return middle - spread, middle + spread
