"""Ranks against a sorted list per query; recall, hit and reciprocal rank against loops and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_matrix
from scipy.stats import rankdata
from sklearn.metrics import label_ranking_average_precision_score

from stsbench.metrics import ranking as module
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


def test_equals_a_sorted_list():
    queries, corpus, relevant, own = data()
    ranks, query = relevant_ranks(queries, corpus, relevant, own, block=13)
    similar = cosines(queries, corpus)
    want = [rank for i in range(20) for rank in listed(similar[i], relevant[i], own[i])]
    assert ranks.tolist() == want
    assert query.tolist() == [i for i, wanted in enumerate(relevant) for _ in wanted]


@given(arrays(np.float32, (3, 2), elements=SMALL), arrays(np.float32, (12, 2), elements=SMALL),
       st.lists(st.lists(st.integers(0, 11), min_size=2, max_size=6, unique=True), min_size=3, max_size=3),
       st.integers(1, 13))
@settings(max_examples=15)
def test_ties_count_against_the_relevant(queries, corpus, chosen, block):
    own, relevant = [each[:1] for each in chosen], [each[1:] for each in chosen]
    similar = cosines(queries, corpus)
    worst, _ = relevant_ranks(queries, corpus, relevant, own, block=block)
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
    monkeypatch.setattr(module, "_QUERIES", 6)
    monkeypatch.setattr(module, "_PAIRS", 5)
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
    relevant = [[i] for i in range(20)]
    ranks, query = relevant_ranks(queries, corpus, relevant)
    want = label_ranking_average_precision_score(np.eye(20, 150), cosines(queries, corpus))
    assert reciprocal_rank(ranks, query).mean() == pytest.approx(want)
