"""Replaced-token detection and the projector against loops over single numbers, in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stsbench.errors import StsbenchError
from stsbench.losses.tokens import detections, replaced_tokens
from stsbench.training.modules.projector import BatchNormProjector


def random(*shape, seed=0, grad=False):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_(grad)


def places(rows=3, length=5, seed=0):
    """Logits, labels, and which places count: some rows shorter than the batch, one place of a row left out."""
    labels = (random(rows, length, seed=seed + 1) > 0).long()
    counted = torch.arange(length).expand(rows, length) < torch.tensor([length - row for row in range(rows)]).unsqueeze(1)
    counted[0, 1] = False
    return random(rows, length, 2, seed=seed, grad=True) * 3, labels, counted


# --- the loss ---


def naive_loss(logits, labels, counted):
    """-[1(original) log D + 1(replaced) log(1 - D)], the paper's sum over tokens, over the number of counted tokens."""
    total, number = logits.sum() * 0, 0
    for row in range(len(logits)):
        for place in range(logits.shape[1]):
            if counted[row, place]:
                original, replaced = logits[row, place]
                d = 1 / (1 + torch.exp(replaced - original))
                total = total - torch.log(1 - d if labels[row, place] else d)
                number += 1
    return total / max(number, 1)


@pytest.mark.parametrize("everything", [False, True])
def test_the_loss_is_the_loop(everything):
    logits, labels, counted = places()
    counted |= everything
    value, expected = replaced_tokens(logits, labels, counted), naive_loss(logits, labels, counted)
    assert value.item() == pytest.approx(expected.item(), abs=1e-12)
    ours, theirs = (torch.autograd.grad(loss, logits)[0] for loss in (value, expected))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    assert everything or not ours[~counted].any()


def test_a_loss_worked_by_hand():
    logits = torch.tensor([[[math.log(3), 0.0], [0.0, 0.0], [9.0, -9.0]]], dtype=torch.float64)
    labels, counted = torch.tensor([[1, 0, 1]]), torch.tensor([[True, True, False]])
    assert replaced_tokens(logits, labels, counted).item() == pytest.approx((math.log(4) + math.log(2)) / 2)


def test_padding_that_counts_changes_the_loss_and_padding_that_does_not_changes_nothing():
    logits, labels, counted = places()
    longer = torch.cat([logits, random(3, 2, 2, seed=9)], 1), torch.nn.functional.pad(labels, (0, 2))
    value = replaced_tokens(logits, labels, counted)
    assert torch.equal(replaced_tokens(*longer, torch.nn.functional.pad(counted, (0, 2))), value)
    everywhere = torch.ones_like(labels).bool(), torch.ones_like(longer[1]).bool()
    assert replaced_tokens(logits, labels, everywhere[0]) != replaced_tokens(*longer, everywhere[1])


def test_the_loss_against_finite_differences():
    logits, labels, counted = places()
    assert torch.autograd.gradcheck(lambda x: replaced_tokens(x, labels, counted), (logits.detach().requires_grad_(),))


def test_no_counted_place_is_0_with_a_gradient():
    logits, labels, counted = places()
    value = replaced_tokens(logits, labels, counted & False)
    assert value.item() == 0
    assert not torch.autograd.grad(value, logits)[0].any()


def test_half_precision_logits_are_summed_in_float32():
    logits, labels, counted = places(rows=4, length=400)
    half = logits.detach().to(torch.bfloat16)
    value = replaced_tokens(half, labels, counted)
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(naive_loss(half.double(), labels, counted).item(), rel=1e-6)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), parts=st.integers(1, 3))
def test_means_by_their_counts_add_up_to_the_mean_of_the_whole(seed, parts):
    logits, labels, counted = places(rows=4, seed=seed)
    blocks = [(logits[i::parts], labels[i::parts], counted[i::parts]) for i in range(parts)]
    total = sum(replaced_tokens(*block) * int(block[2].sum()) for block in blocks)
    assert (total / int(counted.sum())).item() == pytest.approx(replaced_tokens(logits, labels, counted).item())


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000))
def test_detections_are_counted_one_by_one(seed):
    logits, labels, real = places(rows=4, seed=seed)
    logits = logits.round().detach()  # equal logits occur
    expected = [0, 0, 0, 0]
    for score, label, is_real in zip(logits.view(-1, 2).tolist(), labels.flatten(), real.flatten(), strict=True):
        if is_real:
            says_replaced = score[1] > score[0]
            at = 0 if label else 2
            expected[at] += says_replaced == bool(label)
            expected[at + 1] += 1
    found = detections(logits, labels, real)
    assert found.dtype == torch.int64 and found.tolist() == expected
    assert detections(logits[real], labels[real], real[real]).tolist() == expected


# --- the projector ---


def numbers(module):
    return {name: value.detach().numpy() for name, value in module.state_dict().items()}


