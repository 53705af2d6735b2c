"""InfoNCE and NT-Xent, the methods' losses made of them, and PCL's, against the equations as they are printed, in float64;
what a vector shares with its tokens (IS-BERT) and layers (SG-OPT), in loops; several directions by sentence-transformers."""

import itertools
import math

import pytest
import torch
from info_nce_oracle import naive_info_nce, naive_nt_xent
from sentence_transformers.sentence_transformer.losses import (
    GlobalOrthogonalRegularizationLoss,
    MultipleNegativesRankingLoss,
)
from torch.nn.functional import cross_entropy

from stsbench import losses
from stsbench.losses.contrastive import info_nce, nt_xent
from stsbench.losses.group import group_cross_entropy, jensen_shannon


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


def test_is_bert_is_the_loop_over_tokens_and_sentences():
    tokens, sentences = random(3, 4, 6), random(3, 6, seed=1)
    lengths, positive, negative = [4, 2, 3], [], []
    for i, length in enumerate(lengths):
        for at in range(length):
            z = [float(tokens[i, at] @ sentence) for sentence in sentences]
            positive.append(math.log(2) - math.log1p(math.exp(-z[i])))
            negative += [math.log1p(math.exp(z[j])) - math.log(2) for j in range(3) if j != i]
    real = torch.arange(4) < torch.tensor(lengths).unsqueeze(1)
    expected = sum(negative) / len(negative) - sum(positive) / len(positive)
    assert losses.isbert(tokens, real, sentences).item() == pytest.approx(expected, abs=1e-12)
    assert losses.isbert(tokens, real.long(), sentences).item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_large_products_overflow_in_no_precision(dtype):
    """Products of 1,536 to 4,915; half precision's exponential ends at 11, its largest number is 65,504."""
    vectors = torch.tensor([[1.6], [-1.6]], dtype=dtype).expand(2, 1536).contiguous().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        negative, positive = jensen_shannon(vectors, torch.tensor([0, 1]), -vectors)
    (negative + positive).backward()
    assert negative.dtype == torch.promote_types(dtype, torch.float32)
    product = 1536 * vectors[0, 0].item() ** 2
    assert negative.item() == pytest.approx(product - math.log(2), rel=1e-5) == positive.item()
    assert vectors.grad.isfinite().all() and vectors.grad.any()


def test_sg_opt_is_the_loop_over_sentences_and_layers():
    c, h, t, values = random(4, 6), random(4, 3, 6, seed=1), 0.2, []

    def e(a, b):
        return torch.exp(a @ b / (a.norm() * b.norm()) / t)

    for i in range(4):
        others = sum(e(c[i], h[m, k]) for m in range(4) if m != i for k in range(3))
        values += [-torch.log(e(c[i], h[i, k]) / (e(c[i], h[i, k]) + others)) for k in range(3)]
    check_same(losses.sgopt(c, h, temperature=t), sum(values) / 12, (c, h))
    part = losses.sgopt(c[2:], h[2:], temperature=t, all_layers=h, start=2)
    assert part.item() == pytest.approx(sum(value.item() for value in values[6:]) / 6, abs=1e-12)
    single = losses.sgopt(c[3:], h[3:, :1], temperature=t, all_layers=h[:, :1], start=3)
    others = sum(e(c[3], h[m, 0]) for m in range(3))
    assert single.item() == pytest.approx(-torch.log(e(c[3], h[3, 0]) / (e(c[3], h[3, 0]) + others)).item(), abs=1e-12)


FURTHER = ("query_to_query", "doc_to_query", "doc_to_doc")
OTHERS = [extra for size in range(4) for extra in itertools.combinations(FURTHER, size)]
WEIGHTS = [("none", 0.0), ("in_batch_negatives", 9.0), ("all_negatives", 3.0), ("hard_negatives", 5.0)]
TEXTS = {"query_to_query", "doc_to_doc"}  # between texts of one kind


