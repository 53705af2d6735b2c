"""AP, AUC, best F1 and accuracy, against scikit-learn and naive loops; what their draws and intervals mean."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, average_precision_score, f1_score, roc_auc_score

from stsbench.metrics.bootstrap import resample_counts
from stsbench.metrics.matching import (
    CRITERIA,
    Cuts,
    average_precision,
    criterion,
    matching_draws,
    matching_influences,
    matching_scores,
    roc_auc,
    threshold_interval,
)


def pairs(n, seed, ties=False, share=0.4):
    """Similarities of n pairs, those of matches a little higher; with ties, of one decimal."""
    rng = np.random.default_rng(seed)
    label = np.r_[1, 0, rng.random(n - 2) < share].astype(np.int64)
    similarity = rng.normal(0.4, 0.2, n) + 0.2 * label
    return (similarity.round(1) if ties else similarity), label


@pytest.mark.parametrize("ties", [False, True])
def test_influences_are_what_a_pairs_weight_moves_a_score_by(ties):
    n, step = 40, 1e-5
    similarity, label = pairs(n, 1, ties)
    cuts = Cuts(similarity, label)
    best = {name: int(np.argmax(criterion(name, *cuts.counts()))) for name in CRITERIA}

    def scores(weights):
        counts = cuts.counts(weights)
        return {"ap": average_precision(*counts), "auc": roc_auc(*counts),
                **{name: criterion(name, *counts)[best[name]] for name in CRITERIA}}

    moved = [scores(1 + sign * step * np.eye(n)[i]) for i in range(n) for sign in (1, -1)]
    for name, values in matching_influences(similarity, label).items():
        naive = [n * (moved[2 * i][name] - moved[2 * i + 1][name]) / (2 * step) for i in range(n)]
        np.testing.assert_allclose(values, naive, atol=1e-6)
        assert abs(values.mean()) < 1e-12


@pytest.mark.parametrize(("n", "ties"), [(2, False), (17, False), (40, True)])
def test_scores_are_those_of_scikit_learn_and_of_a_loop_over_thresholds(n, ties):
    for seed in range(2):
        similarity, label = pairs(n, seed, ties)
        scores = matching_scores(similarity, label)
        assert scores.ap == pytest.approx(average_precision_score(label, similarity), abs=1e-12)
        assert scores.auc == pytest.approx(roc_auc_score(label, similarity), abs=1e-12)
        cuts = [*np.unique(similarity), similarity.max() + 1]
        assert scores.f1 == pytest.approx(max(f1_score(label, similarity >= t, zero_division=0) for t in cuts))
        assert scores.accuracy == pytest.approx(max(accuracy_score(label, similarity >= t) for t in cuts))
        for name, of in (("f1", f1_score), ("accuracy", accuracy_score)):
            reached = of(label, similarity >= getattr(scores, f"{name}_threshold"))
            assert reached == pytest.approx(getattr(scores, name))


def test_a_case_by_hand():
    """Above .9: one match. Above .7: two of three. The middle between .8 and .6 is the threshold."""
    scores = matching_scores(np.array([0.9, 0.8, 0.8, 0.6, 0.1]), np.array([1, 1, 0, 0, 0]))
    assert scores.f1 == pytest.approx(0.8) and scores.f1_threshold == pytest.approx(0.7)
    assert scores.accuracy == pytest.approx(0.8) and scores.accuracy_threshold == pytest.approx(0.85)
    assert scores.ap == pytest.approx(0.5 * 1 + 0.5 * 2 / 3) and scores.auc == pytest.approx((3 + 2.5) / 6)


def test_draws_are_the_scores_of_the_drawn_pairs():
    similarity, label = pairs(60, 1)
    counts = resample_counts(60, 12, (0,))
    draws = matching_draws(similarity, label, [counts[:7], counts[7:]])
    threshold = {name: getattr(matching_scores(similarity, label), f"{name}_threshold") for name in CRITERIA}
    for i, weights in enumerate(counts.astype(int)):
        drawn = similarity.repeat(weights), label.repeat(weights)
        assert draws.ap[i] == pytest.approx(average_precision_score(drawn[1], drawn[0]))
        assert draws.auc[i] == pytest.approx(roc_auc_score(drawn[1], drawn[0]))
        assert draws.f1[i] == pytest.approx(f1_score(drawn[1], drawn[0] >= threshold["f1"]))
        assert draws.accuracy[i] == pytest.approx(accuracy_score(drawn[1], drawn[0] >= threshold["accuracy"]))
    assert {name: len(shifts) for name, shifts in draws.shifts.items()} == {"f1": 12, "accuracy": 12}


def test_draws_without_a_match_have_no_score():
    counts = np.array([[0.0, 2, 0], [1, 1, 1]])
    draws = matching_draws(np.array([0.9, 0.5, 0.1]), np.array([1, 0, 0]), [counts])
    assert np.isnan(draws.ap).tolist() == [True, False] and np.isnan(draws.auc).tolist() == [True, False]


def test_the_interval_of_a_threshold_covers_the_true_one():
    """Two normal kinds of equal size: by symmetry the most accurate threshold is half way between their means."""
    rng = np.random.default_rng(5)
    inside, widths = 0, []
    for number in range(80):
        label = (rng.random(150) < 0.5).astype(np.int64)
        similarity = rng.normal(0.3, 0.1, 150) + 0.2 * label
        draws = matching_draws(similarity, label, [resample_counts(150, 200, (number,))])
        threshold = matching_scores(similarity, label).accuracy_threshold
        low, high = threshold_interval(threshold, draws.shifts["accuracy"])
        inside, widths = inside + (low <= 0.4 <= high), [*widths, high - low]
    assert inside >= 70 and np.mean(widths) < 0.15
    assert threshold_interval(0.4, np.zeros(30)) is None