def naive_norm(x, mean, variance, scale=None, shift=None):
    out = np.empty_like(x)
    for row in range(len(x)):
        for k in range(x.shape[1]):
            out[row, k] = (x[row, k] - mean[k]) / math.sqrt(variance[k] + 1e-5)
            if scale is not None:
                out[row, k] = out[row, k] * scale[k] + shift[k]
    return out


def statistics(x):
    mean = [sum(column) / len(column) for column in x.T]
    return mean, [sum((value - m) ** 2 for value in column) / len(column) for column, m in zip(x.T, mean, strict=True)]


def naive_product(x, weight):
    return np.array([[sum(a * b for a, b in zip(row, line, strict=True)) for line in weight] for row in x])


def naive_projector(x, w, training):
    """The outputs, and the statistics of both norms."""
    inner = naive_product(x, w["inner.weight"])
    first = statistics(inner) if training else (w["inner_norm.running_mean"], w["inner_norm.running_var"])
    inner = naive_norm(inner, *first, w["inner_norm.weight"], w["inner_norm.bias"])
    outer = naive_product(np.maximum(inner, 0), w["outer.weight"])
    second = statistics(outer) if training else (w["outer_norm.running_mean"], w["outer_norm.running_var"])
    return naive_norm(outer, *second), first, second


def projector(width=4, out=3, std=0.5):
    torch.manual_seed(4)
    module = BatchNormProjector(width, out, std).double()
    with torch.no_grad():  # 1 and 0 would hide a forgotten one
        module.inner_norm.weight.normal_(1, 0.3)
        module.inner_norm.bias.normal_(0, 0.3)
    return module


def test_the_projector_is_the_loops_in_training_and_in_evaluation():
    module, x = projector().train(), random(6, 4, seed=3)
    before = numbers(module)
    before = {name: value.copy() for name, value in before.items()}
    expected, *found = naive_projector(x.numpy(), before, training=True)
    out = module(x)
    np.testing.assert_allclose(out.detach().numpy(), expected, atol=1e-10)
    after = numbers(module)
    for name, (mean, variance) in zip(("inner_norm", "outer_norm"), found, strict=True):
        np.testing.assert_allclose(after[f"{name}.running_mean"], 0.1 * np.array(mean), atol=1e-10)
        unbiased = np.array(variance) * 6 / 5
        np.testing.assert_allclose(after[f"{name}.running_var"], 0.9 + 0.1 * unbiased, atol=1e-10)
    module.eval()
    expected, *_ = naive_projector(x.numpy(), after, training=False)
    np.testing.assert_allclose(module(x).detach().numpy(), expected, atol=1e-10)
    np.testing.assert_allclose(module(x[:1]).detach().numpy(), expected[:1], atol=1e-10)
    assert np.abs(expected - out.detach().numpy()).max() > 0.1


def test_the_projectors_gradient_against_finite_differences():
    module = projector().train()
    assert torch.autograd.gradcheck(module, (random(5, 4, seed=3, grad=True),))
    module(random(5, 4, seed=3)).pow(3).sum().backward()
    assert {name for name, weight in module.named_parameters() if weight.grad.abs().max() > 1e-6} == {
        "inner.weight", "outer.weight", "inner_norm.weight", "inner_norm.bias",
    }


def test_the_projectors_sizes_and_start():
    torch.manual_seed(0)
    module = BatchNormProjector(96, 64, 0.02)
    assert module.inner.weight.shape == (192, 96) and module.outer.weight.shape == (64, 192)
    assert module.inner.bias is None and module.outer.bias is None
    assert module.outer_norm.weight is None and module.outer_norm.bias is None
    assert (module.inner_norm.weight == 1).all() and (module.inner_norm.bias == 0).all()
    for linear in (module.inner, module.outer):
        count = linear.weight.numel()
        assert abs(linear.weight.mean().item()) < 4.5 * 0.02 / math.sqrt(count)
        assert abs(linear.weight.std().item() / 0.02 - 1) < 4.5 / math.sqrt(2 * count)


def test_views_are_normalised_together_and_every_output_has_mean_0():
    module, x = projector().train(), random(8, 4, seed=5)
    together = module(x)
    separate = torch.cat([module(x[:4]), module(x[4:])])
    assert (together - separate).abs().max().item() > 0.1
    assert together.mean(0).abs().max().item() < 1e-10


def test_a_single_row_is_refused_in_training_only():
    module = projector().train()
    with pytest.raises(StsbenchError, match=r"^batch normalisation needs 2 vectors .* raise training.batch_size$"):
        module(random(1, 4))
    assert module.eval()(random(1, 4)).shape == (1, 3)


def test_under_autocast_the_projector_computes_in_float32():
    module = projector(16, 16, 0.3).float().train()
    x = (random(64, 16, seed=7) + 100).float()  # in bfloat16 the deviations would be lost in the mean
    expected = module(x)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.nn.functional.linear(x, module.inner.weight).dtype == torch.bfloat16
        found = module(x)
        assert module(x.to(torch.bfloat16)).dtype == torch.float32
    assert found.dtype == torch.float32 and torch.equal(found, expected)
