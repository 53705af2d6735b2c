"""The regression of a cosine and the triplet hinge: against loops, finite differences, and values known beforehand."""

from __future__ import annotations

import math

import pytest
import torch
from sbert_oracle import regression, triplet

from stsbench.losses.labelled import sbert_regression
from stsbench.losses.margins import triplet as triplet_hinge


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).requires_grad_()


@pytest.mark.parametrize("similarity", ["cosine", "rescaled_cosine"])
def test_regression(similarity):
    u, v, targets = random(6, 5), random(6, 5, seed=1), torch.tensor([0, 1, 0.5, 0.25, 0.8, 0.1], dtype=torch.float64)
    expected = regression(u.tolist(), v.tolist(), targets.tolist(), (0, 1), similarity == "rescaled_cosine")
    options = {"scale": (0, 1), "similarity": similarity}
    assert sbert_regression(u, v, targets, **options).item() == pytest.approx(expected, abs=1e-12)
    assert torch.autograd.gradcheck(lambda *pair: sbert_regression(*pair, targets, **options), (u, v))


def test_regression_of_opposite_and_of_equal_vectors():
    u = torch.tensor([[3.0, 4.0]])
    for v, cosine, rescaled in ((u, 0.0, 0.0), (-2 * u, 4.0, 1.0)):
        target = torch.ones(1)
        assert sbert_regression(u, v, target, scale=(0, 1)).item() == pytest.approx(cosine)
        assert sbert_regression(u, v, target, scale=(0, 1), similarity="rescaled_cosine").item() == pytest.approx(rescaled)


def test_targets_take_the_precision_of_the_vectors():
    """Scores are float64: the loss of float32 vectors is float32."""
    value = sbert_regression(torch.randn(2, 3), torch.randn(2, 3), torch.tensor([0.1, 0.2], dtype=torch.float64))
    assert value.dtype == torch.float32


@pytest.mark.parametrize("margin", [0.2, 1.0, 5.0])
def test_triplets(margin):
    vectors = [random(6, 5, seed=seed) for seed in range(3)]
    expected = triplet(*(part.tolist() for part in vectors), margin)
    assert triplet_hinge(*vectors, margin=margin).item() == pytest.approx(expected, abs=1e-12)
    assert torch.autograd.gradcheck(lambda *parts: triplet_hinge(*parts, margin=margin), vectors)


def test_a_triplet_by_hand():
    anchor, positive, negative = (torch.tensor([row]) for row in ([0.0, 0.0], [3.0, 4.0], [0.0, 5.5]))
    assert triplet_hinge(anchor, positive, negative).item() == pytest.approx(5 - 5.5 + 1)
    assert triplet_hinge(anchor, positive, negative, margin=0.4).item() == 0
    anchor.requires_grad_()
    triplet_hinge(anchor, anchor.detach().clone(), negative, margin=6.0).backward()
    assert anchor.grad.isfinite().all() and anchor.grad.norm().item() == pytest.approx(math.hypot(0, 1))
