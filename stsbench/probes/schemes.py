"""SentEval's evaluation schemes of classifiers (nested k-fold, k-fold, fixed splits), and its scikit-learn mode."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.errors import ScoreError
from stsbench.metrics.bootstrap import stratified_folds

Rows = NDArray[np.int64]
# C, from strong to weak regularisation (Conneau & Kiela 2018; `senteval/tools/validation.py`).
GRID_NESTED_SPLIT = tuple(2.0**power for power in range(-2, 4))
GRID_KFOLD = tuple(2.0**power for power in range(-1, 6))


@dataclass(frozen=True)
class Fit:
    """One classifier to fit. Rows are indices into the feature matrix X (n, d) of the solver."""

    train: Rows
    stop: Rows | None  # rows for early stopping; None: a solver that stops early draws 5 % of `train`
    predict: Rows
    reg: float  # the grid's value: L2 strength (torch probe) or C (scikit-learn)
    item: Rows | None = None  # (n,), equal for rows of X that are one item, drawn together; None: every row is an item


# Function from independent fits to the predicted classes of each fit's `predict` rows, int64.
Solver = Callable[[Sequence[Fit]], list[Rows]]


@dataclass(frozen=True)
class Probed:
    """Result of a scheme, with m tested rows, o outer folds (1 without nesting) and r grid values.

    rows, predicted, fold: int64 (m,), the tested rows of X, their predicted classes and the outer folds that test them;
    grid: float64 (o, r), development accuracy in percent, rounded to 2 decimals; chosen: int64 (o,), its argmax.
    """

    rows: Rows
    predicted: Rows
    fold: Rows
    grid: NDArray[np.float64]
    chosen: Rows


def nested(
    y: Rows, k: int, seed: int, regs: Sequence[float], solver: Solver, item: Rows | None = None
) -> Probed:
    """Return the result of nested stratified k-fold over all n rows (SentEval's InnerKFoldClassifier), by r*k*k + k fits.

    Inner models stop early on the fold that scores them. item: (n,), equal for rows of one item, which are put into one
    fold. Raises ScoreError for data with too few items or classes for k folds."""
    everything = np.arange(len(y), dtype=np.int64)
    outer = _folds(everything, y, k, seed, item)
    inner = [_folds(train, y, k, seed, item) for train, _ in outer]
    fits = [Fit(train, held_out, held_out, reg) for folds in inner for reg in regs for train, held_out in folds]
    grid = _grid(fits, solver(fits), y, len(outer), len(regs), k)
    chosen = grid.argmax(axis=1)
    last = solver([Fit(train, None, test, regs[best], item) for (train, test), best in zip(outer, chosen, strict=True)])
    rows = np.concatenate([test for _, test in outer])
    fold = np.repeat(np.arange(k), [len(test) for _, test in outer])
    return Probed(rows, np.concatenate(last), fold, grid, chosen)


def cross_validated(
    y: Rows, train: Rows, test: Rows, k: int, seed: int, regs: Sequence[float], solver: Solver, item: Rows | None = None
) -> Probed:
    """Return the test result of a refit on `train`, whose grid value stratified k-fold on `train` chooses (SentEval's
    KFoldClassifier). item, errors: as for `nested`."""
    folds = _folds(train, y, k, seed, item)
    fits = [Fit(rows, held_out, held_out, reg) for reg in regs for rows, held_out in folds]
    grid = _grid(fits, solver(fits), y, 1, len(regs), k)
    return _tested(test, grid, solver, lambda best: Fit(train, None, test, regs[best], item))


def given_splits(
    y: Rows, train: Rows, dev: Rows, test: Rows, regs: Sequence[float], solver: Solver
) -> Probed:
    """Return the test result of a fit on `train` whose grid value `dev` chooses (SentEval's SplitClassifier), stopped early
    by `dev`, too. Raises ScoreError for an empty split, or training rows of one class."""
    _two_classes(y[train], "the training split")
    if not len(dev):
        raise ScoreError("the development split is empty")
    fits = [Fit(train, dev, dev, reg) for reg in regs]
    grid = _grid(fits, solver(fits), y, 1, len(regs), 1)
    return _tested(test, grid, solver, lambda best: Fit(train, dev, test, regs[best]))


def _tested(test: Rows, grid: NDArray[np.float64], solver: Solver, refit: Callable[[int], Fit]) -> Probed:
    if not len(test):
        raise ScoreError("the test split is empty")
    best = int(grid[0].argmax())
    predicted = solver([refit(best)])[0]
    return Probed(test, predicted, np.zeros(len(test), dtype=np.int64), grid, np.array([best]))


def _grid(
    fits: Sequence[Fit], predicted: Sequence[Rows], y: Rows, outer: int, regs: int, folds: int
) -> NDArray[np.float64]:
    """Return (outer, regs) accuracy in percent: the mean over folds, rounded to 2 decimals as in SentEval."""
    hits = [float(np.mean(got == y[fit.predict])) for fit, got in zip(fits, predicted, strict=True)]
    # Rounded by numpy, since Python's rounding sometimes differs in the last digit, which decides near-ties.
    rounded: NDArray[np.float64] = np.round(100 * np.array(hits).reshape(outer, regs, folds).mean(axis=2), 2)
    return rounded


def _folds(rows: Rows, y: Rows, k: int, seed: int, item: Rows | None = None) -> list[tuple[Rows, Rows]]:
    """Return k pairs of row numbers (train, held-out): stratified folds of `rows`, shuffled by `seed`, with all rows of an
    item in one fold. Raises ScoreError where items or classes are too few."""
    of_rows = rows if item is None else item[rows]
    first = np.unique(of_rows, return_index=True)[1]
    if len(first) < k:
        raise ScoreError(f"{len(first)} items are fewer than the {k} folds")
    counts = np.unique(y[rows[first]], return_counts=True)[1]
    if counts.max() < k:
        raise ScoreError(f"no class has as many items as there are folds ({k}): {counts.tolist()} items a class")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a class with fewer items than folds, which SentEval accepts
        fold = stratified_folds(y[rows], k, seed, of_rows)
    folds = [(rows[fold != number], rows[fold == number]) for number in range(k)]
    for number, (train, _) in enumerate(folds, start=1):
        _two_classes(y[train], f"the training part of fold {number} of {k}")
    return folds


def _two_classes(labels: Rows, where: str) -> None:
    classes = np.unique(labels)
    if len(classes) < 2:
        only = f"only class {classes[0]}" if len(classes) else "no item"
        raise ScoreError(f"{where} holds {only}: nothing can be learnt from it")


def sklearn_solver(
    x: Any, y: Rows, *, seed: int = 1111, jobs: int | None = None, counts: dict[str, int] | None = None
) -> Solver:
    """Return a solver that fits LogisticRegression(C=reg, random_state=seed) with scikit-learn's defaults.

    x: (n, d) features, dense or CSR, fitted in their dtype; y: int64 (n,). `Fit.stop` is not used, as there is no early
    stopping. jobs: number of threads, all processors by default; each fit uses one, so that results do not depend on it.
    Each call adds to counts: "fits", and "unconverged" (fits that ended with a ConvergenceWarning, mostly at 100
    iterations). Raises ScoreError for features that are not finite, or training rows of one class.
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
        # Warnings are recorded outside of the threads, as a thread that changes the filters changes them for all.
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
    """Return features (n, d), dense or CSR, and int64 labels (n,). Raises ScoreError unless shapes fit and x is finite."""
    x = x if hasattr(x, "tocsr") else np.asarray(x)
    y = np.asarray(y, dtype=np.int64)
    if x.ndim != 2 or y.shape != (x.shape[0],):
        raise ScoreError(f"features of shape {x.shape} do not fit labels of shape {y.shape}")
    if not np.isfinite(x.data if hasattr(x, "tocsr") else x).all():
        raise ScoreError("the features hold values that are not finite: the encoder returned NaN or infinity")
    return x, y
