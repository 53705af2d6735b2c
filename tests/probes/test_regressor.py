"""The trained relatedness head against a slow autograd transcription."""


import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from regression_oracle import naive_regression, naive_soft_labels
from scipy import sparse

from stsbench.errors import ScoreError
from stsbench.probes.regressor import RegressorSettings, fit_regressor, pair_features, soft_labels

SIZES = (90, 40, 30)


def problem(seed=0, width=6, spread=1.0):
    """Features and scores of three splits, related by a noisy linear map; scores in 0-5, fifths of a point."""
    rng = np.random.default_rng(seed)
    slope = rng.normal(size=width)
    parts = []
    for size in SIZES:
        x = spread * rng.normal(size=(size, width)).astype(np.float32)
        y = np.clip(2.5 + x @ slope / spread / 2 + rng.normal(0, 0.5, size), 0, 5)
        parts.append((x, np.round(5 * y) / 5))
    (train, train_gold), (dev, dev_gold), (test, _) = parts
    return train, train_gold, dev, dev_gold, test


@settings(max_examples=25)
@given(st.lists(st.floats(0, 5), min_size=1, max_size=30))
def test_soft_labels_equal_the_definition_and_keep_the_mean(values):
    gold = np.array(values)
    labels = soft_labels(gold)
    assert labels == pytest.approx(naive_soft_labels(gold), abs=1e-6)
    assert labels @ np.arange(1, 6) == pytest.approx(gold, abs=1e-5)
    assert labels.sum(axis=1) == pytest.approx(np.minimum(gold, 1), abs=1e-6)  # below 1, class 0's share is lost


@pytest.mark.parametrize("wrong", [-0.1, 5.1, np.nan])
def test_scores_outside_the_classes_are_refused(wrong):
    with pytest.raises(ScoreError, match="1 gold scores are outside 0-5"):
        soft_labels(np.array([1.0, wrong]))


def test_early_stopping_equals_the_slow_transcription():
    parts = problem(1)
    found = fit_regressor(*parts, RegressorSettings(round_epochs=10, batch=32))
    predicted, history, epochs = naive_regression(*parts, epochs=10, rounds=101, batch=32)
    assert found.epochs == epochs < 1000 and found.dev_spearman == pytest.approx(history, abs=1e-6)
    assert found.predicted == pytest.approx(predicted, abs=1e-5)


def test_the_last_round_begins_at_the_limit():
    assert fit_regressor(*problem(), RegressorSettings(round_epochs=10, max_epoch=100)).epochs == 110
    for epochs, tenacity in ((50, 3), (20, 0)):
        # Nothing is learnt, so after the first every round fails: tenacity + 1 of them.
        still = fit_regressor(*problem(), RegressorSettings(round_epochs=10, learning_rate=1e-30, tenacity=tenacity))
        assert still.epochs == epochs and len(set(still.dev_spearman)) == 1


def test_failures_are_counted_over_all_rounds():
    """A counter that an improvement reset would let some of these fits run on."""
    kinds = set()
    for seed in range(4):
        train, train_gold, dev, dev_gold, test = problem(seed)
        settings = RegressorSettings(round_epochs=2, learning_rate=0.05, batch=16)
        found = fit_regressor(train, train_gold, dev, dev_gold, test, settings)
        history = found.dev_spearman
        best = np.maximum.accumulate(np.r_[-1, history[:-1]])
        better = history > best
        assert (~better).sum() == 4 and not better[-1]
        kinds.add(bool((~better[: np.flatnonzero(better)[-1]]).any()))
    assert True in kinds  # a failure, then an improvement, then more failures


def test_a_round_without_a_spearman_counts_as_zero():
    train, train_gold, dev, dev_gold, test = problem()
    found = fit_regressor(train, train_gold, np.zeros_like(dev), dev_gold, test, RegressorSettings(round_epochs=1))
    assert found.dev_spearman.tolist() == [0.0] * 5  # the first 0 improves on -1


def test_global_generators_are_left_alone():
    np.random.seed(3)
    torch.manual_seed(3)
    wanted = np.random.rand(), torch.rand(1).item()
    np.random.seed(3)
    torch.manual_seed(3)
    fit_regressor(*problem(), RegressorSettings(round_epochs=1, max_epoch=0))
    assert (np.random.rand(), torch.rand(1).item()) == wanted


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.integers(1, 8))
def test_sparse_features_equal_dense_ones(seed, width):
    rng = np.random.default_rng(seed)
    first, second = rng.normal(size=(2, 5, width)).astype(np.float32) * (rng.random((2, 5, width)) < 0.5)
    first, second = first.astype(np.float32), second.astype(np.float32)
    dense, thin = pair_features(first, second), pair_features(sparse.csr_array(first), sparse.csr_array(second))
    assert dense.dtype == thin.dtype == np.float32 and sparse.issparse(thin)
    assert thin.toarray() == pytest.approx(dense) and dense.shape == (5, 2 * width)
    for row, u, v in zip(dense, first, second, strict=True):
        assert row.tolist() == [abs(a - b) for a, b in zip(u, v, strict=True)] + [a * b for a, b in zip(u, v, strict=True)]


def test_nan_features_and_equal_dev_scores_are_refused():
    train, train_gold, dev, dev_gold, test = problem()
    broken = test.copy()
    broken[[3, 8], 2] = np.nan
    for wrong in (broken, sparse.csr_array(broken)):
        with pytest.raises(ScoreError, match="2 of 30 pairs of the test split"):
            fit_regressor(train, train_gold, dev, dev_gold, wrong)
    with pytest.raises(ScoreError, match="all 40 gold scores of the dev split are equal"):
        fit_regressor(train, train_gold, dev, np.full(40, 2.0), test)
