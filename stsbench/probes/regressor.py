"""SentEval's trained relatedness head: a softmax over the scores 1 to 5 on pair features, fitted with Adam.

It is that of Tai, Socher & Manning 2015 (section 4.2, equations 15-16), as Conneau & Kiela 2018 (SentEval) train it. The
gradient is in closed form, in numpy: a step takes less time than the kernel launches of a GPU would, results are the same on
every device, and sparse features need no code of their own.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.errors import ScoreError
from stsbench.probes.lockstep import initial_weight

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
CLASSES = np.arange(1.0, 6.0)  # the scores that are the classes of the softmax


@dataclass(frozen=True)
class Regression:
    """Result of a fit. predicted: float64 (t,), 1 to 5; dev_spearman: float64 (rounds,), -1 to 1; epochs: number run."""

    predicted: Floats
    dev_spearman: Floats
    epochs: int


def pair_features(first: Any, second: Any) -> Any:
    """Return the pair features [|u - v| ; u * v], float32 (n, 2d), of two (n, d) matrices; CSR where these are CSR."""
    from scipy.sparse import hstack, issparse

    if issparse(first):
        return hstack([abs(first - second), first.multiply(second)], format="csr", dtype=np.float32)
    with np.errstate(over="ignore", invalid="ignore"):  # overflow gives infinity, which fitting refuses
        return np.hstack([np.abs(first - second), first * second], dtype=np.float32, casting="same_kind")


def soft_labels(gold: Floats) -> Floats32:
    """Return float32 (n, 5): each gold score y as probabilities of 1 to 5 whose mean is y (Tai et al. 2015, section 4.2).

    ceil(y) has the probability y - floor(y), and floor(y) the rest. As there is no class 0, the row of a y below 1 sums to y
    only, and is zero for y = 0, as in SentEval. Raises ScoreError for scores outside 0-5.
    """
    wrong = ~((gold >= 0) & (gold <= 5))
    if wrong.any():
        raise ScoreError(f"{int(wrong.sum())} gold scores are outside 0-5 (the first is {gold[wrong][0]:g})")
    # A class's probability falls linearly from 1 at the class itself to 0 at its neighbours.
    return np.asarray(np.maximum(0, 1 - np.abs(gold[:, None] - CLASSES)), dtype=np.float32)


def expected_scores(features: Any, weights: Floats32) -> Floats:
    """Return float64 (n,): the mean score under the softmax, between 1 and 5 (Tai et al. 2015, section 4.2)."""
    return np.asarray(_probabilities(features, weights).astype(np.float64) @ CLASSES)


def fit_regressor(
    train: Any, train_gold: Floats, dev: Any, dev_gold: Floats, test: Any, *, seed: int = 1111, batch: int = 64,
    learning_rate: float = 1e-3, round_epochs: int = 50, tenacity: int = 3, max_epoch: int = 1000,
) -> Regression:
    """Fit the head on `train` (n, 2d) with scores (n,), and predict `test` (t, 2d) by the round with the best dev Spearman.

    A round of `round_epochs` epochs begins while no more than `max_epoch` have been run, as in SentEval: 1,050 epochs at
    most by default. The fit ends with the round that fails to improve for the (tenacity + 1)-th time in all.
    Features are dense or CSR. A round whose dev predictions have no Spearman (all equal, or NaN) has a score of 0.
    Raises ScoreError for an empty split, features that are NaN or infinite, and dev scores without a ranking.
    """
    from threadpoolctl import threadpool_limits

    for name, features in (("train", train), ("dev", dev), ("test", test)):
        check_features(name, features)
    if np.ptp(dev_gold) == 0:
        raise ScoreError(f"all {len(dev_gold)} gold scores of the dev split are equal ({dev_gold[0]:g}): no best round")
    labels, fitted, best = soft_labels(train_gold), _Fit(train, seed, batch, learning_rate), None
    scores: list[float] = []
    highest, failures, epochs = -1.0, 0, 0
    while epochs <= max_epoch and failures <= tenacity:
        with threadpool_limits(1, user_api="blas"):  # a step is too small to be faster with several threads
            for _ in range(round_epochs):
                fitted.epoch(labels)
        epochs += round_epochs
        weights = fitted.weights
        scores.append(_spearman_or_zero(expected_scores(dev, weights), dev_gold))
        if scores[-1] > highest:
            highest, best = scores[-1], weights
        else:
            failures += 1
    if best is None:
        raise ScoreError("the dev split was ranked exactly backwards in every round: no best round")
    return Regression(expected_scores(test, best), np.array(scores), epochs)


class _Fit:
    """The head's weights (2d + 1, 5), the bias last, and their moments for Adam (Kingma & Ba 2015, torch's defaults)."""

    def __init__(self, features: Any, seed: int, batch: int, learning_rate: float) -> None:
        from scipy.sparse import issparse

        self.batch, self.learning_rate = batch, learning_rate
        start = initial_weight(features.shape[1], len(CLASSES), seed)
        self._start: Floats32 = np.ascontiguousarray(start.numpy().T)
        # Adam does not change a weight whose gradient is always 0, so empty columns of sparse features are not fitted.
        columns = np.unique(features.indices) if issparse(features) else np.arange(features.shape[1])
        self._rows = np.append(columns, features.shape[1])
        self._features = features[:, columns] if issparse(features) else features
        self._weights: Floats32 = self._start[self._rows]
        self._order = np.random.RandomState(seed)  # the stream of np.random.seed(seed), without numpy's global state
        self._mean, self._square = np.zeros_like(self._weights), np.zeros_like(self._weights)
        self._gradient, self._scratch = np.empty_like(self._weights), np.empty_like(self._weights)
        self._steps = 0

    @property
    def weights(self) -> Floats32:
        """Return a copy of the current weights of all columns."""
        weights = self._start.copy()
        weights[self._rows] = self._weights
        return weights

    def epoch(self, labels: Floats32) -> None:
        """Train on all rows once, in a new random order; the last batch may be smaller."""
        order = self._order.permutation(len(labels))
        for start in range(0, len(order), self.batch):
            rows = order[start : start + self.batch]
            batch = self._features[rows]
            self._step(batch, _probabilities(batch, self._weights), labels[rows])

    def _step(self, batch: Any, p: Floats32, targets: Floats32) -> None:
        """Take a step on the mean squared error of p (b, 5): dL/dz = p * (e - sum(e * p)) with e = 2 (p - targets) / 5b."""
        error = p - targets
        error -= np.einsum("bc,bc->b", error, p)[:, None]
        error *= p
        error *= np.float32(2 / error.size)
        gradient, scratch = self._gradient, self._scratch
        gradient[:-1] = batch.T @ error
        error.sum(axis=0, out=gradient[-1])
        self._steps += 1
        np.subtract(gradient, self._mean, out=scratch)
        scratch *= np.float32(0.1)
        self._mean += scratch
        self._square *= np.float32(0.999)
        np.multiply(gradient, gradient, out=gradient)
        gradient *= np.float32(0.001)
        self._square += gradient
        np.sqrt(self._square, out=scratch)
        scratch *= np.float32(1 / math.sqrt(1 - 0.999**self._steps))
        scratch += np.float32(1e-8)
        np.divide(self._mean, scratch, out=scratch)
        scratch *= np.float32(self.learning_rate / (1 - 0.9**self._steps))
        self._weights -= scratch


def _probabilities(features: Any, weights: Floats32) -> Floats32:
    """Return float32 (n, 5), the softmax probabilities of the scores 1 to 5."""
    z: Floats32 = features @ weights[:-1]
    z += weights[-1]
    z -= z.max(axis=1, keepdims=True)
    np.exp(z, out=z)
    z /= z.sum(axis=1, keepdims=True)
    return z


def check_features(name: str, features: Any) -> None:
    """Raise ScoreError when the features (n, 2d) of the split called `name` have no row, or rows that are not finite."""
    if not features.shape[0]:
        raise ScoreError(f"the {name} split is empty")
    with np.errstate(invalid="ignore"):
        sums = np.asarray(abs(features).sum(axis=1, dtype=np.float64)).ravel()
    if bad := int((~np.isfinite(sums)).sum()):
        what = "vectors that are NaN, infinite, or too large to multiply"
        raise ScoreError(f"{bad} of {len(sums)} pairs of the {name} split have {what}")


def _spearman_or_zero(predicted: Floats, gold: Floats) -> float:
    from scipy import stats

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.ConstantInputWarning)
        value = float(stats.spearmanr(predicted, gold).statistic)
    return 0.0 if math.isnan(value) else value
