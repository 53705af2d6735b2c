"""Chains: spelling, order, one pass for affine steps, and what a step that is not affine sees."""

import numpy as np
import pytest
from post_sources import Blocks, Cube, anisotropic

from stsbench.encoders.post.affine import Whitening
from stsbench.encoders.post.chain import Chain

X = anisotropic(dtype=np.float32)


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("whitening", "whitening:dimensions=null,divisor=n-1"),
        ("whitening: divisor=n , dimensions=3", "whitening:dimensions=3,divisor=n"),
        ("standardise + all-but-the-top:components=2", "standardise+all-but-the-top:components=2"),
    ],
)
def test_a_chain_is_spelled_with_every_setting(text, spelled):
    assert Chain.parse(text).spelled() == spelled == Chain.parse(spelled).spelled()


def test_affine_steps_are_fitted_from_one_pass_as_if_one_after_another():
    source = Blocks(X, 90)
    chain = Chain.parse("standardise+all-but-the-top:components=2+whitening:dimensions=5").fit(source)
    assert source.passes == 1
    vectors = X.astype(np.float64)
    for step in chain.steps:
        vectors = step.unfitted().fit(Blocks(vectors)).transform(vectors)
    np.testing.assert_allclose(chain.transform(X), vectors, atol=1e-7)
    assert abs(np.cov(chain.transform(X).T) - np.eye(5)).max() < 1e-8 and chain.dimension(12) == 5
    kernel, bias = chain.affine()
    np.testing.assert_allclose(X @ kernel + bias, vectors, atol=1e-7)


def test_a_step_that_is_not_affine_is_fitted_on_what_the_steps_before_it_make():
    cube = Cube()
    chain = Chain([Whitening({"dimensions": 3}), cube, Whitening({"dimensions": 2})]).fit(Blocks(X, 130))
    whitened = chain.steps[0].transform(X).astype(np.float32)
    np.testing.assert_array_equal(cube.seen, whitened)
    assert [batch.shape for batch in cube.batches] == [(64, 1, 3)] * 6 + [(16, 1, 3)]
    assert cube.seen.dtype == np.float32 and chain.affine() is None
    assert abs(np.cov(chain.transform(X).T) - np.eye(2)).max() < 1e-5
    assert len(chain.unfitted().steps) == 3 and chain.names == "whitening+cube+whitening"
