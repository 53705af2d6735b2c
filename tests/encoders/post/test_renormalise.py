"""Renormalisation against scikit-learn and plain loops, and by what its equations say."""

import itertools

import numpy as np
import pytest
from post_sources import Blocks, anisotropic, cosines
from sklearn.preprocessing import normalize

from stsbench.encoders.post.affine import Renormalise
from stsbench.encoders.post.chain import Chain
from stsbench.errors import StsbenchError

X = anisotropic()
MORE = anisotropic(60, seed=1)
SETTINGS = list(itertools.product(["project", "subtract"], [True, False], [True, False]))


def fitted(vectors=X, form="project", before=True, after=True):
    return Renormalise({"form": form, "normalise_before": before, "normalise_after": after}).fit(Blocks(vectors, 37, 150))


@pytest.mark.parametrize(("form", "before", "after"), SETTINGS)
def test_it_is_the_equation(form, before, after):
    made = fitted(X, form, before, after)
    texts, mean = (normalize(X), normalize(MORE)) if before else (X, MORE), np.zeros(12)
    for row in texts[0]:
        mean += row / len(X)
    direction = mean / np.sqrt(sum(mean**2))
    expected = []
    for row in texts[1]:
        rest = row - mean if form == "subtract" else row - sum(row * direction) * direction
        expected.append(rest / np.sqrt(sum(rest**2)) if after else rest)
    z = made.transform(MORE)
    np.testing.assert_allclose(z, expected, atol=1e-12)
    if form == "project":
        assert abs(z @ direction).max() < 1e-10


def test_the_length_of_the_mean_changes_nothing_where_its_direction_is_taken_out():
    made, scaled = fitted(after=False), fitted(after=False)
    scaled.mean = 3.5 * made.mean
    np.testing.assert_allclose(scaled.transform(MORE), made.transform(MORE), atol=1e-12)
    twice = Renormalise({"normalise_before": False, "normalise_after": False}).restore(made.state())
    np.testing.assert_allclose(twice.transform(made.transform(MORE)), made.transform(MORE), atol=1e-12)


def test_subtracted_the_vectors_that_were_fitted_on_have_mean_zero():
    made = fitted(form="subtract", after=False)
    assert abs(made.transform(X).mean(axis=0)).max() < 1e-12
    assert np.linalg.norm(made.mean) == pytest.approx(np.linalg.norm(normalize(X).mean(axis=0)), rel=1e-12)
    [note] = made.notes
    assert note == f"renormalise: the mean of made has length {np.linalg.norm(made.mean):.4f}"


def test_zeros_stay_zeros_and_a_mean_without_direction_is_refused():
    rows = MORE.copy()
    rows[3] = 0
    np.testing.assert_allclose(cosines(fitted().transform(MORE)), cosines(fitted(after=False).transform(MORE)), atol=1e-10)
    assert not fitted().transform(rows)[3].any() and np.isfinite(fitted().transform(rows)).all()
    both = np.concatenate([X, -X]).astype(np.float32)
    with pytest.raises(StsbenchError):
        fitted(both)
    fitted(both, "subtract")


def test_in_a_chain_it_is_fitted_on_what_comes_before_it():
    chain = Chain.parse("standardise+renormalise:form=subtract,normalise_after=false+whitening:dimensions=5")
    z = chain.fit(Blocks(X, 100)).transform(X)
    standard = (X - X.mean(axis=0)) / X.std(axis=0)
    unit = normalize(standard)
    middle = unit - unit.mean(axis=0)
    np.testing.assert_allclose(chain.steps[2].mean, middle.mean(axis=0), atol=1e-7)  # blocks are float32
    assert z.shape == (400, 5) and abs(np.cov(z.T) - np.eye(5)).max() < 1e-8
    assert chain.affine() is None and Chain.parse(chain.spelled()).spelled() == chain.spelled()
