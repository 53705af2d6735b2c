"""Whitening, all-but-the-top and standardise against a plain SVD and scikit-learn."""

import numpy as np
import pytest
from post_sources import Blocks, anisotropic, cosines, plain_whitening
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

from stsbench.encoders.post.affine import AllButTheTop, Standardise, Whitening
from stsbench.errors import StsbenchError

X = anisotropic()
ALL = (Whitening, AllButTheTop, Standardise)


def fitted(kind, vectors=X, **settings):
    return kind(settings).fit(Blocks(vectors, 37, 150))


@pytest.mark.parametrize("k", [1, 5, 12])
def test_whitened_dimensions_are_uncorrelated_with_variance_one(k):
    for divisor, bias in (("n-1", False), ("n", True)):
        z = fitted(Whitening, dimensions=k, divisor=divisor).transform(X)
        assert z.shape == (400, k) and abs(np.cov(z.T, bias=bias) - np.eye(k)).max() < 1e-8
        assert abs(z.mean(axis=0)).max() < 1e-8


@pytest.mark.parametrize("k", [3, 12])
def test_whitening_is_a_plain_svd_and_sklearns_pca_up_to_signs(k):
    z = fitted(Whitening, dimensions=k).transform(X)
    for other in (plain_whitening(X, k), PCA(k, whiten=True, svd_solver="full").fit_transform(X)):
        signs = np.sign((z * other).sum(axis=0))
        np.testing.assert_allclose(z, other * signs, atol=1e-8)
        np.testing.assert_allclose(cosines(z), cosines(other), atol=1e-8)


def test_at_full_width_any_rotation_has_the_cosines_and_fewer_dimensions_are_the_first_ones():
    z = fitted(Whitening).transform(X)
    rotation = np.linalg.qr(np.random.default_rng(5).normal(size=(12, 12)))[0]
    np.testing.assert_allclose(cosines(z @ rotation), cosines(z), atol=1e-10)
    variances, u = np.linalg.eigh(np.cov(X.T))
    zca = (X - X.mean(axis=0)) @ u @ np.diag(variances**-0.5) @ u.T
    np.testing.assert_allclose(cosines(zca), cosines(z), atol=1e-8)
    for k in (1, 4, 11):
        np.testing.assert_array_equal(fitted(Whitening, dimensions=k).kernel, fitted(Whitening).kernel[:, :k])


def test_the_divisor_changes_no_cosine():
    one, other = (fitted(Whitening, dimensions=6, divisor=divisor).transform(X) for divisor in ("n-1", "n"))
    np.testing.assert_allclose(other, one * np.sqrt(400 / 399), rtol=1e-12)
    np.testing.assert_allclose(cosines(one), cosines(other), atol=1e-12)


@pytest.mark.parametrize("components", [0, 1, 4])
def test_all_but_the_top_takes_out_the_mean_and_pcas_components(components):
    z = fitted(AllButTheTop, components=components).transform(X)
    pca = PCA(max(components, 1), svd_solver="full").fit(X)
    top = pca.components_[:components]
    expected = X - X.mean(axis=0)
    expected = expected - expected @ top.T @ top
    np.testing.assert_allclose(z, expected, atol=1e-9)
    assert abs(z @ top.T).max(initial=0) < 1e-9 and z.shape == X.shape


@pytest.mark.parametrize(("d", "count"), [(4, 1), (300, 3), (384, 4), (768, 8), (1024, 10)])
def test_a_hundredth_of_the_width_is_taken_out_unless_told(d, count):
    assert AllButTheTop().components(d) == count and AllButTheTop().dimension(d) == d


def test_standardise_is_sklearns_scaler_also_where_a_dimension_does_not_vary():
    vectors = X.copy()
    vectors[:, 3] = 7
    for dtype in (np.float64, np.float32):
        given = vectors.astype(dtype)
        np.testing.assert_allclose(
            fitted(Standardise, given).transform(given), StandardScaler().fit_transform(given.astype(np.float64)), atol=1e-9
        )


def test_vectors_that_do_not_determine_the_map_are_one_line_and_never_infinity():
    few, flat = X[:9], X.copy()
    flat[:, 5] = flat[:, 2] * 2 - 1
    with pytest.raises(StsbenchError, match=r"9 vectors vary in 8 of 12 dimensions.*dimensions=8 or fewer"):
        fitted(Whitening, few)
    assert np.isfinite(fitted(Whitening, few, dimensions=8).transform(X)).all()
    for vectors in (flat, flat.astype(np.float32)):  # rank 11, float32's rounding aside
        with pytest.raises(StsbenchError, match=r"400 vectors vary in 11 of 12"):
            fitted(Whitening, vectors)
        fitted(Whitening, vectors, dimensions=11)
    with pytest.raises(StsbenchError, match="all vectors are one and the same"):
        fitted(Whitening, np.ones((50, 12)))
    with pytest.raises(StsbenchError, match="dimensions=13 is more than the 12"):
        fitted(Whitening, dimensions=13)
    with pytest.raises(StsbenchError, match="vary in 2 directions, fewer than the 3"):
        fitted(AllButTheTop, X[:3], components=3)
    with pytest.raises(StsbenchError, match="components=12 leaves nothing"):
        fitted(AllButTheTop, components=12)


@pytest.mark.parametrize("kind", ALL)
def test_half_precision_is_computed_in_float64(kind):
    half = X.astype(np.float16)
    made = fitted(kind, half)
    wide = fitted(kind, half.astype(np.float64))
    assert made.mean.dtype == made.kernel.dtype == np.float64
    np.testing.assert_array_equal(made.kernel, wide.kernel)
    np.testing.assert_array_equal(made.transform(half), wide.transform(half.astype(np.float64)))


@pytest.mark.parametrize("kind", ALL)
def test_a_row_depends_on_itself_alone_and_a_state_is_all_there_is(kind):
    made = fitted(kind)
    np.testing.assert_allclose(made.transform(X[5:6]), made.transform(X)[5:6], atol=1e-12)
    again = kind.from_state(made.settings(), made.state())
    np.testing.assert_array_equal(again.transform(X), made.transform(X))
    assert again.digest() == made.digest() != fitted(kind, X[:300]).digest()
    assert made.dimension(12) == made.transform(X).shape[1] and not hasattr(made.unfitted(), "kernel")


def test_a_digest_is_also_of_the_settings():
    made = fitted(Whitening, dimensions=12)
    others = [Whitening.from_state(settings, made.state()) for settings in ({}, {"dimensions": 12, "divisor": "n"})]
    assert len({post.digest() for post in (made, *others)}) == 3
