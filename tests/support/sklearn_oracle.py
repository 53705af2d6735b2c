"""SentEval's scikit-learn mode written down as plain loops, for comparison: no code of ours, one fit after the other."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import StratifiedKFold

SEED = 1111


def percent(classifier: Any, x: Any, y: Any) -> float:
    """Accuracy in percent."""
    return 100 * classifier.score(x, y)


def fitted(x: Any, y: Any, c: float) -> Any:
    """The library's default classifier."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return LogisticRegression(C=c, random_state=SEED).fit(x, y)


def choose(x: Any, y: Any, k: int, grid: Any) -> tuple[int, float]:
    """The grid's place and the score of the best strength: mean accuracy over folds, rounded, the first of equals."""
    scores = []
    for c in grid:
        parts = []
        for train, held in StratifiedKFold(n_splits=k, shuffle=True, random_state=SEED).split(x, y):
            parts.append(percent(fitted(x[train], y[train], c), x[held], y[held]))
        scores.append(round(np.mean(parts), 2))
    best = scores.index(max(scores))
    return best, scores[best]


def nested(x: Any, y: Any, k: int, grid: Any) -> dict[str, Any]:
    """InnerKFoldClassifier: test and development accuracy, the choice in each outer fold."""
    tested, development, chosen = [], [], []
    for train, held in StratifiedKFold(n_splits=k, shuffle=True, random_state=SEED).split(x, y):
        best, score = choose(x[train], y[train], k, grid)
        chosen.append(best)
        development.append(score)
        tested.append(round(percent(fitted(x[train], y[train], grid[best]), x[held], y[held]), 2))
    return {"acc": float(np.mean(tested)), "devacc": float(np.mean(development)), "chosen": chosen}


def kfold(x: Any, y: Any, train: Any, test: Any, k: int, grid: Any) -> dict[str, Any]:
    """KFoldClassifier: chosen on the training rows, refitted on all of them, tested on the test rows."""
    best, score = choose(x[train], y[train], k, grid)
    classifier = fitted(x[train], y[train], grid[best])
    out = {"acc": percent(classifier, x[test], y[test]), "devacc": score, "chosen": [best]}
    if len(np.unique(y)) == 2:
        out["f1"] = 100 * f1_score(y[test], classifier.predict(x[test]))
    return out