@pytest.mark.parametrize(("blocks", "hardness"), [(0, WEIGHTS[0]), (0, WEIGHTS[1]), (2, WEIGHTS[2]), (3, WEIGHTS[3])])
def test_info_nce_in_several_directions_is_sentence_transformers(blocks, hardness):
    for extra, partition in itertools.product(OTHERS, ("joint", "per_direction")):
        if partition == "per_direction" and TEXTS & set(extra):
            continue
        how = {"directions": ("query_to_doc", *extra)}
        texts = [random(6, 5, seed=seed) for seed in range(2 + blocks)]
        value = losses.multiple_negatives(
            texts[0], texts[1], texts[2:], partition=partition, hardness=hardness[0], strength=hardness[1], **how)
        library = MultipleNegativesRankingLoss(
            torch.nn.Identity(), partition_mode=partition, hardness_mode=None if hardness[0] == "none" else hardness[0],
            hardness_strength=hardness[1], **how)
        check_same(value, library.compute_loss_from_embeddings(texts, None), texts)


@pytest.mark.parametrize("wrong", [
    {"directions": ["doc_to_query"]}, {"directions": ["query_to_doc", "query_to_doc"]}, {"strength": 1.0},
    {"directions": ["query_to_doc", "doc_to_doc"], "partition": "per_direction"}, {"hardness": "all_negatives"},
    {"hardness": "hard_negatives", "strength": 1.0}, {"start": 1}, {"temperature": 0.0},
])
def test_choices_that_do_not_go_together_are_refused(wrong):
    with pytest.raises(ValueError, match=r"directions|partition|hardness|column|temperature"):
        losses.multiple_negatives(random(6, 5), random(6, 5, seed=1), **wrong)


def naive_pcl(views, peer, temperature, group_positive, reduce):
    """The sum of the released code's six terms, without a peer of the two that are left."""

    def scores(x, keys, i):
        """Of the anchor i of x with the further views of row i in `keys`, then with the other rows' anchors there."""
        others = [view[i] for view in keys[1:]] + [other for j, other in enumerate(keys[0]) if j != i]
        return torch.stack([x[0][i] @ key / (x[0][i].norm() * key.norm()) / temperature for key in others])

    def info_nce(x):
        rows = [torch.stack([a @ b / (a.norm() * b.norm()) for b in x[1]]) / temperature for a in x[0]]
        return -sum(torch.log(row.exp()[i] / row.exp().sum()) for i, row in enumerate(rows)) / len(rows)

    def group(x):
        elements = []
        for i in range(len(x[0])):
            chances = scores(x, x, i).exp()
            for k, p in enumerate(chances / chances.sum()):
                p = 1 / (1 + torch.exp(-p)) if group_positive == "bce_of_softmax" else p
                elements.append(-torch.log(p) if k < len(x) - 1 else -torch.log(1 - p))
        return sum(elements) / len(elements)

    def divergence(x, keys, y, others):
        rows = [[row.exp() / row.exp().sum() for row in (scores(x, keys, i), scores(y, others, i))]
                for i in range(len(x[0]))]
        elements = torch.cat([q * (torch.log(q) - torch.log(p)) for p, q in rows])
        return elements.sum() / (len(elements) if reduce == "element" else len(rows))

    networks = [views] if peer is None else [views, peer]
    total = sum(info_nce(x) + group(x) for x in networks)
    return total if peer is None else total + divergence(views, peer, peer, views) + divergence(views, views, peer, peer)


@pytest.mark.parametrize(("count", "with_peer", "group_positive", "reduce"), [
    (2, True, "bce", "element"), (4, True, "bce_of_softmax", "row"), (3, False, "bce", "element")])
def test_pcl_is_the_loops(group_positive, reduce, count, with_peer):
    inputs = [random(5, 6, seed=seed) for seed in range(count * (1 + with_peer))]
    views, peer = inputs[:count], inputs[count:] or None
    options = {"temperature": 0.3, "group_positive": group_positive, "reduce": reduce}
    check_same(losses.pcl(views, peer, **options), naive_pcl(views, peer, **options), inputs)


def test_probabilities_next_to_one_are_kept():
    scores = torch.tensor([[0.0, -1.0, 90.0]], dtype=torch.float32, requires_grad=True)
    value = group_cross_entropy(scores, 2, "bce")  # -log(1 - p) of the other text: 90 - log(1 + 1 / e)
    assert value.item() == pytest.approx((90 + 91 + 90 - math.log(1 + math.exp(-1))) / 3, rel=1e-6)
    value.backward()
    assert torch.isfinite(scores.grad).all()
    alone = torch.zeros(1, 1, requires_grad=True)  # one text of two views: certain
    group_cross_entropy(alone, 1, "bce").backward()
    assert alone.grad.item() == 0
    assert group_cross_entropy(torch.empty(0, 4, requires_grad=True), 2, "bce").item() == 0  # a process without a text
