"""What every registered post-processing does, and one of a user's own; and chains of them."""

import numpy as np
import pytest
from post_sources import Blocks, Cube, anisotropic

from stsbench.encoders.post.affine import Whitening
from stsbench.encoders.post.chain import Chain, load_post, post_names

X, WIDE = anisotropic(dtype=np.float32), anisotropic()
KINDS = [Cube, *(kind for kind in map(load_post, post_names()) if not kind.__module__.startswith("stsbench.extensions"))]
OTHER_SETTINGS = {
    "whitening": [{"dimensions": 12}, {"divisor": "n"}], "all-but-the-top": [{"components": 3}],
    "renormalise": [{"form": "subtract"}, {"normalise_before": False}, {"normalise_after": False}],
}


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


def fitted(kind, vectors, **settings):
    made = kind(settings)
    return made.fit(Blocks(vectors, 37, 150))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_post_processing_maps_rows_alone_and_is_its_settings_and_state(kind):
    made = fitted(kind, WIDE)
    whole = made.transform(WIDE)
    assert whole.shape == (len(WIDE), made.dimension(12))
    np.testing.assert_allclose(made.transform(WIDE[5:8]), whole[5:8], atol=1e-12)
    again = kind.from_state(made.settings(), made.state())
    np.testing.assert_array_equal(again.transform(WIDE), whole)
    assert again.digest() == made.digest() == fitted(kind, WIDE).digest()
    assert made.digest() != fitted(kind, WIDE[:300]).digest()
    unfitted = made.unfitted()
    assert unfitted.settings() == made.settings() and not {"mean", "kernel"} & vars(unfitted).keys()
    changed = [fitted(kind, WIDE, **settings) for settings in OTHER_SETTINGS.get(kind.name, [])]
    assert len({post.digest() for post in (made, *changed)}) == len(changed) + 1
    affine = made.affine()
    if affine is not None:
        np.testing.assert_allclose((WIDE - affine[0]) @ affine[1], whole, atol=1e-9)
    half = WIDE.astype(np.float16)  # is computed in float64
    if kind is not Cube:
        made, wide = fitted(kind, half), fitted(kind, half.astype(np.float64))
        assert made.digest() == wide.digest()
        np.testing.assert_array_equal(made.transform(half), wide.transform(half.astype(np.float64)))
