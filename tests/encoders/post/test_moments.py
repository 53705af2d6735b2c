"""Mean and covariance in one pass: whatever the blocks, in flat memory, and where sums of squares would cancel."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from post_sources import Blocks, anisotropic

from stsbench.encoders.post.affine import moments
from stsbench.errors import StsbenchError


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 300), min_size=1, max_size=6), st.integers(2, 500))
def test_any_blocks_give_the_moments_of_all(lengths, n):
    vectors = anisotropic(n, 5)
    stats = moments(Blocks(vectors, *lengths).blocks(), "x")
    assert stats.n == n
    np.testing.assert_allclose(stats.mean, vectors.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(stats.covariance("n-1"), np.cov(vectors.T), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(stats.covariance("n"), np.cov(vectors.T, bias=True), rtol=1e-9, atol=1e-12)


def test_a_mean_far_longer_than_the_spread_costs_no_digits():
    vectors = np.random.default_rng(0).normal(size=(5000, 3)) + 1e6
    stats = moments(Blocks(vectors, 7, 900).blocks(), "x")
    np.testing.assert_allclose(stats.covariance("n-1"), np.cov(vectors.T), rtol=1e-8)
    squares = vectors.T @ vectors / len(vectors) - np.outer(vectors.mean(0), vectors.mean(0))
    assert abs(squares - np.cov(vectors.T, bias=True)).max() > 1e-6  # what the sums would have given


def test_memory_does_not_grow_with_the_number_of_vectors():
    def blocks():
        rng = np.random.default_rng(1)
        for _ in range(200):
            yield rng.standard_normal((1000, 64), dtype=np.float32)

    tracemalloc.start()
    stats = moments(blocks(), "x")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert stats.n == 200_000 and peak < 4_000_000  # all of them take 51 MB


def test_the_moments_of_an_affine_image_need_no_second_pass():
    vectors, rng = anisotropic(), np.random.default_rng(3)
    mean, kernel = rng.normal(size=12), rng.normal(size=(12, 4))
    stats = moments([vectors], "x").image(mean, kernel)
    image = (vectors - mean) @ kernel
    np.testing.assert_allclose(stats.mean, image.mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(stats.covariance("n-1"), np.cov(image.T), rtol=1e-8, atol=1e-10)


def test_no_vector_at_all():
    with pytest.raises(StsbenchError, match=r"^empty: no text to fit on$"):
        moments([np.zeros((0, 3))], "empty")
