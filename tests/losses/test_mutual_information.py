"""What a sentence's vector shares with its tokens (IS-BERT) and its layers (SG-OPT), in loops."""

from __future__ import annotations

import math

import pytest
import torch

from stsbench import losses
from stsbench.losses.group import jensen_shannon


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).requires_grad_()


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
    value, expected = losses.sgopt(c, h, temperature=t), sum(values) / 12
    assert value.item() == pytest.approx(expected.item(), abs=1e-12)
    for ours, theirs in zip(*(torch.autograd.grad(loss, (c, h)) for loss in (value, expected)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)
    part = losses.sgopt(c[2:], h[2:], temperature=t, all_layers=h, start=2)
    assert part.item() == pytest.approx(sum(value.item() for value in values[6:]) / 6, abs=1e-12)
    single = losses.sgopt(c[3:], h[3:, :1], temperature=t, all_layers=h[:, :1], start=3)
    others = sum(e(c[3], h[m, 0]) for m in range(3))
    assert single.item() == pytest.approx(-torch.log(e(c[3], h[3, 0]) / (e(c[3], h[3, 0]) + others)).item(), abs=1e-12)
