"""Probabilities of a match against scikit-learn's, thresholds against a loop, and how often their intervals cover."""

import numpy as np
import pytest
from sklearn.calibration import calibration_curve
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from stsbench.errors import ScoreError, StsbenchError
from stsbench.extensions.statistics.calibrate import (
    METHODS,
    brier,
    cross_fitted,
    fit_curve,
    reliability,
    threshold_for,
)
from stsbench.metrics.bootstrap import wilson


def pairs(n, seed, step=0.2):
    rng = np.random.default_rng(seed)
    label = np.r_[np.ones(6), np.zeros(6), rng.random(n - 12) < 0.4].astype(np.int64)
    return rng.normal(0.4, 0.15, n) + step * label, label


@pytest.mark.parametrize("method", METHODS)
def test_probabilities_are_those_of_scikit_learn(method):
    similarity, label = pairs(300, 0)
    folds = StratifiedKFold(5, shuffle=True, random_state=3)
    if method == "isotonic":
        model = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
        whole = model.fit(similarity, label).predict(similarity)
        held = cross_val_predict(model, similarity, label, cv=folds)
    else:
        model = LogisticRegression(C=np.inf, tol=1e-8, max_iter=1000)
        whole = model.fit(similarity[:, None], label).predict_proba(similarity[:, None])[:, 1]
        held = cross_val_predict(model, similarity[:, None], label, cv=folds, method="predict_proba")[:, 1]
    np.testing.assert_allclose(fit_curve(similarity, label, method)(similarity), whole, atol=1e-6)
    fitted = cross_fitted(similarity, label, method, folds=5, seed=3)
    np.testing.assert_allclose(fitted, held, atol=1e-6)
    assert brier(fitted, label) == pytest.approx(brier_score_loss(label, held), abs=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_a_curve_never_falls_even_where_similarity_misleads(method):
    similarity, label = pairs(200, 1)
    values = fit_curve(-similarity, label, method)(np.linspace(-1, 1, 50))
    assert (np.diff(values) >= 0).all() and np.allclose(values, label.mean(), atol=0.15)


def test_reliability_groups_pairs_of_like_probability():
    rng = np.random.default_rng(2)
    probability = rng.random(1000)
    label = (rng.random(1000) < probability).astype(int)
    bins = reliability(probability, label, 10)
    share, mean = calibration_curve(label, probability, n_bins=10, strategy="quantile")
    np.testing.assert_allclose([one.probability for one in bins], mean, atol=0.01)
    np.testing.assert_allclose([one.share for one in bins], share, atol=0.03)
    assert sum(one.n for one in bins) == 1000 and all(one.low <= one.share <= one.high for one in bins)
    alike = reliability(np.full(50, 0.3), np.r_[np.ones(20), np.zeros(30)])
    assert [(one.n, one.share) for one in alike] == [(50, 0.4)]


@pytest.mark.parametrize("precision", [0.5, 0.8, 0.95, 1.0])
def test_the_threshold_for_a_precision_is_that_of_a_loop(precision):
    for seed in range(5):
        similarity, label = pairs(80, seed)
        enough = [t for t in similarity if label[similarity >= t].mean() >= precision - 1e-12]
        threshold = threshold_for(similarity, label, precision)
        if not enough:
            assert threshold is None
            continue
        chosen, wanted = similarity >= threshold.value, similarity >= min(enough)
        assert (chosen == wanted).all() and threshold.precision == pytest.approx(label[chosen].mean())
        assert threshold.recall == pytest.approx(label[chosen].sum() / label.sum())


def test_the_interval_covers_the_true_threshold():
    """Two normal kinds in equal parts: the threshold with precision .8 follows from their distributions."""
    from scipy.optimize import brentq
    from scipy.stats import norm

    true = brentq(lambda t: norm.sf(t, 0.6, 0.1) - 4 * norm.sf(t, 0.4, 0.1), 0.3, 0.8)
    rng, inside = np.random.default_rng(4), 0
    for _ in range(80):
        label = (rng.random(300) < 0.5).astype(int)
        similarity = rng.normal(0.4, 0.1, 300) + 0.2 * label
        threshold = threshold_for(similarity, label, 0.8)
        inside += threshold.low <= true <= (threshold.high or np.inf)
    assert 70 <= inside <= 80


def test_the_interval_is_where_wilsons_test_does_not_decide():
    similarity, label = pairs(200, 7)
    threshold = threshold_for(similarity, label, 0.7)

    def ends(value):
        return wilson(int(label[similarity >= value].sum()), int((similarity >= value).sum()))

    values = np.sort(similarity)
    assert ends(threshold.low)[1] >= 0.7 and all(ends(value)[1] < 0.7 for value in values[values < threshold.low])
    assert ends(threshold.high)[0] > 0.7
    below = values[values < threshold.high][-1]
    assert ends(below)[0] <= 0.7
    few = threshold_for(similarity[:20], label[:20], 0.95)
    assert few is None or few.high is None  # twenty pairs never show a precision of .95


def test_what_cannot_be_is_an_error():
    similarity, label = pairs(40, 0)
    with pytest.raises(StsbenchError, match=r"precision must be above 0 and at most 1, not 1\.5"):
        threshold_for(similarity, label, 1.5)
    with pytest.raises(StsbenchError, match="method 'platt' is unknown"):
        fit_curve(similarity, label, "platt")
    with pytest.raises(ScoreError, match="5 folds need as many pairs of each kind, and of one there are 1"):
        cross_fitted(similarity[:10], np.r_[1, np.zeros(9)].astype(int))
