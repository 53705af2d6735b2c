"""Whitening, all-but-the-top and standardise against a plain SVD and scikit-learn; the moments that they are made of.
What every registered post-processing does, and one of a user's own; and chains of them."""

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from post_sources import Blocks, Cube, anisotropic, cosines, plain_whitening
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler, normalize

from stsbench.encoders.post.affine import AllButTheTop, Renormalise, Standardise, Whitening, moments
from stsbench.encoders.post.chain import Chain, load_post, post_names

X = anisotropic()


def fitted(kind, vectors=X, **options):
    return kind(options).fit(Blocks(vectors, 37, 150))


@pytest.mark.parametrize("k", [1, 5, 12])
def test_whitening_is_a_plain_svd_and_sklearns_pca_up_to_signs(k):
    for divisor, bias in (("n-1", False), ("n", True)):
        whitened = fitted(Whitening, dimensions=k, divisor=divisor).transform(X)
        assert whitened.shape == (400, k) and abs(np.cov(whitened.T, bias=bias) - np.eye(k)).max() < 1e-8
        assert abs(whitened.mean(axis=0)).max() < 1e-8
    whitened = fitted(Whitening, dimensions=k).transform(X)
    for other in (plain_whitening(X, k), PCA(k, whiten=True, svd_solver="full").fit_transform(X)):
        signs = np.sign((whitened * other).sum(axis=0))
        np.testing.assert_allclose(whitened, other * signs, atol=1e-8)
        np.testing.assert_allclose(cosines(whitened), cosines(other), atol=1e-8)


@pytest.mark.parametrize("components", [0, 1, 4])
def test_all_but_the_top_takes_out_the_mean_and_pcas_components(components):
    whitened = fitted(AllButTheTop, components=components).transform(X)
    top = PCA(max(components, 1), svd_solver="full").fit(X).components_[:components]
    expected = X - X.mean(axis=0)
    expected = expected - expected @ top.T @ top
    np.testing.assert_allclose(whitened, expected, atol=1e-9)
    assert abs(whitened @ top.T).max(initial=0) < 1e-9 and whitened.shape == X.shape
    a_hundredth = [AllButTheTop().components(d) for d in (4, 300, 384, 768, 1024)]
    assert a_hundredth == [1, 3, 4, 8, 10] and AllButTheTop().dimension(300) == 300


def test_standardise_is_sklearns_scaler_also_where_a_dimension_does_not_vary():
    vectors = X.copy()
    vectors[:, 3] = 7
    for dtype in (np.float64, np.float32):
        given = vectors.astype(dtype)
        expected = StandardScaler().fit_transform(given.astype(np.float64))
        np.testing.assert_allclose(fitted(Standardise, given).transform(given), expected, atol=1e-9)


def test_vectors_of_a_lower_rank_are_never_infinity():
    few, flat = X[:9], X.copy()
    flat[:, 5] = flat[:, 2] * 2 - 1
    for vectors, rank in ((few, 8), (flat, 11), (flat.astype(np.float32), 11)):  # float32's rounding aside
        assert np.isfinite(fitted(Whitening, vectors, dimensions=rank).transform(X)).all()


