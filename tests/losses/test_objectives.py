"""The losses against formulas written out in loops, finite differences, and what must not change them."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from info_nce_oracle import naive_info_nce

from stsbench import losses
from stsbench.losses.contrastive import info_nce
from stsbench.losses.labelled import sbert_nli
from stsbench.losses.tokens import masked_accuracy, masked_lm

SIMILARITIES = ("cosine", "dot")


def random(*shape, seed=0, grad=False):
    generator = torch.Generator().manual_seed(seed + 97 * len(shape) + sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_(grad)


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize(("n", "size", "start"), [(5, 5, 0), (2, 6, 3), (1, 4, 3), (1, 1, 0)])
@pytest.mark.parametrize(("blocks", "alpha"), [(0, 1.0), (0, 3.0), (1, 1.0), (1, 0.5), (2, 2.0)])
def test_info_nce_is_the_double_loop(similarity, n, size, start, blocks, alpha):
    options = {
        "temperature": 0.3, "similarity": similarity, "alpha": alpha, "start": start,
        "negatives": [random(size, 4, seed=2 + b) for b in range(blocks)],
    }
    queries, keys = random(n, 4, grad=True), random(size, 4, seed=1, grad=True)
    value, expected = info_nce(queries, keys, **options), naive_info_nce(queries, keys, **options).mean()
    assert value.item() == pytest.approx(expected.item(), abs=1e-12)
    for ours, theirs in zip(*(torch.autograd.grad(loss, (queries, keys)) for loss in (value, expected)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-11)


def test_info_nce_defaults_are_the_published_ones():
    queries, keys = random(4, 6), random(4, 6, seed=1)
    assert info_nce(queries, keys).item() == pytest.approx(naive_info_nce(queries, keys, temperature=0.05).mean().item())
    doubled = info_nce(queries, keys, temperature=0.7, similarity="dot")
    assert doubled.item() == info_nce(queries, keys, similarity="dot").item()  # a dot product has no temperature


def test_info_nce_on_numbers_worked_by_hand():
    queries, keys, hard = torch.tensor([[[3.0, 0.0]], [[2.0, 0.0]], [[0.0, 5.0]]], dtype=torch.float64)
    # own positive: cosine 1; own hard negative: cosine 0, weight 2; temperature 1
    expected = -math.log(math.e / (math.e + 2))
    assert info_nce(queries, keys, temperature=1.0, negatives=[hard], alpha=2.0).item() == pytest.approx(expected)
    assert info_nce(queries, keys, similarity="dot", negatives=[hard]).item() == pytest.approx(math.log1p(math.exp(-6)))


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_info_nce_against_finite_differences(similarity):
    def loss(queries, keys, hard):
        return info_nce(queries, keys, temperature=0.4, similarity=similarity, negatives=[hard], alpha=0.5, start=1)

    keys, hard = (random(4, 3, seed=seed, grad=True) for seed in (1, 2))
    assert torch.autograd.gradcheck(loss, (random(2, 3, grad=True), keys, hard))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(2, 7), alpha=st.floats(0.1, 5), scale=st.floats(0.1, 50))
def test_info_nce_does_not_depend_on_order_or_on_lengths(seed, n, alpha, scale):
    queries, keys, hard = (random(n, 5, seed=seed + k) for k in range(3))
    value = info_nce(queries, keys, negatives=[hard], alpha=alpha).item()
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    shuffled = info_nce(queries[order], keys[order], negatives=[hard[order]], alpha=alpha)
    scaled = info_nce(queries * scale, keys / scale, negatives=[hard * scale], alpha=alpha)
    assert (shuffled.item(), scaled.item()) == pytest.approx((value, value), rel=1e-9)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), temperature=st.floats(0.02, 5))
def test_temperature_is_a_scale_of_the_logits(seed, temperature):
    queries, keys = (torch.nn.functional.normalize(random(4, 5, seed=seed + k), dim=1) for k in range(2))
    expected = info_nce(queries / temperature, keys, similarity="dot").item()
    assert info_nce(queries, keys, temperature=temperature).item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_slices_of_the_anchors_add_up_to_the_whole(similarity):
    queries, keys, hard = random(6, 4), random(6, 4, seed=1), random(6, 4, seed=2)
    options = {"similarity": similarity, "negatives": [hard], "alpha": 2.0}
    whole = info_nce(queries, keys, **options)
    parts = info_nce(queries[:4], keys, **options) * 4 + info_nce(queries[4:], keys, start=4, **options) * 2
    assert whole.item() == pytest.approx(parts.item() / 6, rel=1e-12)


def test_a_vector_of_zeros_has_cosine_zero_as_in_torch():
    queries, keys = random(3, 4), random(3, 4, seed=1)
    queries[1] = 0
    queries.requires_grad_(True)
    value = info_nce(queries, keys)
    cosines = torch.nn.CosineSimilarity(dim=-1)(queries.unsqueeze(1), keys.unsqueeze(0)) / 0.05
    assert value.item() == pytest.approx(torch.nn.functional.cross_entropy(cosines, torch.arange(3)).item(), rel=1e-12)
    value.backward()
    assert queries.grad.isfinite().all()


def test_half_precision_and_autocast_do_not_reach_the_logits():
    queries, keys = random(8, 16).bfloat16(), random(8, 16, seed=1).bfloat16()
    exact = info_nce(queries.double(), keys.double()).item()
    assert info_nce(queries, keys).item() == pytest.approx(exact, rel=1e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert info_nce(queries.float(), keys.float()).item() == pytest.approx(exact, rel=1e-5)


def test_info_nce_refuses_what_does_not_line_up():
    with pytest.raises(ValueError, match="do not fit into 4 keys"):
        info_nce(random(3, 2), random(4, 2), start=2)
    with pytest.raises(ValueError, match="a block of 3 hard negatives beside 4 keys"):
        info_nce(random(4, 2), random(4, 2), negatives=[random(3, 2)])
    with pytest.raises(ValueError, match="cosin"):
        info_nce(random(4, 2), random(4, 2), similarity="cosin")


def naive_cross_entropy(logits, labels):
    """Mean of log(sum exp) - own logit, row by row."""
    rows = zip(logits, labels.tolist(), strict=True)
    return sum(torch.log(sum(torch.exp(x) for x in row)) - row[label] for row, label in rows) / len(labels)


def test_masked_lm_is_the_loop():
    logits, labels = random(6, 9, grad=True), torch.tensor([0, 8, 3, 3, 1, 5])
    value, expected = masked_lm(logits, labels), naive_cross_entropy(logits, labels)
    assert value.item() == pytest.approx(expected.item(), rel=1e-12)
    assert torch.autograd.gradcheck(lambda x: masked_lm(x, labels), (logits,))


def test_masked_accuracy_counts():
    logits = torch.tensor([[0.0, 2, 1], [5, 1, 1], [0, 0, 1]])
    correct, count = masked_accuracy(logits, torch.tensor([1, 2, 2]))
    assert (int(correct), count) == (2, 3)
    assert masked_accuracy(torch.empty(0, 3), torch.empty(0, dtype=torch.long))[1] == 0


# block -> its k-th number, of the k-th numbers of u and v
NLI_FEATURES = {
    "u": lambda a, b: a, "v": lambda a, b: b, "difference": lambda a, b: a - b if a > b else b - a,
    "product": lambda a, b: a * b, "max_square": lambda a, b: (a if a > b else b) ** 2,
}


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize(
    "names", [("u", "v", "difference"), ("product", "u"), ("max_square",), tuple(NLI_FEATURES)], ids="-".join
)
def test_nli_is_the_loop(classes, with_bias, names):
    u, v = random(5, 4, grad=True), random(5, 4, seed=1, grad=True)
    width = 4 * len(names)
    weight = random(classes, width, grad=True)
    bias = random(classes, grad=True) if with_bias else None
    labels = torch.tensor([0, 1, classes - 1, 1, 0])
    rows = []
    for i in range(5):
        features = [NLI_FEATURES[name](u[i][k], v[i][k]) for name in names for k in range(4)]
        rows.append(torch.stack([
            sum(weight[c][k] * features[k] for k in range(width)) + (bias[c] if with_bias else 0) for c in range(classes)
        ]))
    expected = naive_cross_entropy(torch.stack(rows), labels)
    value = sbert_nli(u, v, labels, weight, bias, features=names)
    assert value.item() == pytest.approx(expected.item(), rel=1e-12)
    inputs = (u, v, weight) if bias is None else (u, v, weight, bias)
    assert torch.autograd.gradcheck(lambda u, v, *linear: sbert_nli(u, v, labels, *linear, features=names), inputs)


def test_equal_vectors_have_no_gradient_through_their_difference():
    """The derivative of |x| at 0 is taken as 0."""
    u, weight = random(3, 4, grad=True), random(2, 4)
    labels = torch.tensor([0, 1, 1])
    sbert_nli(u, u.detach().clone(), labels, weight, features=("difference",)).backward()
    assert not u.grad.any()


def test_without_weights_the_cross_entropy_is_that_of_equal_chances():
    u, v, labels = random(4, 3), random(4, 3, seed=1), torch.tensor([0, 1, 2, 2])
    value = sbert_nli(u, v, labels, torch.zeros(3, 9, dtype=torch.float64))
    assert value.item() == pytest.approx(math.log(3), abs=1e-12)


def test_nothing_to_learn_from_is_zero_with_a_gradient():
    none = torch.empty(0, dtype=torch.long)
    weight, keys = random(7, 4, grad=True), random(3, 4, grad=True)
    losses = [
        masked_lm(random(0, 4) @ weight.T, none),
        sbert_nli(random(0, 2), random(0, 2), none, random(3, 6, grad=True)),
        info_nce(random(0, 4), keys, negatives=[keys]),
    ]
    for loss in losses:
        assert loss.item() == 0
        loss.backward()
    assert torch.equal(weight.grad, torch.zeros_like(weight)) and torch.equal(keys.grad, torch.zeros_like(keys))


def test_rows_of_other_numbers_are_refused():
    tokens, vectors = torch.ones(3, 4, 8), torch.ones(3, 8)
    for real, sentences in ((torch.ones(2, 4), vectors), (torch.ones(3, 4), vectors[:1]), (torch.ones(3, 5), vectors)):
        with pytest.raises(ValueError, match=r"^tokens must be \(n, L, d\)"):
            losses.isbert(tokens, real, sentences)
    with pytest.raises(ValueError, match="of the same n and d"):
        losses.ct(vectors, vectors[:1], torch.ones(3))
