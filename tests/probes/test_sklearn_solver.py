"""The scikit-learn mode against plain loops, and what it counts."""

import warnings

import numpy as np
import pytest
from probe_data import clouds, some_fits
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from stsbench.errors import ScoreError
from stsbench.probes.schemes import GRID_NESTED_SPLIT, Fit, nested, sklearn_solver

# SentEval's scikit-learn mode as plain loops: no code of ours, one fit after the other.

SEED = 1111


def percent(classifier, x, y):
    """Accuracy in percent."""
    return 100 * classifier.score(x, y)


def fitted(x, y, c):
    """The library's default classifier."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return LogisticRegression(C=c, random_state=SEED).fit(x, y)


def choose(x, y, k, grid):
    """The grid's place and the score of the best strength: mean accuracy over folds, rounded, the first of equals."""
    scores = []
    for c in grid:
        parts = []
        for train, held in StratifiedKFold(n_splits=k, shuffle=True, random_state=SEED).split(x, y):
            parts.append(percent(fitted(x[train], y[train], c), x[held], y[held]))
        scores.append(round(np.mean(parts), 2))
    best = scores.index(max(scores))
    return best, scores[best]


def naive_nested(x, y, k, grid):
    """InnerKFoldClassifier: test and development accuracy, the choice in each outer fold."""
    tested, development, chosen = [], [], []
    for train, held in StratifiedKFold(n_splits=k, shuffle=True, random_state=SEED).split(x, y):
        best, score = choose(x[train], y[train], k, grid)
        chosen.append(best)
        development.append(score)
        tested.append(round(percent(fitted(x[train], y[train], grid[best]), x[held], y[held]), 2))
    return {"acc": float(np.mean(tested)), "devacc": float(np.mean(development)), "chosen": chosen}


@pytest.mark.parametrize(("classes", "form"), [(2, np.asarray), (4, sparse.csr_array), (2, sparse.csr_matrix)])
def test_fits_are_the_librarys_own(classes, form):
    x, y = clouds(90, 7, classes)
    x, fits = form(x), some_fits(90)
    want = [
        LogisticRegression(C=f.reg, random_state=1111).fit(x[f.train], y[f.train]).predict(x[f.predict]) for f in fits
    ]
    for jobs in (1, None):
        got = sklearn_solver(x, y, jobs=jobs)(fits)
        assert all(np.array_equal(a, b) and a.dtype == np.int64 for a, b in zip(got, want, strict=True))


def test_features_keep_their_dtype(monkeypatch):
    seen = set()
    fit = LogisticRegression.fit
    monkeypatch.setattr(LogisticRegression, "fit", lambda self, x, y: (seen.add(x.dtype), fit(self, x, y))[1])
    x, y = clouds(30, 3, 2)
    sklearn_solver(x, y, jobs=1)(some_fits(30))
    assert seen == {np.dtype(np.float32)}


def test_nested_equals_the_plain_loops():
    x, y = clouds(80, 5, 2, seed=3)
    want = naive_nested(x, y, 4, GRID_NESTED_SPLIT)
    got = nested(y, 4, 1111, GRID_NESTED_SPLIT, sklearn_solver(x, y, jobs=1))
    hit = got.predicted == y[got.rows]
    tested = [round(100 * float(hit[got.fold == f].mean()), 2) for f in range(4)]
    assert np.mean(tested) == pytest.approx(want["acc"], abs=1e-9)
    assert got.chosen.tolist() == want["chosen"]
    assert got.grid.max(axis=1).mean() == pytest.approx(want["devacc"], abs=1e-9)
    assert len(set(got.grid.ravel().tolist())) > 4  # the strengths differ: the choice means something


@pytest.mark.parametrize("jobs", [1, 2])
def test_unconverged_fits_are_counted_and_silent(jobs):
    x, y = clouds(120, 30, 2, spread=3)
    x *= np.geomspace(0.01, 1000, 30, dtype=np.float32)  # scales so different that 100 iterations do not do
    fits, expected = some_fits(120, regs=(1e-9, 1.0, 1e3)), 0
    for fit in fits:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            LogisticRegression(C=fit.reg, random_state=1111).fit(x[fit.train], y[fit.train])
        expected += bool(caught)
    assert 0 < expected < len(fits)
    counts = {}
    solve = sklearn_solver(x, y, jobs=jobs, counts=counts)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a warning that got out would fail here
        solve(fits)
        assert counts == {"fits": len(fits), "unconverged": expected}
        solve(fits)
    assert counts == {"fits": 2 * len(fits), "unconverged": 2 * expected}


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_vectors_that_are_not_finite(bad):
    x, y = clouds(30, 3, 2)
    x[4, 1] = bad
    for form in (x, sparse.csr_array(x)):
        with pytest.raises(ScoreError, match="not finite"):
            sklearn_solver(form, y)


def test_what_cannot_be_learnt():
    x, y = clouds(30, 3, 2)
    with pytest.raises(ScoreError, match="fewer than two classes"):
        sklearn_solver(x, y)([Fit(np.flatnonzero(y == 1), None, np.arange(3), 1.0)])
    with pytest.raises(ScoreError, match="do not fit labels"):
        sklearn_solver(x, y[:-1])
