"""Exact classifiers against scikit-learn run to the end, and awkward matrices. The trained relatedness head against a
slow autograd transcription. What is refused: tests/refusals/metrics.yaml."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from probe_data import clouds, some_fits
from regression_oracle import naive_regression, naive_soft_labels
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from stsbench.probes import exact
from stsbench.probes.exact import Exact
from stsbench.probes.regressor import fit_regressor, pair_features, soft_labels
from stsbench.probes.schemes import Fit

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # the oracle's last line search


def solved(x, y, classes, fits, tolerance=1e-8):
    counts = {}
    actual = Exact(x, y, classes, tolerance, counts, "cpu").fitted(fits)
    assert counts["fits"] == len(fits) and counts["unconverged"] == 0
    return actual


@pytest.mark.parametrize(("classes", "n", "d"), [(2, 100, 8), (3, 40, 60), (6, 100, 8)])
def test_equal_to_scikit_learn_run_to_the_end(classes, n, d):
    x, y = clouds(n, d, classes, seed=classes)
    fits = some_fits(n, regs=(0.25, 32.0), k=2)
    for fit, actual in zip(fits, solved(x, y, classes, fits), strict=True):
        wide = x.astype(np.float64)
        want = LogisticRegression(C=fit.reg, solver="newton-cholesky", tol=1e-13, max_iter=1000)
        want.fit(wide[fit.train], y[fit.train])
        np.testing.assert_allclose(actual.coef, want.coef_, rtol=1e-6, atol=1e-7)
        centred = want.intercept_ - (want.intercept_.mean() if classes > 2 else 0)
        np.testing.assert_allclose(actual.intercept, centred, rtol=1e-6, atol=1e-6)
        assert np.array_equal(actual.predicted, want.predict(wide[fit.predict]))


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
        for fit, actual in zip(fits, solved(x, y, classes, fits, 1e-5), strict=True):
            want = LogisticRegression(C=reg, solver="newton-cholesky", tol=1e-12, max_iter=1000)
            wanted = want.fit(x[fit.train], y[fit.train]).decision_function(x[fit.predict]).reshape(len(fit.predict), -1)
            if classes > 2:  # a constant added to all is free
                wanted = wanted - wanted.mean(axis=1, keepdims=True)
            values = x[fit.predict] @ actual.coef.T + actual.intercept
            np.testing.assert_allclose(values, wanted, rtol=1e-4, atol=1e-4, err_msg=name)


def test_how_the_fits_are_split_up_changes_nothing(monkeypatch):
    x, y = clouds(70, 5, 3, seed=6)
    fits = [*some_fits(70, regs=(0.25, 8.0)), Fit(np.arange(60), None, np.arange(70), 100.0)]
    want = solved(x, y, 3, fits)
    for names in ({"BLOCK": 1, "LOOSE": 1e-8}, {"ENOUGH": 1, "SHARED": 100}):
        with monkeypatch.context() as patch:
            for name, value in names.items():
                patch.setattr(exact, name, value)
            other = solved(x, y, 3, fits)
        for a, b in zip(want, other, strict=True):
            np.testing.assert_allclose(a.coef, b.coef, atol=1e-7)
            assert np.array_equal(a.predicted, b.predicted)


def test_a_later_call_finds_the_same_from_a_closer_start():
    x, y = clouds(70, 5, 4, seed=7)
    every = Fit(np.arange(70), None, np.arange(70), 8.0)
    (fresh,) = solved(x, y, 4, [every])
    solver = Exact(x, y, 4, 1e-8, None, "cpu")
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
        for fit, actual in zip(fits, solver.fitted(fits), strict=True):
            want = LogisticRegression(C=2.0, solver="newton-cholesky", tol=1e-12)
            want.fit(x[fit.train].astype(float), y[fit.train])
            np.testing.assert_allclose(actual.coef, want.coef_, rtol=1e-5, atol=1e-6)
            assert actual.solved and np.array_equal(actual.predicted, want.predict(x))


def test_a_repeated_training_row_counts_twice_and_the_caller_s_array_is_left_alone():
    x, y = clouds(40, 4, 2, seed=1)
    x = x.astype(np.float64)
    rows, before = np.r_[np.arange(40), np.arange(10)], x.copy()
    (actual,) = solved(x, y, 2, [Fit(rows, None, np.arange(3), 2.0)])
    want = LogisticRegression(C=2.0, solver="newton-cholesky", tol=1e-12).fit(x[rows], y[rows])
    np.testing.assert_allclose(actual.coef, want.coef_, atol=1e-6)
    assert np.array_equal(x, before)


def test_a_fit_that_is_not_solved_is_counted(monkeypatch):
    x, y = clouds(60, 5, 2)
    monkeypatch.setattr(exact.minimise, "__defaults__", (1,))  # one Newton step
    counts = {}
    predicted = Exact(x, y, 2, counts=counts)(some_fits(60))
    assert counts["unconverged"] == counts["fits"] == len(predicted) == 9


def test_sparse_vectors_are_read_as_dense_ones():
    x, y = clouds(50, 4, 2)
    x *= x > 0
    fits = some_fits(50)
    dense, packed = Exact(x, y, 2)(fits), Exact(sparse.csr_array(x), y, 2)(fits)
    assert all(np.array_equal(a, b) for a, b in zip(dense, packed, strict=True))


def problem(seed=0):
    """Features and scores of three splits, related by a noisy linear map; scores in 0-5, fifths of a point."""
    rng = np.random.default_rng(seed)
    slope = rng.normal(size=6)
    parts = []
    for size in (90, 40, 30):
        x = rng.normal(size=(size, 6)).astype(np.float32)
        parts.append((x, np.round(5 * np.clip(2.5 + x @ slope / 2 + rng.normal(0, 0.5, size), 0, 5)) / 5))
    return *parts[0], *parts[1], parts[2][0]


@settings(max_examples=25)
@given(st.lists(st.floats(0, 5), min_size=1, max_size=30))
def test_soft_labels_equal_the_definition_and_keep_the_mean(values):
    gold = np.array(values)
    labels = soft_labels(gold)
    assert labels == pytest.approx(naive_soft_labels(gold), abs=1e-6)
    assert labels @ np.arange(1, 6) == pytest.approx(gold, abs=1e-5)
    assert labels.sum(axis=1) == pytest.approx(np.minimum(gold, 1), abs=1e-6)  # below 1, class 0's share is lost


def test_early_stopping_equals_the_slow_transcription():
    """Failures are counted over all rounds: a counter that an improvement reset would let this fit run on."""
    parts = problem(2)
    actual = fit_regressor(*parts, round_epochs=2, batch=16)
    predicted, history, epochs = naive_regression(*parts, epochs=2, rounds=501, batch=16)
    assert actual.epochs == epochs < 1000 and actual.dev_spearman == pytest.approx(history, abs=1e-6)
    assert actual.predicted == pytest.approx(predicted, abs=1e-5)
    better = history > np.maximum.accumulate(np.r_[-1, history[:-1]])
    assert (~better).sum() == 4 and (~better[: np.flatnonzero(better)[-1]]).any() and not better[-1]


def test_the_last_round_begins_at_the_limit():
    assert fit_regressor(*problem(), round_epochs=10, max_epoch=100).epochs == 110
    for epochs, tenacity in ((50, 3), (20, 0)):
        # Nothing is learnt, so after the first every round fails: tenacity + 1 of them.
        still = fit_regressor(*problem(), round_epochs=10, learning_rate=1e-30, tenacity=tenacity)
        assert still.epochs == epochs and len(set(still.dev_spearman)) == 1


def test_a_round_without_a_spearman_counts_as_zero_and_global_generators_are_left_alone():
    train, train_gold, dev, dev_gold, test = problem()
    np.random.seed(3)
    wanted = np.random.rand()
    np.random.seed(3)
    actual = fit_regressor(train, train_gold, np.zeros_like(dev), dev_gold, test, round_epochs=1)
    assert actual.dev_spearman.tolist() == [0.0] * 5  # the first 0 improves on -1
    assert np.random.rand() == wanted  # torch's: test_lockstep.py, of the start


def test_sparse_features_equal_dense_ones():
    rng, width = np.random.default_rng(0), 8
    first, second = (rng.normal(size=(2, 5, width)) * (rng.random((2, 5, width)) < 0.5)).astype(np.float32)
    dense, thin = pair_features(first, second), pair_features(sparse.csr_array(first), sparse.csr_array(second))
    assert dense.dtype == thin.dtype == np.float32 and sparse.issparse(thin)
    assert thin.toarray() == pytest.approx(dense) and dense.shape == (5, 2 * width)
    for row, u, v in zip(dense, first, second, strict=True):
        assert row.tolist() == [abs(a - b) for a, b in zip(u, v, strict=True)] + [a * b for a, b in zip(u, v, strict=True)]
