"""The corrective language model's two terms against a loop over probabilities, their gradients against differences."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stsbench.losses.tokens import corrective_lm


def example(count, vocabulary=7, seed=0, dtype=torch.float64, share=0.5):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(count, vocabulary, generator=generator, dtype=dtype)
    gate = 3 * torch.randn(count, generator=generator, dtype=dtype)
    seen, original = (torch.randint(0, vocabulary, (count,), generator=generator) for _ in range(2))
    copied = torch.rand(count, generator=generator) < share
    return logits, gate, torch.where(copied, original, seen), original


def naive(logits, gate, seen, original):
    words, copies = [], []
    for scores, raw, there, wanted in zip(logits.tolist(), gate.tolist(), seen.tolist(), original.tolist(), strict=True):
        g = 1 / (1 + math.exp(-raw))
        softmax = math.exp(scores[wanted]) / sum(math.exp(score) for score in scores)
        words.append(-math.log((g if there == wanted else 0.0) + (1 - g) * softmax))
        copies.append(-math.log(g if there == wanted else 1 - g))
    return sum(words) / len(words), sum(copies) / len(copies)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 12), st.integers(2, 9), st.integers(0, 1000), st.sampled_from([0.0, 0.5, 1.0]))
def test_against_a_loop(count, vocabulary, seed, share):
    data = example(count, vocabulary, seed, share=share)
    assert [term.item() for term in corrective_lm(*data)] == pytest.approx(naive(*data), rel=1e-9, abs=1e-12)


def test_gradients():
    logits, gate, seen, original = example(9)
    assert 0 < int((seen == original).sum()) < 9
    logits.requires_grad_(), gate.requires_grad_()
    assert torch.autograd.gradcheck(lambda scores: corrective_lm(scores, gate, seen, original)[0], (logits,))
    assert torch.autograd.gradcheck(lambda raw: corrective_lm(logits, raw, seen, original)[1], (gate,))
    # the gate is a constant to the first term, and the words have no part in the second
    word, copy = corrective_lm(logits, gate, seen, original)
    assert torch.autograd.grad(word, gate, allow_unused=True, retain_graph=True) == (None,)
    assert torch.autograd.grad(copy, logits, allow_unused=True) == (None,)


@pytest.mark.parametrize("sure", [100.0, -100.0, 1e4, -1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gate_that_is_sure(sure, dtype):
    logits, _, seen, original = example(8, dtype=dtype)
    gate = torch.full((8,), sure, dtype=dtype, requires_grad=True)
    logits.requires_grad_()
    word, copy = corrective_lm(logits, gate, seen, original)
    (word + copy).backward()
    assert all(bool(grad.isfinite().all()) for grad in (logits.grad, gate.grad))
    same = (seen == original).tolist()
    chances = [math.log(p) for p in logits.detach().double().softmax(1)[torch.arange(8), original].tolist()]
    # log g = -max(-sure, 0) and log(1 - g) = -max(sure, 0), up to e^-100
    words = [max(min(sure, 0), -max(sure, 0) + chance) if s else -max(sure, 0) + chance
             for s, chance in zip(same, chances, strict=True)]
    copies = [min(sure, 0) if s else -max(sure, 0) for s in same]
    assert word.item() == pytest.approx(-sum(words) / 8, rel=1e-6)
    assert copy.item() == pytest.approx(-sum(copies) / 8, rel=1e-6, abs=1e-30)


def test_no_position_and_a_gradient():
    logits, gate, seen, original = example(0)
    logits.requires_grad_(), gate.requires_grad_()
    word, copy = corrective_lm(logits, gate, seen, original)
    assert word.item() == copy.item() == 0
    (word + copy).backward()
    assert logits.grad.shape == (0, 7) and gate.grad.shape == (0,)


def test_float32_under_autocast():
    logits, gate, seen, original = example(64, vocabulary=50, dtype=torch.bfloat16)
    expected = corrective_lm(logits.float(), gate.float(), seen, original)
    with torch.autocast("cpu", torch.bfloat16):
        found = corrective_lm(logits, gate, seen, original)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == torch.float32 and torch.equal(one, other)