@settings(max_examples=8, deadline=None)
@given(st.lists(st.integers(1, 300), min_size=1, max_size=6), st.integers(2, 500))
def test_any_blocks_give_the_moments_of_all_and_of_an_affine_image(lengths, n):
    vectors, rng = anisotropic(n, 5), np.random.default_rng(3)
    mean, kernel = rng.normal(size=5), rng.normal(size=(5, 4))
    stats = moments(Blocks(vectors, *lengths).blocks(), "x")
    for moment, rows in ((stats, vectors), (stats.image(mean, kernel), (vectors - mean) @ kernel)):
        assert moment.n == n
        np.testing.assert_allclose(moment.mean, rows.mean(axis=0), rtol=1e-9)
        np.testing.assert_allclose(moment.covariance("n-1"), np.cov(rows.T), rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(moment.covariance("n"), np.cov(rows.T, bias=True), rtol=1e-8, atol=1e-10)


def test_a_mean_far_longer_than_the_spread_costs_no_digits():
    vectors = np.random.default_rng(0).normal(size=(5000, 3)) + 1e6
    stats = moments(Blocks(vectors, 7, 900).blocks(), "x")
    np.testing.assert_allclose(stats.covariance("n-1"), np.cov(vectors.T), rtol=1e-8)
    squares = vectors.T @ vectors / len(vectors) - np.outer(vectors.mean(0), vectors.mean(0))
    assert abs(squares - np.cov(vectors.T, bias=True)).max() > 1e-6  # what the sums would have given


def test_memory_does_not_grow_with_the_number_of_vectors():
    rng = np.random.default_rng(1)
    tracemalloc.start()
    stats = moments((rng.standard_normal((1000, 64), dtype=np.float32) for _ in range(100)), "x")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert stats.n == 100_000 and peak < 4_000_000  # all of them take 26 MB


MORE = anisotropic(60, seed=1)


@pytest.mark.parametrize(
    ("form", "before", "after"), list(itertools.product(["project", "subtract"], [True, False], [True, False])))
def test_renormalisation_is_the_equation(form, before, after):
    made = fitted(Renormalise, form=form, normalise_before=before, normalise_after=after)
    texts, mean = (normalize(X), normalize(MORE)) if before else (X, MORE), np.zeros(12)
    for row in texts[0]:
        mean += row / len(X)
    direction = mean / np.sqrt(sum(mean**2))
    expected = []
    for row in texts[1]:
        rest = row - mean if form == "subtract" else row - sum(row * direction) * direction
        expected.append(rest / np.sqrt(sum(rest**2)) if after else rest)
    np.testing.assert_allclose(made.transform(MORE), expected, atol=1e-12)
    assert made.notes == (f"renormalise: the mean of made has length {np.linalg.norm(mean):.4f}",)


def test_zeros_stay_zeros_and_a_mean_without_direction_is_subtracted():
    rows = MORE.copy()
    rows[3] = 0
    transformed = fitted(Renormalise).transform(rows)
    assert not transformed[3].any() and np.isfinite(transformed).all()
    fitted(Renormalise, np.concatenate([X, -X]).astype(np.float32), form="subtract")


POINTS = anisotropic(dtype=np.float32)
KINDS = [Cube, *(kind for kind in map(load_post, post_names()) if not kind.__module__.startswith("stsbench.extensions"))]
OTHER_SETTINGS = {
    "whitening": [{"dimensions": 12}, {"divisor": "n"}], "all-but-the-top": [{"components": 3}],
    "renormalise": [{"form": "subtract"}, {"normalise_before": False}, {"normalise_after": False}],
}


@pytest.mark.parametrize(("text", "spelled"), [
    ("whitening", "whitening:dimensions=null,divisor=n-1"),
    ("whitening: divisor=n , dimensions=3", "whitening:dimensions=3,divisor=n"),
    ("standardise + all-but-the-top:components=2", "standardise+all-but-the-top:components=2")])
def test_a_chain_is_spelled_with_every_setting(text, spelled):
    assert Chain.parse(text).spelled() == spelled == Chain.parse(spelled).spelled()


def test_affine_steps_are_fitted_from_one_pass_as_if_one_after_another():
    source = Blocks(POINTS, 90)
    chain = Chain.parse("standardise+all-but-the-top:components=2+whitening:dimensions=5").fit(source)
    assert source.passes == 1
    vectors = POINTS.astype(np.float64)
    for step in chain.steps:
        vectors = step.unfitted().fit(Blocks(vectors)).transform(vectors)
    np.testing.assert_allclose(chain.transform(POINTS), vectors, atol=1e-7)
    assert abs(np.cov(chain.transform(POINTS).T) - np.eye(5)).max() < 1e-8 and chain.dimension(12) == 5
    kernel, bias = chain.affine()
    np.testing.assert_allclose(POINTS @ kernel + bias, vectors, atol=1e-7)


def test_a_step_that_is_not_affine_is_fitted_on_what_the_steps_before_it_make():
    cube = Cube()
    chain = Chain([Whitening({"dimensions": 3}), cube, Whitening({"dimensions": 2})]).fit(Blocks(POINTS, 130))
    np.testing.assert_array_equal(cube.seen, chain.steps[0].transform(POINTS).astype(np.float32))
    assert [batch.shape for batch in cube.batches] == [(64, 1, 3)] * 6 + [(16, 1, 3)]
    assert cube.seen.dtype == np.float32 and chain.affine() is None
    assert abs(np.cov(chain.transform(POINTS).T) - np.eye(2)).max() < 1e-5
    assert len(chain.unfitted().steps) == 3 and chain.names == "whitening+cube+whitening"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_post_processing_maps_rows_alone_and_is_its_settings_and_state(kind):
    made = fitted(kind)
    whole = made.transform(X)
    assert whole.shape == (len(X), made.dimension(12))
    np.testing.assert_allclose(made.transform(X[5:8]), whole[5:8], atol=1e-12)
    again = kind(made.settings()).restore(made.state())
    np.testing.assert_array_equal(again.transform(X), whole)
    assert again.digest() == made.digest() == fitted(kind).digest()
    assert made.digest() != fitted(kind, X[:300]).digest()
    unfitted = made.unfitted()
    assert unfitted.settings() == made.settings() and not {"mean", "kernel"} & vars(unfitted).keys()
    changed = [fitted(kind, **settings) for settings in OTHER_SETTINGS.get(kind.name, [])]
    assert len({post.digest() for post in (made, *changed)}) == len(changed) + 1
    affine = made.affine()
    if affine is not None:
        np.testing.assert_allclose((X - affine[0]) @ affine[1], whole, atol=1e-9)
    half = X.astype(np.float16)  # is computed in float64
    if kind is not Cube:
        made, wide = fitted(kind, half), fitted(kind, half.astype(np.float64))
        assert made.digest() == wide.digest()
        np.testing.assert_array_equal(made.transform(half), wide.transform(half.astype(np.float64)))
