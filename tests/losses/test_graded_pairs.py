"""CoSENT and AnglE's terms: against loops, against sentence-transformers, and what may not move them."""

import math

import pytest
import torch
from graded_oracle import complex_angle, cosine, naive_cosent, naive_in_batch, same, vectors
from sentence_transformers import util
from sentence_transformers.sentence_transformer.losses import AnglELoss, CoSENTLoss
from torch import nn

from stsbench.losses.labelled import cosent_of_similarities as cosent
from stsbench.losses.labelled import labelled_in_batch, pair_angles, pair_cosines

SCORES = torch.tensor([3.0, 0.5, 0.5, 5.0, 1.0, 3.0, 0.0])
N, D = len(SCORES), 6


def pairs(d=D, dtype=torch.float64, n=N):
    return [vectors(n, d, seed=seed, dtype=dtype).requires_grad_() for seed in (1, 2)]


@pytest.mark.parametrize("scale", [0.05, 1.0, 20.0])
@pytest.mark.parametrize("d", [6, 7])
def test_both_similarities_ranked_equal_loops(scale, d):
    u, v = pairs(d)
    for similarity, naive in ((pair_cosines, cosine), (pair_angles, complex_angle)):
        expected = naive_cosent([naive(a, b) for a, b in zip(u, v, strict=True)], SCORES.tolist(), scale)
        same(cosent(similarity(u, v), SCORES, scale=scale), expected, (u, v), 1e-8)


@pytest.mark.parametrize("scale", [1.0, 20.0])
def test_in_batch_negatives_equal_a_loop(scale):
    u, v = pairs()
    labels = (SCORES > 1).double()
    same(labelled_in_batch(u, v, labels, scale=scale), naive_in_batch(u, v, labels.tolist(), scale), (u, v), 1e-8)


class Given(nn.Module):
    """A "model" whose vectors are the features themselves."""

    def forward(self, features):
        return features


@pytest.mark.parametrize(("kind", "similarity"), [(CoSENTLoss, pair_cosines), (AnglELoss, pair_angles)])
@pytest.mark.parametrize("d", [6, 7])
@pytest.mark.parametrize("scores", [SCORES, (SCORES > 1).float()])
def test_values_and_gradients_are_sentence_transformers(kind, similarity, d, scores):
    u, v = pairs(d, torch.float32)
    theirs = kind(Given())([{"sentence_embedding": u}, {"sentence_embedding": v}], scores)
    same(cosent(similarity(u, v), scores), theirs, (u, v), 1e-5)  # float32: a cosine's last digit times 20
    u, v = pairs(d)
    theirs = kind(Given())([{"sentence_embedding": u}, {"sentence_embedding": v}], scores.double())
    same(cosent(similarity(u, v), scores), theirs, (u, v), 1e-12)
    assert (pair_angles(u, v) - util.pairwise_angle_sim(u, v)).abs().max() < 1e-12


def test_what_the_angle_does_not_tell_apart():
    u, v = (each.detach() for each in pairs())
    assert torch.allclose(pair_angles(u, u), torch.ones(N, dtype=torch.float64), atol=1e-15)
    assert torch.allclose(pair_angles(u, -u), torch.ones(N, dtype=torch.float64), atol=1e-15)
    assert (pair_angles(u, v) - pair_angles(v, u)).abs().max() > 0.1
    assert pair_angles(u, v).max() <= math.sqrt(2)
    turned = torch.cat([-v[:, 3:], v[:, :3]], dim=1)  # J (c; d) = (-d; c)
    assert torch.allclose(pair_angles(u, v), (pair_cosines(u, v) + pair_cosines(u, turned)).abs(), atol=1e-15)
    assert pair_angles(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, -1.0]])).item() == pytest.approx(math.sqrt(2))
    zero = torch.zeros(2, 4, requires_grad=True)
    pair_angles(zero, zero).sum().backward()
    assert zero.grad.isfinite().all()


@pytest.mark.parametrize("similarity", [pair_cosines, pair_angles])
def test_ties_other_labels_in_the_same_order_and_other_orders_of_pairs_change_nothing(similarity):
    u, v = pairs()
    value = cosent(similarity(u, v), SCORES)
    for scores in (SCORES.exp(), SCORES * 7 - 3, SCORES.unique(return_inverse=True)[1]):
        same(cosent(similarity(u, v), scores), value, (u, v), 1e-12)
    order = torch.randperm(N, generator=torch.Generator().manual_seed(5))
    same(cosent(similarity(u[order], v[order]), SCORES[order]), value, (u, v), 1e-12)
    tied = cosent(similarity(u, v), torch.full((N,), 2.5))
    assert tied.item() == 0 and all(not grad.any() for grad in torch.autograd.grad(tied, (u, v)))
    one = cosent(similarity(u[:1], v[:1]), SCORES[:1])
    assert one.item() == 0


def test_a_small_scale_counts_the_ordered_pairs():
    ordered = sum(a < b for a in SCORES for b in SCORES)
    assert cosent(pair_cosines(*pairs()), SCORES, scale=1e-9).item() == pytest.approx(math.log(1 + ordered), abs=1e-7)
    assert cosent(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 3.0]), scale=1.0).item() == pytest.approx(
        math.log(1 + math.exp(-1)))
    assert cosent(torch.tensor([1.0, 0.0]), torch.tensor([1.0, 3.0]), scale=500.0).item() == 500.0  # no overflow


@pytest.mark.parametrize("autocast", [torch.bfloat16, torch.float16])
def test_low_precision_is_finite_and_near(autocast):
    u, v = pairs(dtype=torch.float32)
    labels = (SCORES > 1).float()

    def losses(u, v):
        return [cosent(pair_cosines(u, v), SCORES), cosent(pair_angles(u, v), SCORES), labelled_in_batch(u, v, labels)]

    whole = losses(u, v)
    with torch.autocast("cpu", dtype=autocast):
        low = losses(u, v)
        assert [value.item() for value in low] == [value.item() for value in whole]  # float32 within
        halved = losses(u.to(autocast), v.to(autocast))
    for value, near in zip(whole, halved, strict=True):
        assert near.dtype == torch.float32 and near.item() == pytest.approx(value.item(), rel=0.02)
        assert all(grad.isfinite().all() for grad in torch.autograd.grad(near, (u, v), retain_graph=True))


def test_shares_of_a_batch_add_up_to_the_whole():
    u, v = pairs()
    labels = (SCORES > 1).double()
    whole = labelled_in_batch(u, v, labels)
    parts = [(n, labelled_in_batch(u[at : at + n], v[at : at + n], labels[at : at + n], all_first=u, all_second=v, start=at))
             for at, n in ((0, 3), (3, 4))]
    same(sum(n * value for n, value in parts) / N, whole, (u, v), 1e-12)
