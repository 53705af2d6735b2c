"""InfoNCE and NT-Xent, and the methods' losses made of them, against the equations as they are printed, in float64."""

from __future__ import annotations

import pytest
import torch
from info_nce_oracle import naive_info_nce, naive_nt_xent
from sentence_transformers.sentence_transformer.losses import GlobalOrthogonalRegularizationLoss
from torch.nn.functional import cross_entropy

from stsbench import losses
from stsbench.losses.contrastive import info_nce, nt_xent


def random(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed + 97 * len(shape) + sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()


def check_same(value, expected, inputs):
    assert value.item() == pytest.approx(expected.item(), abs=1e-12)
    for ours, theirs in zip(*(torch.autograd.grad(loss, inputs) for loss in (value, expected)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("similarity", "n", "size", "start", "blocks", "alpha"), [
    ("cosine", 5, 5, 0, 1, 0.5), ("dot", 2, 6, 3, 2, 2.0), ("cosine", 2, 6, 3, 2, 2.0), ("dot", 1, 1, 0, 1, 1.0)])
def test_info_nce_is_the_double_loop(similarity, n, size, start, blocks, alpha):
    options = {
        "temperature": 0.3, "similarity": similarity, "alpha": alpha, "start": start,
        "negatives": [random(size, 4, seed=2 + b).detach() for b in range(blocks)],
    }
    queries, keys = random(n, 4), random(size, 4, seed=1)
    check_same(info_nce(queries, keys, **options), naive_info_nce(queries, keys, **options).mean(), (queries, keys))


@pytest.mark.parametrize(("count", "temperature"), [(1, 0.05), (5, 0.3)])
def test_nt_xent_is_the_double_loop(count, temperature):
    pair = random(count, 4), random(count, 4, seed=1)
    check_same(nt_xent(*pair, temperature=temperature), naive_nt_xent(*pair, temperature).mean(), pair)


@pytest.mark.parametrize("name", ["simcse", "promptbert", "diffaug", "diffcse", "sarcse"])
def test_methods_of_one_positive_have_info_nce(name):
    loss = getattr(losses, name)
    a, p, m, two_blocks = random(5, 8), random(5, 8, seed=1), random(5, 8, seed=2), random(10, 8, seed=3)
    assert loss(a, p).item() == pytest.approx(naive_info_nce(a, p).mean().item(), abs=1e-9)
    expected = naive_info_nce(a, p, temperature=0.3, negatives=[m]).mean().item()
    assert loss(a, p, m, temperature=0.3).item() == pytest.approx(expected, abs=1e-12)
    expected = naive_info_nce(a, p, similarity="dot", negatives=two_blocks.split(5)).mean().item()
    assert loss(a, p, two_blocks, similarity="dot").item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("mean", "second", "kinds"), [(1.0, 0.5, "mean"), (0.0, 0.5, "sum")])
def test_gor_is_sentence_transformers_own(mean, second, kinds):
    blocks = [random(5, 3, seed=seed) for seed in range(3)]  # in three dimensions cosines are above 1 / d on average
    theirs = GlobalOrthogonalRegularizationLoss(None, mean_weight=mean, second_moment_weight=second, aggregation=kinds)
    value = losses.gor(blocks, mean=mean, second_moment=second, kinds=kinds)
    check_same(value, sum(theirs.compute_loss_from_embeddings(blocks).values()), blocks)


def test_further_losses_of_methods_written_out():
    first, second, third = (random(5, 8, seed=seed) for seed in range(3))

    def info(a, b, **options):
        return naive_info_nce(a, b, **options).mean()

    stored = random(3, 8, seed=4)
    queue = torch.cat([first @ stored.T / (first.norm(dim=1)[:, None] * stored.norm(dim=1))], 1) / 0.2
    own = torch.stack([torch.cosine_similarity(row, second, dim=-1) for row in first]) / 0.2
    spans = random(5, 3, 8, seed=5)
    both = (info(2 * first, second, similarity="dot") + info(2 * second, first, similarity="dot")) / 2
    across = (info(first, second, temperature=0.5) + info(second, first, temperature=0.5)) / 2
    for value, expected in (
        (losses.simcse(first, second, third, alpha=3.0), info(first, second, negatives=[third], alpha=3.0)),
        (losses.infocse(first, second), info(first, second)),
        (losses.esimcse(first, second, stored, temperature=0.2),
         cross_entropy(torch.cat([own, queue], 1), torch.arange(5))),
        (losses.whitenedcse(first, torch.cat([second, third])), info(first, second) + info(first, third)),
        (losses.whitenedcse(first, torch.cat([second, third]), reduce="mean"),
         (info(first, second) + info(first, third)) / 2),
        (losses.consert(first, second), naive_nt_xent(first, second, 0.1).mean()),
        (losses.consert(first, second, temperature=0.5, nt_xent="sum"), 2 * naive_nt_xent(first, second, 0.5).mean()),
        (losses.mirrorbert(first, second), naive_nt_xent(first, second, 0.04).mean()),
        (losses.declutr(first, spans), naive_nt_xent(first, spans.sum(1) / 3, 0.05).mean()),
        (losses.declutr(first, second), naive_nt_xent(first, second, 0.05).mean()),
        (losses.ct_in_batch(first, second, scale=2.0), both),
        (losses.ct_in_batch(first, second, similarity="cosine", scale=2.0), across),
    ):
        assert value.item() == pytest.approx(expected.item(), abs=1e-9)


def test_a_vector_of_zeros_has_cosine_zero_as_in_torch():
    queries, keys = random(3, 4).detach(), random(3, 4, seed=1)
    queries[1] = 0
    queries.requires_grad_(True)
    value = info_nce(queries, keys)
    cosines = torch.nn.CosineSimilarity(dim=-1)(queries.unsqueeze(1), keys.unsqueeze(0)) / 0.05
    assert value.item() == pytest.approx(cross_entropy(cosines, torch.arange(3)).item(), rel=1e-12)
    value.backward()
    assert queries.grad.isfinite().all()
