"""Logistic regression as SentEval's scikit-learn mode fits it: the library's defaults, converged or not."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from stsbench.errors import ScoreError
from stsbench.probes.schemes import Fit, Rows, Solver

# C, from strong to weak regularisation (Conneau & Kiela 2018; `senteval/tools/validation.py`).
GRID_NESTED_SPLIT = tuple(2.0**power for power in range(-2, 4))
GRID_KFOLD = tuple(2.0**power for power in range(-1, 6))


def sklearn_solver(
    x: Any, y: Rows, *, seed: int = 1111, jobs: int | None = None, counts: dict[str, int] | None = None
) -> Solver:
    """A solver that fits LogisticRegression(C=reg, random_state=seed), all else scikit-learn's default.

    x: (n, d) features, dense or CSR, fitted in the dtype they have; y: int64 (n,). `Fit.stop` is not used: nothing
    stops early. jobs: threads, all processors by default; each fit runs on one, so results do not depend on it.
    counts: "fits" and "unconverged" (fits that ended with a ConvergenceWarning, mostly at 100 iterations) are added to
    it by every call. Raises ScoreError for features that are not finite, or training rows of one class.
    """
    x, y = checked(x, y)

    def fit_one(fit: Fit) -> Rows:
        from sklearn.linear_model import LogisticRegression

        classifier = LogisticRegression(C=fit.reg, random_state=seed).fit(x[fit.train], y[fit.train])
        return np.asarray(classifier.predict(x[fit.predict]), dtype=np.int64)

    def solve(fits: Sequence[Fit]) -> list[Rows]:
        from joblib import Parallel, delayed
        from sklearn.exceptions import ConvergenceWarning
        from threadpoolctl import threadpool_limits

        if any(len(np.unique(y[fit.train])) < 2 for fit in fits):
            raise ScoreError("a classifier's training rows hold fewer than two classes: nothing can be learnt")
        # Recorded out here, because a thread that changes the warning filters changes them for all.
        with warnings.catch_warnings(record=True) as caught, threadpool_limits(limits=1):
            warnings.simplefilter("always", ConvergenceWarning)
            predicted = Parallel(n_jobs=jobs or -1, prefer="threads")(delayed(fit_one)(fit) for fit in fits)
        missed = [w for w in caught if issubclass(w.category, ConvergenceWarning)]
        if counts is not None:
            counts["fits"] = counts.get("fits", 0) + len(fits)
            counts["unconverged"] = counts.get("unconverged", 0) + len(missed)
        for other in caught:
            if other not in missed:
                warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)
        return list(predicted)

    return solve


def checked(x: Any, y: Any) -> tuple[Any, Rows]:
    """Features as an array (n, d), dense or CSR, and int64 labels (n,). Raises ScoreError where they are not."""
    x = x if hasattr(x, "tocsr") else np.asarray(x)
    y = np.asarray(y, dtype=np.int64)
    if x.ndim != 2 or y.shape != (x.shape[0],):
        raise ScoreError(f"features of shape {x.shape} do not fit labels of shape {y.shape}")
    if not np.isfinite(x.data if hasattr(x, "tocsr") else x).all():
        raise ScoreError("the features hold values that are not finite: the encoder returned NaN or infinity")
    return x, y
