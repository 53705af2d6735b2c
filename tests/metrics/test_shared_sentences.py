"""Influence values, the variance and its corrections against their definitions, as double loops and whole matrices."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from stsbench.metrics.shared_sentences import INFLUENCE, Influence, SharedSentences, joined, stretched_pair


def pairs(seed, n=30, sentences=25):
    """Rows that repeat, in either order, and a text paired with itself among them."""
    rng = np.random.default_rng(seed)
    first, second = rng.integers(0, sentences, (2, n))
    first[3], second[3] = first[4], second[4]
    first[5], second[5] = second[6], first[6]
    second[7] = first[7]
    x = rng.normal(size=n).round(1)
    return first, second, rng.integers(0, 3, n), x, (x + rng.normal(size=n)).round(1)


def weighted_correlation(x, y, weight, metric):
    def rank(values):
        if metric == "pearson":
            return values
        return ((values[None, :] < values[:, None]) + 0.5 * (values[None, :] == values[:, None])) @ weight

    u, v = (rank(values) - weight @ rank(values) / weight.sum() for values in (x, y))
    return (weight @ (u * v)) / np.sqrt((weight @ (u * u)) * (weight @ (v * v)))


@pytest.mark.parametrize("metric", ["spearman", "pearson"])
def test_influence_is_the_derivative_by_a_pairs_weight(metric):
    *_, x, y = pairs(0)
    r, values = INFLUENCE[metric](x, y)
    assert r == pytest.approx(getattr(stats, f"{metric}r")(x, y).statistic, abs=1e-12)
    step = 1e-4 * np.eye(len(x))
    change = [weighted_correlation(x, y, 1 + row, metric) - weighted_correlation(x, y, 1 - row, metric) for row in step]
    np.testing.assert_allclose(values, np.array(change) / 2e-4 * len(x), atol=1e-6)


def matrices(*sides):
    rows = [sorted(row) for row in zip(*(side.tolist() for side in sides), strict=True)]
    shared = np.array([[len({*one} & {*other}) for other in rows] for one in rows])
    return shared > 0, np.array([[one == other for other in rows] for one in rows]), shared


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), share=st.floats(0, 1), weigh=st.booleans(), triplets=st.booleans())
def test_variance_and_corrections_by_definition(seed, share, weigh, triplets):
    first, second, stratum, x, y = pairs(seed)
    sides = [first, second, *([np.random.default_rng(seed).permutation(second)] if triplets else [])]
    stratum = np.unique(stratum, return_inverse=True)[1]
    graph, n = SharedSentences(*sides, stratum=stratum), len(first)
    links, same, shared = matrices(*sides)
    centring = np.eye(n) - (stratum[:, None] == stratum) / np.bincount(stratum)[stratum]
    _, values = INFLUENCE["spearman"](x, y)
    psi = graph.centred(values)
    np.testing.assert_allclose(psi, centring @ values, atol=1e-12)
    assert graph.variance(psi) == pytest.approx(psi @ links @ psi / n**2, abs=1e-12)
    assert graph.item_variance(psi) == pytest.approx(psi @ same @ psi / n**2, abs=1e-12)
    once = links & ~same
    expected = np.clip(len(sides) * (psi @ once @ psi) / (once.sum() * np.mean(psi**2)), 0, 1) if once.any() else 0
    assert graph.share(psi) == pytest.approx(expected, abs=1e-12)
    weight = np.random.default_rng(seed).uniform(0.5, 2, n) if weigh else None
    model = (1 - share) * same + share / len(sides) * shared
    model = model * np.outer(weight, weight) if weigh else model
    a = centring @ links @ centring @ model
    assert graph.corrections(share, weight) == pytest.approx((model.sum() / np.trace(a), np.trace(a) ** 2 / np.trace(a @ a)))


def test_pairs_that_share_nothing_are_independent_and_those_that_share_one_sentence_are_hopeless():
    graph = SharedSentences(np.array([0, 2, 1, 4]), np.array([1, 3, 0, 5]))  # the third row is the first one again
    assert not graph.dependent and graph.stretch(np.array([1.0, -2, 3, -2])) == 1
    graph = SharedSentences(np.zeros(50, int), np.arange(1, 51))
    assert graph.hopeless and graph.stretch(np.random.default_rng(0).normal(size=50)) == np.inf


def test_a_pairs_difference_is_stretched_by_its_own_factor():
    rng = np.random.default_rng(0)
    graph = SharedSentences(np.repeat(np.arange(30), 10), np.arange(30, 330))
    shared = np.repeat(rng.normal(size=30), 10)
    a, b = (Influence(score, rng.normal(size=300) + sign * shared, graph) for score, sign in ((70.0, 1), (60.0, -1)))
    draws = rng.normal([[70.0], [60.0]], 1, (2, 500))
    of_a, of_b = stretched_pair(*draws, a, b)
    factor = graph.stretch(a.values - b.values)
    assert factor > 2
    np.testing.assert_allclose(of_a - of_b - 10, factor * (draws[0] - draws[1] - 10), atol=1e-9)
    np.testing.assert_allclose(of_a + of_b, draws.sum(axis=0), atol=1e-9)


def test_a_mean_of_parts_has_the_influence_of_its_parts():
    first, second, _, x, y = pairs(1)
    graph, rows = SharedSentences(first, second), [np.arange(10), np.arange(10, 30)]
    parts = [Influence(*INFLUENCE["pearson"](x[at], y[at]), SharedSentences(first[at], second[at])) for at in rows]
    mean = joined(list(zip(parts, rows, strict=True)), graph, [0.25, 0.75])
    assert mean.score == pytest.approx(0.25 * parts[0].score + 0.75 * parts[1].score)
    change = 1 + 1e-5 * np.eye(30)[4]
    moved = 0.25 * weighted_correlation(x[:10], y[:10], change[:10], "pearson") + 0.75 * parts[1].score
    assert mean.values[4] / 30 == pytest.approx((moved - mean.score) / 1e-5, abs=1e-4)


def test_multipliers_vary_together_as_rows_that_share_a_sentence_do():
    first, second, *_ = pairs(4, n=24, sentences=12)
    graph = SharedSentences(first, second)
    links, _, _ = matrices(first, second)
    values, vectors = np.linalg.eigh(links)
    drawn = graph.multipliers(30_000, 3)
    assert np.abs(np.cov(drawn.astype(float).T) - (vectors * np.maximum(values, 0)) @ vectors.T).max() < 0.06
    assert graph.multipliers(30_000, 3) is drawn


def test_draws_are_the_same_in_whatever_basis_a_processor_gives_eigenvectors(monkeypatch):
    """Pairs of a ring share a sentence with two others: eigenvalues are equal two by two, and their basis is any."""
    first = np.arange(9)
    drawn, own = SharedSentences(first, (first + 1) % 9).multipliers(50, 3), np.linalg.eigh

    def turned(matrix):
        values, vectors = own(matrix)
        [low] = np.flatnonzero(np.isclose(np.diff(values), 0) & (values[:-1] > 2))
        vectors[:, low : low + 2] = vectors[:, low : low + 2] @ np.array([[0.6, -0.8], [0.8, 0.6]])
        return values, vectors

    monkeypatch.setattr(np.linalg, "eigh", turned)
    assert np.allclose(SharedSentences(first, (first + 1) % 9).multipliers(50, 3), drawn, atol=1e-5)


def test_joint_draws_are_as_uncertain_as_a_score_and_nearly_as_each_difference():
    """Of two encoders whose errors belong to the sentences: stretched one by one, their difference is not."""
    rng = np.random.default_rng(5)
    first, second = np.repeat(np.arange(30), 10), np.arange(30, 330)
    graph = SharedSentences(first, second)
    effects = rng.normal(size=(2, 30))[:, first]
    common = rng.normal(size=300)
    a, b = (Influence(50.0, 10 * (common + 0.5 * effect + 0.5 * rng.normal(size=300)), graph) for effect in effects)
    joint = [one.joint(np.zeros(4000), 1) for one in (a, b)]
    for one, draws in zip((a, b), joint, strict=True):
        own = np.sqrt(graph.item_variance(graph.centred(one.values))) * one.stretch
        assert draws.std() == pytest.approx(own, rel=1e-5) and draws.mean() == pytest.approx(50, abs=0.1)
    gap = graph.centred(a.values - b.values)
    assert (joint[0] - joint[1]).std() == pytest.approx(np.sqrt(graph.item_variance(gap)) * graph.stretch(gap), rel=0.1)


@pytest.mark.parametrize(("groups", "each"), [(1, 5000), (6, 2000)])
def test_a_graph_of_too_many_links_is_that_of_equal_groups_without_a_matrix(groups, each):
    """Ten thousand rows of a text have a hundred million links."""
    first, second = np.repeat(np.arange(groups), each), np.arange(groups, each * groups + groups)
    graph = SharedSentences(first, second)
    assert graph.large and graph.hopeless == (groups == 1)
    rng = np.random.default_rng(0)
    values = np.repeat(rng.normal(size=groups), each) + rng.normal(size=len(first))
    few = SharedSentences(np.repeat(np.arange(groups), 20), np.arange(groups, 21 * groups))
    assert not few.large
    for share in (0.6, 1.0):
        factor, df = graph.corrections(share)
        if groups > 1:
            assert (factor, df) == pytest.approx(few.corrections(share), rel=0.15)
            assert few.stretch(np.zeros(20 * groups)) <= graph.stretch(values) < np.inf
            draws = rng.normal(50, 0.1, 100)
            influence = Influence(50.0, values, graph)
            np.testing.assert_array_equal(influence.joint(draws, 0), influence.stretched(draws))
