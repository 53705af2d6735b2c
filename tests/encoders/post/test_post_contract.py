"""What every registered post-processing does, and one of a user's own: rows alone, settings, state and digest."""

import numpy as np
import pytest
from post_sources import Blocks, Cube, anisotropic

from stsbench.encoders.post.chain import load_post, post_names

X = anisotropic()
KINDS = [Cube, *(kind for kind in map(load_post, post_names()) if not kind.__module__.startswith("stsbench.extensions"))]
OTHER_SETTINGS = {
    "whitening": [{"dimensions": 12}, {"divisor": "n"}], "all-but-the-top": [{"components": 3}],
    "renormalise": [{"form": "subtract"}, {"normalise_before": False}, {"normalise_after": False}],
}


def fitted(kind, vectors=X, **settings):
    made = kind(settings)
    return made.fit(Blocks(vectors, 37, 150))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_post_processing_maps_rows_alone_and_is_its_settings_and_state(kind):
    made = fitted(kind)
    whole = made.transform(X)
    assert whole.shape == (len(X), made.dimension(12))
    np.testing.assert_allclose(made.transform(X[5:8]), whole[5:8], atol=1e-12)
    again = kind.from_state(made.settings(), made.state())
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
