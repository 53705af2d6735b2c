"""Losses of tokens against loops over single numbers, in float64: guessed, corrected, found to be replaced, rebuilt."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stsbench.losses import tokens as losses


def random(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def test_masked_lm_is_the_loop_and_its_accuracy_is_counted():
    logits, labels = random(6, 9).requires_grad_(), torch.tensor([0, 8, 3, 3, 1, 5])
    rows = zip(logits.tolist(), labels.tolist(), strict=True)
    expected = sum(math.log(sum(map(math.exp, row))) - row[label] for row, label in rows) / 6
    assert losses.masked_lm(logits, labels).item() == pytest.approx(expected, rel=1e-12)
    assert torch.autograd.gradcheck(lambda x: losses.masked_lm(x, labels), (logits,))
    guesses = torch.tensor([1, 1])
    losses.count_guesses(guesses, torch.tensor([[0.0, 2, 1], [5, 1, 1], [0, 0, 1]]), torch.tensor([1, 2, 2]))
    assert guesses.tolist() == [3, 4]


def positions(count, vocabulary=7, seed=0, dtype=torch.float64, share=0.5):
    """Logits, gate, what is read, and what stood there; `share` of the positions are as they were."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(count, vocabulary, generator=generator, dtype=dtype)
    gate = 3 * torch.randn(count, generator=generator, dtype=dtype)
    read, original = (torch.randint(0, vocabulary, (count,), generator=generator) for _ in range(2))
    return logits, gate, torch.where(torch.rand(count, generator=generator) < share, original, read), original


def naive_corrective(logits, gate, read, original):
    words, copies = [], []
    for scores, raw, token, right in zip(logits.tolist(), gate.tolist(), read.tolist(), original.tolist(), strict=True):
        g = 1 / (1 + math.exp(-raw))
        softmax = math.exp(scores[right]) / sum(math.exp(score) for score in scores)
        words.append(-math.log((g if token == right else 0.0) + (1 - g) * softmax))
        copies.append(-math.log(g if token == right else 1 - g))
    return sum(words) / len(words), sum(copies) / len(copies)


@settings(max_examples=30)
@given(st.integers(1, 12), st.integers(2, 9), st.integers(0, 1000), st.sampled_from([0.0, 0.5, 1.0]))
def test_corrective_terms_are_the_loop(count, vocabulary, seed, share):
    data = positions(count, vocabulary, seed, share=share)
    actual = [term.item() for term in losses.corrective_lm(*data)]
    assert actual == pytest.approx(naive_corrective(*data), rel=1e-9, abs=1e-12)


def test_each_corrective_term_has_a_gradient_of_its_own():
    """The gate is a constant to the first term, and the words have no part in the second."""
    logits, gate, read, original = positions(9)
    assert 0 < int((read == original).sum()) < 9
    logits.requires_grad_(), gate.requires_grad_()
    assert torch.autograd.gradcheck(lambda scores: losses.corrective_lm(scores, gate, read, original)[0], (logits,))
    assert torch.autograd.gradcheck(lambda raw: losses.corrective_lm(logits, raw, read, original)[1], (gate,))
    word, copy = losses.corrective_lm(logits, gate, read, original)
    assert torch.autograd.grad(word, gate, allow_unused=True, retain_graph=True) == (None,)
    assert torch.autograd.grad(copy, logits, allow_unused=True) == (None,)


@pytest.mark.parametrize("sure", [100.0, -100.0])
def test_a_gate_that_is_sure_costs_no_infinity(sure):
    logits, _, read, original = positions(8, dtype=torch.float32)
    gate = torch.full((8,), sure, requires_grad=True)
    logits.requires_grad_()
    word, copy = losses.corrective_lm(logits, gate, read, original)
    (word + copy).backward()
    assert all(bool(grad.isfinite().all()) for grad in (logits.grad, gate.grad))
    same = (read == original).tolist()
    chances = logits.detach().double().log_softmax(1)[torch.arange(8), original].tolist()
    # log g = -max(-sure, 0) and log(1 - g) = -max(sure, 0), up to e^-100
    words = [max(min(sure, 0), -max(sure, 0) + chance) if is_same else -max(sure, 0) + chance
             for is_same, chance in zip(same, chances, strict=True)]
    copies = [min(sure, 0) if is_same else -max(sure, 0) for is_same in same]
    assert word.item() == pytest.approx(-sum(words) / 8, rel=1e-6)
    assert copy.item() == pytest.approx(-sum(copies) / 8, rel=1e-6, abs=1e-30)


