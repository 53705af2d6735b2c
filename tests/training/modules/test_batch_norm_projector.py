"""The projector with batch normalisation against loops over single numbers, in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from stsbench.errors import StsbenchError
from stsbench.training.modules.projector import BatchNormProjector


def random(*shape, seed=0, grad=False):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_(grad)


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
