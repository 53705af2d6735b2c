"""Geometry against naive loops, scipy and numpy's SVD; the protocol's rows. Refusals: tests/refusals/metrics.yaml."""

import numpy as np
import pytest
from geometry_runs import embed, pair_set, vectors
from realdata import real_data
from scipy.sparse import csr_matrix
from scipy.spatial.distance import pdist

from stsbench.data.fetch.sources import load_data
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.light.callable import CallableEncoder
from stsbench.metrics import geometry
from stsbench.protocols.geometry import GeometryProtocol


def sentences(n=40, d=7, seed=0):
    return np.random.default_rng(seed).normal(0.4, 1, (n, d))


def loop_uniformity(x, t):
    """As Wang & Isola define it: every pair by itself."""
    unit = [row / np.sqrt(sum(v * v for v in row)) for row in x]
    terms = [np.exp(-t * sum((a - b) ** 2 for a, b in zip(unit[i], unit[j], strict=True)))
             for i in range(len(x)) for j in range(i)]
    return np.log(sum(terms) / len(terms))


@pytest.mark.parametrize(("t", "tile"), [(0.5, 1), (2.0, 7), (5.0, 40), (2.0, 1024)])
def test_uniformity_is_the_double_loop_whatever_the_tile(t, tile):
    x = sentences()
    assert geometry.uniformity(geometry.directions(x), t, tile) == pytest.approx(loop_uniformity(x, t), rel=1e-12)


def test_uniformity_neither_under_nor_overflows():
    x = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
    # exp(-4000) is 0 in float64: the nearest pairs, 2 apart when squared, decide.
    assert geometry.uniformity(x, 1000.0) == pytest.approx(-2000 + np.log(2 / 3))
    assert geometry.uniformity(np.tile(x[:1], (4, 1))) == 0.0


@pytest.mark.parametrize(("n", "d"), [(40, 7), (7, 40)])
@pytest.mark.parametrize("centre", [False, True])
def test_spectrum_is_numpys_svd(n, d, centre):
    x = sentences(n, d)
    expected = np.linalg.svd(x - x.mean(axis=0) if centre else x, compute_uv=False)
    actual = geometry.singular_values(x, centre)
    np.testing.assert_allclose(actual, expected, atol=1e-7 * expected[0])
    assert geometry.relative(actual)[0] == 1 and (np.diff(actual) <= 0).all()


def test_effective_rank_and_first_share_of_known_spectra():
    flat, one, two = np.ones(5), np.array([3.0, 0, 0]), np.array([2.0, 1.0])
    assert geometry.effective_rank(flat) == pytest.approx(5) and geometry.explained_by_first(flat) == pytest.approx(1 / 5)
    assert geometry.effective_rank(one) == 1 and geometry.explained_by_first(one) == 1
    assert geometry.explained_by_first(two) == pytest.approx(4 / 5)
    assert geometry.effective_rank(two) == pytest.approx(3 / 2 ** (2 / 3))  # entropy ln 3 - (2/3) ln 2, by hand


def test_sparse_vectors_count_as_dense_ones_and_zero_rows_are_left_out():
    x = np.maximum(sentences(), 0)
    x[3] = 0
    dense, sparse = geometry.directions(x), geometry.directions(csr_matrix(x))
    np.testing.assert_array_equal(dense, sparse)
    assert len(dense) == np.count_nonzero(x.any(axis=1)) < len(x)
    np.testing.assert_allclose(np.linalg.norm(dense, axis=1), 1)


def rows_of(protocol, observations):
    return {(row.metric, row.subset): row for row in protocol.score(observations, "stsb/test", "STS-B")}


def test_rows_are_what_the_vectors_say():
    data, protocol = pair_set(), GeometryProtocol({})
    rows = rows_of(protocol, protocol.observe(embed(), data))
    first, second, both = vectors(data.first), vectors(data.second), vectors([*data.first, *data.second])
    cosine = np.array([1 - pdist([a, b], "cosine")[0] for a, b in zip(first, second, strict=True)])
    positive = data.gold > 4
    row = rows["alignment", None]
    assert row.value == pytest.approx(np.mean(2 - 2 * cosine[positive]), abs=1e-6) and row.n == positive.sum()
    assert row.low < row.value < row.high
    assert rows["uniformity", None].value == pytest.approx(loop_uniformity(both.astype(float), 2.0))
    assert rows["uniformity", None].n == 2 * len(data) > len(data.texts)
    expected = np.mean(1 - pdist(vectors(data.texts), "cosine"))
    assert rows["anisotropy", None].value == pytest.approx(expected) and rows["anisotropy", None].n == len(data.texts)
    low, row = data.gold < 1, rows["mean cosine", "0-1"]
    assert row.value == pytest.approx(cosine[low].mean()) and row.n == low.sum()
    assert sum(row.n for (metric, _), row in rows.items() if metric == "mean cosine") == len(data)
    # What is no share is not x 100, and the table says so.
    assert {metric for metric, _ in rows if GeometryProtocol.metric(metric).scale == 100} == {"explained by first"}


def test_settings_change_what_they_name():
    data = pair_set()
    def values(**given):
        protocol = GeometryProtocol({"resamples": 0, **given})
        return {key: row.value for key, row in rows_of(protocol, protocol.observe(embed(shift=0.5), data)).items()}

    plain, spectrum = values(), {"explained by first", "effective rank"}
    for key, value, metrics in (
        ("texts", "distinct", {"uniformity", *spectrum}), ("centre", True, spectrum), ("t", 3.0, {"uniformity"}),
        ("alpha", 1.0, {"alignment"}), ("positive_above", 3.5, {"alignment"})):
        other = values(**{key: value})
        assert {metric for metric, subset in plain if other[metric, subset] != plain[metric, subset]} == metrics, key


def test_zero_vectors_are_left_out_and_said():
    data = pair_set()
    silent = next(first for first, rating in zip(data.first, data.gold, strict=True) if rating > 4)

    def some(texts):
        return np.where(np.array([text == silent for text in texts])[:, None], 0, vectors(texts))

    protocol = GeometryProtocol({"resamples": 0})
    observations = protocol.observe(Embed(CallableEncoder(some)), data)
    rows, plain = rows_of(protocol, observations), rows_of(protocol, protocol.observe(embed(), data))
    times = [*data.first, *data.second].count(silent)
    assert observations.names["notes"] == [f"{times} sentences have a zero vector: left out of all measures but the cosines"]
    assert rows["uniformity", None].n == 2 * len(data) - times
    assert rows["alignment", None].n < plain["alignment", None].n
    assert rows["mean cosine", "4-5"].n == plain["mean cosine", "4-5"].n


def test_real_counts():
    data = load_data("stsb/test", data_dir=real_data(), offline=True)
    assert int((data.gold > 4).sum()) == 231 and len(data.texts) == 2551  # as in protocol-geometry.md
    assert [len(group) for group in geometry.by_rating(data.gold, data.gold).values()] == [243, 198, 265, 335, 338]
