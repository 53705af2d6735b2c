"""Ranks against a sorted list per query; recall, hit and reciprocal rank against loops and scikit-learn. AP, AUC, best F1
and accuracy, against scikit-learn and naive loops; what their draws and intervals mean."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_matrix
from scipy.stats import rankdata
from sklearn import metrics as library

from stsbench.metrics import matching, ranking
from stsbench.metrics.bootstrap import resample_counts
from stsbench.metrics.matching import CRITERIA, criterion, matching_draws, matching_scores
from stsbench.metrics.ranking import hit, recall, reciprocal_rank, relevant_ranks

SMALL = st.integers(-2, 2).map(float)


def cosines(queries, corpus):
    def unit(rows):
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        return rows / np.where(norms > 0, norms, 1)

    return (unit(np.asarray(queries, np.float64)) @ unit(np.asarray(corpus, np.float64)).T).round(10)


def data(q=20, n=150, d=12, seed=0, most=4):
    rng = np.random.default_rng(seed)
    relevant = [rng.choice(n, rng.integers(1, most + 1), replace=False).tolist() for _ in range(q)]
    own = [[int(rng.choice(np.setdiff1d(np.arange(n), wanted)))] for wanted in relevant]
    return rng.standard_normal((q, d)), rng.standard_normal((n, d)), relevant, own


def listed(scores, wanted, own):
    """Worst ranks by building the list: the irrelevant before the relevant among equals, the relevant as given."""
    counted = [j for j in range(len(scores)) if j not in own]
    order = sorted((-scores[j], j in wanted, wanted.index(j) if j in wanted else 0, j) for j in counted)
    places = [entry[-1] for entry in order]
    return [places.index(j) + 1 for j in wanted]


@given(arrays(np.float32, (3, 2), elements=SMALL), arrays(np.float32, (12, 2), elements=SMALL),
       st.lists(st.lists(st.integers(0, 11), min_size=2, max_size=6, unique=True), min_size=3, max_size=3),
       st.integers(1, 13))
@settings(max_examples=15)
def test_ties_count_against_the_relevant(queries, corpus, chosen, block):
    own, relevant = [each[:1] for each in chosen], [each[1:] for each in chosen]
    similar = cosines(queries, corpus)
    worst, query = relevant_ranks(queries, corpus, relevant, own, block=block)
    assert query.tolist() == [i for i, wanted in enumerate(relevant) for _ in wanted]
    assert worst.tolist() == [rank for i in range(3) for rank in listed(similar[i], relevant[i], own[i])]
    middle, _ = relevant_ranks(queries, corpus, relevant, own, ties="mid", block=block)
    assert (middle <= worst).all()
    sparse, _ = relevant_ranks(csr_matrix(queries), csr_matrix(corpus), relevant, own, block=block)
    assert sparse.tolist() == worst.tolist()


def test_mid_ranks_of_one_relevant_text_are_scipys():
    rng = np.random.default_rng(1)
    corpus = rng.integers(-1, 2, (60, 3)).astype(float)
    queries = rng.integers(-1, 2, (30, 3)).astype(float)
    relevant = [[int(j)] for j in rng.integers(0, 60, 30)]
    similar = cosines(queries, corpus)
    got, _ = relevant_ranks(queries, corpus, relevant, ties="mid")
    assert got.tolist() == [rankdata(-similar[i])[relevant[i][0]] for i in range(30)]
    worst, _ = relevant_ranks(queries, corpus, relevant)
    assert worst.tolist() == [rankdata(-similar[i], "max")[relevant[i][0]] for i in range(30)]


@given(arrays(np.float32, (7, 2), elements=SMALL), st.lists(st.floats(1e-6, 1e6), min_size=7, max_size=7), st.randoms())
@settings(max_examples=15)
def test_vectors_of_one_direction_tie_whatever_their_lengths_and_order(corpus, lengths, random):
    """Rounding a vector of another length to float32 turns it by less than the tie rule's step."""
    queries = np.array([[1, 2], [2, 1], [-1, 1]], np.float32)
    want, _ = relevant_ranks(queries, corpus, [[0], [3, 1], [-1, 6]])
    other = (corpus.astype(np.float64) * np.array(lengths)[:, None]).astype(np.float32)
    order = [*range(7)]
    random.shuffle(order)
    moved = [[order.index(j) if j >= 0 else -1 for j in wanted] for wanted in ([0], [3, 1], [-1, 6])]
    got, query = relevant_ranks(queries, other[order], moved)
    for i in range(3):
        assert sorted(got[query == i]) == sorted(want[query == i])
    assert np.isinf(got[3]) and reciprocal_rank(got, query)[2] == 1 / got[4]


def test_more_queries_and_relevant_texts_than_fit_at_a_time(monkeypatch):
    queries, corpus, relevant, own = data(most=30)
    want, _ = relevant_ranks(queries, corpus, relevant, own)
    monkeypatch.setattr(ranking, "_QUERIES", 6)
    monkeypatch.setattr(ranking, "_PAIRS", 5)
    assert relevant_ranks(queries, corpus, relevant, own, block=40)[0].tolist() == want.tolist()


