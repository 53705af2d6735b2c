"""InfoNCE and NT-Xent, the methods' losses made of them, and PCL's, against the equations as they are printed, in float64;
what a vector shares with its tokens (IS-BERT) and layers (SG-OPT), in loops; several directions by sentence-transformers.
A guide's masks against a loop, values and gradients; GISTEmbedLoss: training/api/test_wrapping.py. What is refused:
tests/refusals/losses.yaml."""

import itertools
import math

import pytest
import torch
from guided_oracle import naive_guided
from info_nce_oracle import cosine, naive_info_nce, naive_nt_xent
from sentence_transformers.sentence_transformer import losses as library
from torch.nn.functional import cross_entropy, normalize

from stsbench import losses
from stsbench.losses.contrastive import info_nce, nt_xent
from stsbench.losses.group import group_cross_entropy, jensen_shannon
from stsbench.losses.variants import GuideCosines, GuideRule, guided_info_nce, guided_nt_xent, masked_share


def random(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed + 97 * len(shape) + sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()


def check_same(value, expected, inputs, tolerance=1e-12, of_gradients=1e-10):
    assert value.item() == pytest.approx(expected.item(), abs=tolerance)
    for ours, theirs in zip(*(torch.autograd.grad(loss, inputs) for loss in (value, expected)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=of_gradients)


@pytest.mark.parametrize(("similarity", "n", "size", "start", "blocks", "alpha"), [
    ("cosine", 5, 5, 0, 1, 0.5), ("dot", 2, 6, 3, 2, 2.0), ("cosine", 2, 6, 3, 2, 2.0), ("dot", 1, 1, 0, 1, 1.0)])
def test_info_nce_is_the_double_loop(similarity, n, size, start, blocks, alpha):
    options = {"temperature": 0.3, "similarity": similarity, "alpha": alpha, "start": start,
               "negatives": [random(size, 4, seed=2 + b).detach() for b in range(blocks)]}
    queries, keys = random(n, 4), random(size, 4, seed=1)
    check_same(info_nce(queries, keys, **options), naive_info_nce(queries, keys, **options).mean(), (queries, keys))


@pytest.mark.parametrize(("count", "temperature"), [(1, 0.05), (5, 0.3)])
def test_nt_xent_is_the_double_loop(count, temperature):
    pair = random(count, 4), random(count, 4, seed=1)
    check_same(nt_xent(*pair, temperature=temperature), naive_nt_xent(*pair, temperature).mean(), pair)


@pytest.mark.parametrize(("mean", "second", "kinds"), [(1.0, 0.5, "mean"), (0.0, 0.5, "sum")])
def test_gor_is_sentence_transformers_own(mean, second, kinds):
    blocks = [random(5, 3, seed=seed) for seed in range(3)]  # in three dimensions cosines are above 1 / d on average
    weights = {"mean_weight": mean, "second_moment_weight": second}
    theirs = library.GlobalOrthogonalRegularizationLoss(None, aggregation=kinds, **weights)
    value = losses.gor(blocks, mean=mean, second_moment=second, kinds=kinds)
    check_same(value, sum(theirs.compute_loss_from_embeddings(blocks).values()), blocks)


def test_further_losses_of_methods_written_out():
    first, second, third = (random(5, 8, seed=seed) for seed in range(3))

    def info(a, b, **options):
        return naive_info_nce(a, b, **options).mean()

    stored = random(3, 8, seed=4)
    queue = torch.cat([first @ stored.T / (first.norm(dim=1)[:, None] * stored.norm(dim=1))], 1) / 0.2
    own = torch.stack([torch.cosine_similarity(row, second, dim=-1) for row in first]) / 0.2
    spans, positives = random(5, 3, 8, seed=5), torch.cat([second, third])
    both = (info(2 * first, second, similarity="dot") + info(2 * second, first, similarity="dot")) / 2
    across = (info(first, second, temperature=0.5) + info(second, first, temperature=0.5)) / 2
    warm = info(first, second, temperature=0.3, negatives=[third])
    blocks = info(first, second, similarity="dot", negatives=[third, first])
    of_one_positive = (losses.simcse, losses.promptbert, losses.diffaug, losses.diffcse, losses.sarcse)
    for value, expected in (
        *((loss(first, second, third, temperature=0.3), warm) for loss in of_one_positive),
        *((loss(first, second, torch.cat([third, first]), similarity="dot"), blocks) for loss in of_one_positive),
        (losses.simcse(first, second, third, alpha=3.0), info(first, second, negatives=[third], alpha=3.0)),
        (losses.infocse(first, second), info(first, second)),
        (losses.esimcse(first, second, stored, temperature=0.2), cross_entropy(torch.cat([own, queue], 1), torch.arange(5))),
        (losses.whitenedcse(first, positives), info(first, second) + info(first, third)),
        (losses.whitenedcse(first, positives, reduce="mean"), (info(first, second) + info(first, third)) / 2),
        (losses.consert(first, second), naive_nt_xent(first, second, 0.1).mean()),
        (losses.consert(first, second, temperature=0.5, nt_xent="sum"), 2 * naive_nt_xent(first, second, 0.5).mean()),
        (losses.mirrorbert(first, second), naive_nt_xent(first, second, 0.04).mean()),
        (losses.declutr(first, spans), naive_nt_xent(first, spans.sum(1) / 3, 0.05).mean()),
        (losses.declutr(first, second), naive_nt_xent(first, second, 0.05).mean()),
        (losses.ct_in_batch(first, second, scale=2.0), both),
        (losses.ct_in_batch(first, second, similarity="cosine", scale=2.0), across)):
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
    expected = sum(negative) / len(negative) - sum(positive) / len(positive)
    real = torch.arange(4) < torch.tensor(lengths).unsqueeze(1)
    for mask in (real, real.long()):
        assert losses.isbert(tokens, mask, sentences).item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_large_products_overflow_in_no_precision(dtype):
    """Products of 1,536 to 4,915; half precision's exponential ends at 11, its largest number is 65,504."""
    vectors = torch.tensor([[1.6], [-1.6]], dtype=dtype).expand(2, 1536).contiguous().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        negative, positive = jensen_shannon(vectors, torch.tensor([0, 1]), -vectors)
    (negative + positive).backward()
    assert negative.dtype == torch.promote_types(dtype, torch.float32)
    assert negative.item() == pytest.approx(1536 * vectors[0, 0].item() ** 2 - math.log(2), rel=1e-5) == positive.item()
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


@pytest.mark.parametrize(("blocks", "hardness", "strength"), [
    (0, "none", 0.0), (0, "in_batch_negatives", 9.0), (2, "all_negatives", 3.0), (3, "hard_negatives", 5.0)])
def test_info_nce_in_several_directions_is_sentence_transformers(blocks, hardness, strength):
    for extra, partition in itertools.product(OTHERS, ("joint", "per_direction")):
        if partition == "per_direction" and {"query_to_query", "doc_to_doc"} & set(extra):  # between texts of one kind
            continue
        how = {"directions": ("query_to_doc", *extra)}
        texts = [random(6, 5, seed=seed) for seed in range(2 + blocks)]
        value = losses.multiple_negatives(
            texts[0], texts[1], texts[2:], partition=partition, hardness=hardness, strength=strength, **how)
        theirs = library.MultipleNegativesRankingLoss(
            torch.nn.Identity(), partition_mode=partition, hardness_mode=None if hardness == "none" else hardness,
            hardness_strength=strength, **how)
        check_same(value, theirs.compute_loss_from_embeddings(texts, None), texts)


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

    total = sum(info_nce(x) + group(x) for x in ([views] if peer is None else [views, peer]))
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


# ---- under a guide, whose cosines mask what is no negative

N = D = 5


def drawn(seed, blocks):
    numbers = torch.Generator().manual_seed(seed)
    return [torch.randn(N, D, generator=numbers, dtype=torch.float64).requires_grad_() for _ in range(blocks)]


def cosines(guides):
    a, p, *negatives = [normalize(block.detach(), dim=1) for block in guides]
    return GuideCosines(a @ p.T, tuple(a @ block.T for block in negatives), a @ a.T, p @ p.T)


def guides_near(seed, blocks):
    """A guide's vectors: positives near their anchors."""
    first, *others = drawn(seed, blocks)
    return [first.detach(), *((first + 0.8 * block).detach() for block in others)]


@pytest.mark.parametrize(("threshold", "margin", "contrasted", "blocks", "kind"), [
    ("absolute", 0.0, (True, True), 0, {}), ("absolute", 0.3, (True, False), 2, {}),
    ("relative", 0.5, (False, True), 2, {"masked": "zero"}), ("fixed", 0.0, (False, False), 0, {"loss": "bce_of_softmax"}),
    ("relative", 0.5, (True, True), 2, {"masked": "zero", "loss": "bce_of_softmax"}),
    ("absolute", 0.0, (True, True), 0, {"diagonals": "by_guide"}),
], ids=str)
def test_value_and_gradient_are_the_loop_s(threshold, margin, contrasted, blocks, kind):
    vectors, guides = drawn(1, 2 + blocks), guides_near(2, 2 + blocks)
    rule = {"threshold": threshold, "margin": margin, "phi": 0.2, **kind}
    rule |= dict(zip(("contrast_anchors", "contrast_positives"), contrasted, strict=True))
    ours = guided_info_nce(vectors[0], vectors[1], cosines(guides), GuideRule(**rule), anchors=vectors[0],
                           temperature=0.1, negatives=vectors[2:])
    theirs, count = naive_guided(vectors[0], vectors[1], guides, negatives=vectors[2:], temperature=0.1, **rule)
    assert count > 0
    check_same(ours, theirs, vectors, 1e-10, 1e-8)
    others = N * ((1 + sum(contrasted)) * (N - 1) + blocks * N)
    assert float(masked_share(cosines(guides), GuideRule(**rule))) == pytest.approx(count / others)


def test_where_everything_is_masked_stored_vectors_are_left_which_the_guide_has_not_read():
    (a, p, m), guides = drawn(7, 3), guides_near(8, 3)
    known, alone = cosines(guides), {"contrast_anchors": False, "contrast_positives": False}
    assert guided_info_nce(a, p, known, GuideRule(margin=9.0), anchors=a, negatives=[m]).item() == 0.0
    # y ln p alone over 2 B^2 entries is the cross-entropy over 2 B
    assert guided_info_nce(a, p, known, GuideRule(margin=9.0, loss="bce_of_softmax", **alone), negatives=[m]).item() == 0.0
    stored = torch.randn(4, D, dtype=torch.float64)
    kept = guided_info_nce(a, p, known, GuideRule(margin=9.0, **alone), negatives=[m], stored=stored)
    expected = [info_nce(a[i : i + 1], p[i : i + 1], stored=stored) for i in range(N)]
    assert kept.item() == pytest.approx(sum(expected).item() / N, abs=1e-12)


def test_the_bce_is_finite_where_p_is_1():
    a, guides = drawn(9, 3)[0], guides_near(10, 3)
    rule = GuideRule("fixed", contrast_anchors=False, contrast_positives=False, loss="bce_of_softmax")
    wrong = [block.detach().float().requires_grad_() for block in (a, -a, a)]  # p is 1 at a hard negative
    value = guided_info_nce(wrong[0], wrong[1], cosines(guides), rule, negatives=wrong[2:], temperature=0.001)
    value.backward()
    assert torch.isfinite(value) and value > 1 and all(torch.isfinite(block.grad).all() for block in wrong)


@pytest.mark.parametrize("masked", ["remove", "zero"])
def test_nt_xent_under_a_guide_is_the_loop_s(masked):
    first, second = drawn(11, 2)
    guide = normalize(drawn(12, 1)[0].detach(), dim=1)
    guide = (guide @ guide.T).fill_diagonal_(1.0)
    rule, losses, count = GuideRule(margin=0.9, masked=masked), [], 0
    views = [*first, *second]
    for r in range(2 * N):
        total, right = 0.0, None
        for other in range(2 * N):
            logit = cosine(views[r], views[other]) / 0.1
            if other == r:
                continue
            if other == (r + N) % (2 * N):
                right = logit
            elif guide[r % N, other % N] > 1 - 0.9:
                count += 1
                if masked == "remove":
                    continue
                logit = logit * 0
            total = total + logit.exp()
        losses.append(-(right - total.log()))
    assert count
    check_same(guided_nt_xent(first, second, guide, rule), sum(losses) / (2 * N), (first, second), 1e-10, 1e-9)
    assert abs(guided_nt_xent(first, second, guide, GuideRule(margin=-1.0)) - nt_xent(first, second)) < 1e-12


def test_no_row_gives_zero_with_a_gradient_and_of_one_text_alone_nothing_is_masked():
    (a, p), guides = drawn(13, 2), guides_near(14, 2)
    known = cosines(guides)
    empty = GuideCosines(known.positives[:0], (), known.anchors[:0], known.between_positives[:0])
    for loss in ("ce", "bce_of_softmax"):
        value = guided_info_nce(a[:0], p, empty, GuideRule(loss=loss), anchors=a)
        assert value == 0 and value.requires_grad
    value = guided_nt_xent(a[:0], p[:0], known.anchors[:0], GuideRule(), all_first=a, all_second=p)
    assert value == 0 and value.requires_grad
    one = torch.ones(1, 1)
    assert float(masked_share(GuideCosines(one, (), one, one), GuideRule(margin=0.5))) == 0


def test_bfloat16_vectors_are_compared_in_float32():
    (a, p), guides = drawn(15, 2), guides_near(16, 2)
    low = [block.detach().bfloat16() for block in (a, p)]
    with torch.autocast("cpu", torch.bfloat16):
        ours = guided_info_nce(*low, cosines(guides), GuideRule(), anchors=low[0], temperature=0.05)
    theirs, _ = naive_guided(*(block.double() for block in low), guides, temperature=0.05)
    assert ours.dtype == torch.float32 and abs(ours - theirs) < 1e-4 * theirs.item()
