"""Exact classifiers against scikit-learn run to the end, and awkward matrices."""

import numpy as np
import pytest
from probe_data import clouds, some_fits
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from stsbench.errors import ScoreError
from stsbench.probes import exact
from stsbench.probes.exact import Exact, exact_solver
from stsbench.probes.schemes import Fit

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # the oracle's last line search


def solved(x, y, classes, fits, tolerance=1e-8):
    counts = {}
    found = Exact(x, y, classes, tolerance, counts, "cpu").fitted(fits)
    assert counts["fits"] == len(fits) and counts["unconverged"] == 0
    return found


@pytest.mark.parametrize("classes", [2, 3, 6])
@pytest.mark.parametrize("n, d", [(150, 8), (40, 60)])
def test_equal_to_scikit_learn_run_to_the_end(classes, n, d):
    x, y = clouds(n, d, classes, seed=classes)
    fits = some_fits(n, regs=(0.25, 2.0, 32.0))
    for fit, found in zip(fits, solved(x, y, classes, fits), strict=True):
        wide = x.astype(np.float64)
        want = LogisticRegression(C=fit.reg, solver="newton-cholesky", tol=1e-13, max_iter=1000)
        want.fit(wide[fit.train], y[fit.train])
        np.testing.assert_allclose(found.coef, want.coef_, rtol=1e-6, atol=1e-7)
        centred = want.intercept_ - (want.intercept_.mean() if classes > 2 else 0)
        np.testing.assert_allclose(found.intercept, centred, rtol=1e-6, atol=1e-6)
        assert np.array_equal(found.predicted, want.predict(wide[fit.predict]))


def awkward():
    x, y = clouds(60, 6, 2, seed=2)
    far = np.where(y[:, None] == 1, 5, -5) + 0.1 * x
    return {
        "constant column": np.hstack([x, np.full((60, 1), 3.0)]), "all zero column": np.hstack([x, 0 * x[:, :1]]),
        "repeated columns": np.hstack([x, x, x[:, :2] - x[:, 1:3]]), "separable": far, "large mean": x + 100,
        "repeated rows": np.repeat(x[::3], 3, axis=0), "large": 30 * x, "small": 1e-4 * x, "constant": 0 * x + 2,
        "uneven": x * np.float32([1e-3, 1, 1, 10, 100, 1000]), "one": x[:, :1],
    }, y


