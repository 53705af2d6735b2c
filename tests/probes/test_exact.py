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


@pytest.mark.parametrize(("classes", "n", "d"), [(2, 100, 8), (3, 40, 60), (6, 100, 8)])
def test_equal_to_scikit_learn_run_to_the_end(classes, n, d):
    x, y = clouds(n, d, classes, seed=classes)
    fits = some_fits(n, regs=(0.25, 32.0), k=2)
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
    fits = some_fits(60, regs=(reg,), k=2)
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
    fits = [*some_fits(70), Fit(np.arange(60), None, np.arange(70), 100.0)]
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


def test_the_callers_array_is_left_alone():
    x, y = clouds(40, 4, 2)
    x = x.astype(np.float64)
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