def places(rows=3, length=5, seed=0):
    """Logits, labels, and which places count: some rows shorter than the batch, one place of a row left out."""
    labels = (random(rows, length, seed=seed + 1) > 0).long()
    counted = torch.arange(length).expand(rows, length) < torch.tensor([length - row for row in range(rows)]).unsqueeze(1)
    counted[0, 1] = False
    return (random(rows, length, 2, seed=seed) * 3).requires_grad_(), labels, counted


@pytest.mark.parametrize("everything", [False, True])
def test_the_detector_s_loss_is_the_loop(everything):
    """-[1(original) log D + 1(replaced) log(1 - D)], the paper's sum over tokens, over the number of counted tokens."""
    logits, labels, counted = places()
    counted |= everything
    values = []
    for row, place in counted.nonzero().tolist():
        original, replaced = logits[row, place]
        d = 1 / (1 + torch.exp(replaced - original))
        values.append(-torch.log(1 - d if labels[row, place] else d))
    value, expected = losses.replaced_tokens(logits, labels, counted), sum(values) / len(values)
    assert value.item() == pytest.approx(expected.item(), abs=1e-12)
    ours, theirs = (torch.autograd.grad(loss, logits)[0] for loss in (value, expected))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    assert everything or not ours[~counted].any()


@settings(max_examples=20)
@given(seed=st.integers(0, 1000))
def test_detections_are_counted_one_by_one(seed):
    logits, labels, real = places(rows=4, seed=seed)
    logits = logits.round().detach()  # equal logits occur
    expected = [0, 0, 0, 0]
    for row, place in real.nonzero().tolist():
        original, replaced = logits[row, place].tolist()
        at = 0 if labels[row, place] else 2
        expected[at] += (replaced > original) == bool(labels[row, place])
        expected[at + 1] += 1
    counts = losses.detections(logits, labels, real)
    assert counts.dtype == torch.int64 and counts.tolist() == expected
    assert losses.detections(logits[real], labels[real], real[real]).tolist() == expected


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_tokens_are_rebuilt_as_the_loop_has_it(reduction):
    rebuilt, tokens = random(3, 4, 5).requires_grad_(), random(3, 4, 5, seed=1).requires_grad_()
    weights, lengths = random(3, 4, seed=2).abs(), [4, 2, 0]
    real = torch.arange(4) < torch.tensor(lengths).unsqueeze(1)
    texts = []
    for row, length in enumerate(lengths):
        squares = [weights[row, i] * sum((rebuilt[row, i] - tokens[row, i]) ** 2) for i in range(length)]
        texts.append(sum(squares) / max(length, 1) / (5 if reduction == "mean" else 1))
    value, expected = losses.reconstruction(losses.token_errors(rebuilt, tokens, reduction), weights, real), sum(texts) / 3
    assert value.item() == pytest.approx(expected.item(), abs=1e-12)
    for ours, theirs in zip(*(torch.autograd.grad(loss, (rebuilt, tokens)) for loss in (value, expected)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    with torch.autocast("cpu", torch.bfloat16):
        assert losses.token_errors(rebuilt.bfloat16(), tokens.bfloat16(), reduction).dtype == torch.float32


def test_a_token_s_weight_falls_with_its_share_of_all_tokens():
    counts = np.array([0, 1, 10, 89])
    assert losses.token_weights(counts, 0.2, 5.0).tolist() == pytest.approx([1, 0.95, 0.5, 0.2])
    assert losses.token_weights(counts).tolist() == pytest.approx([1, 0.5, 0.1, 0.1])
    assert losses.token_weights(0 * counts).tolist() == [1] * 4