def test_measures_equal_a_loop():
    queries, corpus, relevant, own = data(seed=4)
    ranks, query = relevant_ranks(queries, corpus, relevant, own)
    for k in (1, 3, 10, 149):
        for i in range(20):
            mine = ranks[query == i]
            assert recall(ranks, query, k)[i] == sum(mine <= k) / len(mine)
            assert hit(ranks, query, k)[i] == (min(mine) <= k)
            assert reciprocal_rank(ranks, query, k)[i] == (1 / min(mine) if min(mine) <= k else 0)
    assert reciprocal_rank(ranks, query).tolist() == [1 / ranks[query == i].min() for i in range(20)]


def test_mrr_of_one_relevant_text_is_scikit_learns():
    queries, corpus, _, _ = data(seed=6)
    ranks, query = relevant_ranks(queries, corpus, [[i] for i in range(20)])
    want = library.label_ranking_average_precision_score(np.eye(20, 150), cosines(queries, corpus))
    assert reciprocal_rank(ranks, query).mean() == pytest.approx(want)


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
    cuts = matching.Cuts(similarity, label)
    best = {name: int(np.argmax(criterion(name, *cuts.counts()))) for name in CRITERIA}

    def scores(weights):
        counts = cuts.counts(weights)
        return {"ap": matching.average_precision(*counts), "auc": matching.roc_auc(*counts),
                **{name: criterion(name, *counts)[best[name]] for name in CRITERIA}}

    moved = [scores(1 + sign * step * np.eye(n)[i]) for i in range(n) for sign in (1, -1)]
    for name, values in matching.matching_influences(similarity, label).items():
        naive = [n * (moved[2 * i][name] - moved[2 * i + 1][name]) / (2 * step) for i in range(n)]
        np.testing.assert_allclose(values, naive, atol=1e-6)
        assert abs(values.mean()) < 1e-12


@pytest.mark.parametrize(("n", "ties"), [(2, False), (17, False), (40, True)])
def test_scores_are_those_of_scikit_learn_and_of_a_loop_over_thresholds(n, ties):
    for seed in range(2):
        similarity, label = pairs(n, seed, ties)
        scores = matching_scores(similarity, label)
        assert scores.ap == pytest.approx(library.average_precision_score(label, similarity), abs=1e-12)
        assert scores.auc == pytest.approx(library.roc_auc_score(label, similarity), abs=1e-12)
        cuts = [*np.unique(similarity), similarity.max() + 1]
        assert scores.f1 == pytest.approx(max(library.f1_score(label, similarity >= t, zero_division=0) for t in cuts))
        assert scores.accuracy == pytest.approx(max(library.accuracy_score(label, similarity >= t) for t in cuts))
        for name, of in (("f1", library.f1_score), ("accuracy", library.accuracy_score)):
            assert of(label, similarity >= getattr(scores, f"{name}_threshold")) == pytest.approx(getattr(scores, name))


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
        assert draws.ap[i] == pytest.approx(library.average_precision_score(drawn[1], drawn[0]))
        assert draws.auc[i] == pytest.approx(library.roc_auc_score(drawn[1], drawn[0]))
        assert draws.f1[i] == pytest.approx(library.f1_score(drawn[1], drawn[0] >= threshold["f1"]))
        assert draws.accuracy[i] == pytest.approx(library.accuracy_score(drawn[1], drawn[0] >= threshold["accuracy"]))
    assert {name: len(shifts) for name, shifts in draws.shifts.items()} == {"f1": 12, "accuracy": 12}


def test_draws_without_a_match_have_no_score():
    draws = matching_draws(np.array([0.9, 0.5, 0.1]), np.array([1, 0, 0]), [np.array([[0.0, 2, 0], [1, 1, 1]])])
    assert np.isnan(draws.ap).tolist() == [True, False] and np.isnan(draws.auc).tolist() == [True, False]


def test_the_interval_of_a_threshold_covers_the_true_one():
    """Two normal kinds of equal size: by symmetry the most accurate threshold is half way between their means."""
    rng = np.random.default_rng(5)
    inside, widths = 0, []
    for number in range(40):
        label = (rng.random(150) < 0.5).astype(np.int64)
        similarity = rng.normal(0.3, 0.1, 150) + 0.2 * label
        draws = matching_draws(similarity, label, [resample_counts(150, 200, (number,))])
        threshold = matching_scores(similarity, label).accuracy_threshold
        low, high = matching.threshold_interval(threshold, draws.shifts["accuracy"])
        inside, widths = inside + (low <= 0.4 <= high), [*widths, high - low]
    assert inside >= 35 and np.mean(widths) < 0.15
    assert matching.threshold_interval(0.4, np.zeros(30)) is None