@pytest.mark.parametrize(("classes", "reg"), [(2, 1000.0), (3, 0.5)])
def test_awkward_matrices(reg, classes):
    every, y = awkward()
    y = y if classes == 2 else y + (np.arange(60) % 5 == 0)
    fits = some_fits(60, regs=(reg,))
    for name, matrix in every.items():
        x = matrix.astype(np.float64)
        for fit, found in zip(fits, solved(x, y, classes, fits, 1e-5), strict=True):
            want = LogisticRegression(C=reg, solver="newton-cholesky", tol=1e-12, max_iter=1000)
            wanted = want.fit(x[fit.train], y[fit.train]).decision_function(x[fit.predict]).reshape(len(fit.predict), -1)
            if classes > 2:  # a constant added to all is free
                wanted = wanted - wanted.mean(axis=1, keepdims=True)
            values = x[fit.predict] @ found.coef.T + found.intercept
            np.testing.assert_allclose(values, wanted, rtol=1e-4, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("name, value", [("BLOCK", 1), ("ENOUGH", 1), ("SHARED", 100), ("LOOSE", 1e-8)])
def test_how_the_fits_are_split_up_changes_nothing(monkeypatch, name, value):
    x, y = clouds(70, 5, 3, seed=6)
    fits = [*some_fits(70), *some_fits(70, regs=(3.0,), k=10), Fit(np.arange(60), None, np.arange(70), 100.0)]
    want = solved(x, y, 3, fits)
    monkeypatch.setattr(exact, name, value)
    for a, b in zip(want, solved(x, y, 3, fits), strict=True):
        np.testing.assert_allclose(a.coef, b.coef, atol=1e-7)
        assert np.array_equal(a.predicted, b.predicted)


@pytest.mark.parametrize("classes", [2, 4])
def test_a_later_call_finds_the_same_from_a_closer_start(classes):
    x, y = clouds(70, 5, classes, seed=7)
    every = Fit(np.arange(70), None, np.arange(70), 8.0)
    (fresh,) = solved(x, y, classes, [every])
    solver = Exact(x, y, classes, 1e-8, None, "cpu")
    solver.fitted(some_fits(70))
    (later,) = solver.fitted([every])
    np.testing.assert_allclose(later.coef, fresh.coef, atol=1e-7)
    np.testing.assert_allclose(later.intercept, fresh.intercept, atol=1e-7)
    assert later.iterations < fresh.iterations and later.solved


def test_starts_of_other_classes_are_not_mixed_up():
    x, y = clouds(90, 5, 3, seed=8)
    solver = Exact(x, y, 3, 1e-8, None, "cpu")
    for pair in ((0, 1), (0, 2), (1, 2), (0, 1, 2)):
        rows = np.flatnonzero(np.isin(y, pair))
        fits = [Fit(rows[rows % 3 != f], None, np.arange(90), 2.0) for f in range(3)]
        for fit, found in zip(fits, solver.fitted(fits), strict=True):
            want = LogisticRegression(C=2.0, solver="newton-cholesky", tol=1e-12)
            want.fit(x[fit.train].astype(float), y[fit.train])
            np.testing.assert_allclose(found.coef, want.coef_, rtol=1e-5, atol=1e-6)
            assert found.solved and np.array_equal(found.predicted, want.predict(x))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_callers_array_is_left_alone(dtype):
    x, y = clouds(40, 4, 2)
    x = x.astype(dtype)
    before = x.copy()
    exact_solver(x, y, 2)(some_fits(40))
    assert np.array_equal(x, before)


def test_a_repeated_training_row_counts_twice():
    x, y = clouds(40, 4, 2, seed=1)
    rows = np.r_[np.arange(40), np.arange(10)]
    (found,) = solved(x, y, 2, [Fit(rows, None, np.arange(3), 2.0)])
    want = LogisticRegression(C=2.0, solver="newton-cholesky", tol=1e-12).fit(x[rows].astype(float), y[rows])
    np.testing.assert_allclose(found.coef, want.coef_, atol=1e-6)


def test_a_fit_that_is_not_solved_is_counted(monkeypatch):
    x, y = clouds(60, 5, 2)
    monkeypatch.setattr(exact.minimise, "__defaults__", (1,))  # one Newton step
    counts = {}
    predicted = exact_solver(x, y, 2, counts=counts)(some_fits(60))
    assert counts["unconverged"] == counts["fits"] == len(predicted) == 9


def test_sparse_vectors_and_what_is_refused():
    x, y = clouds(50, 4, 2)
    x *= x > 0
    fits = some_fits(50)
    dense, packed = exact_solver(x, y, 2)(fits), exact_solver(sparse.csr_array(x), y, 2)(fits)
    assert all(np.array_equal(a, b) for a, b in zip(dense, packed, strict=True))
    with pytest.raises(ScoreError, match="at most 10000 features"):
        exact_solver(sparse.csr_array((50, 20_000)), y, 2)
    with pytest.raises(ScoreError, match="labels must be 0 to 1"):
        exact_solver(x, y + 1, 2)
    with pytest.raises(ScoreError, match="fewer than two classes"):
        exact_solver(x, y, 2)([Fit(np.flatnonzero(y == 1), None, np.arange(3), 1.0)])
    x[3, 2] = np.nan
    with pytest.raises(ScoreError, match="not finite"):
        exact_solver(x, y, 2)


# SentEval's scikit-learn mode as plain loops: no code of ours, one fit after the other.

SEED = 1111


def percent(classifier, x, y):
    return 100 * classifier.score(x, y)


def fitted(x, y, c):
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
    want = [LogisticRegression(C=f.reg, random_state=1111).fit(x[f.train], y[f.train]).predict(x[f.predict]) for f in fits]
    for jobs in (1, None):
        got = sklearn_solver(x, y, jobs=jobs)(fits)
        assert all(np.array_equal(a, b) and a.dtype == np.int64 for a, b in zip(got, want, strict=True))


def test_features_keep_their_dtype(monkeypatch):
    seen, fit = set(), LogisticRegression.fit
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
