"""The projector with batch normalisation against its equation, in float64."""

from __future__ import annotations

import math

import pytest
import torch

from stsbench.errors import StsbenchError
from stsbench.training.modules.projector import BatchNormProjector


def random(*shape, seed=0, grad=False):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_(grad)


def projected(x, w, training):
    """(vectors, the mean and variance of each of the two norms): these rows' own in training, else those kept."""
    norms = []
    for layer, norm in (("inner", "inner_norm"), ("outer", "outer_norm")):
        x = x @ w[f"{layer}.weight"].T
        kept = w[f"{norm}.running_mean"], w[f"{norm}.running_var"]
        norms.append((x.mean(0), x.var(0, correction=0)) if training else kept)
        x = (x - norms[-1][0]) / (norms[-1][1] + 1e-5).sqrt()
        x = (x * w["inner_norm.weight"] + w["inner_norm.bias"]).clamp(min=0) if layer == "inner" else x
    return x, norms


def projector(width=4, out=3, std=0.5):
    torch.manual_seed(4)
    module = BatchNormProjector(width, out, std).double()
    with torch.no_grad():  # 1 and 0 would hide a forgotten one
        module.inner_norm.weight.normal_(1, 0.3)
        module.inner_norm.bias.normal_(0, 0.3)
    return module


@torch.no_grad()
def test_the_projector_is_the_equation_in_training_and_in_evaluation():
    module, x = projector().train(), random(6, 4, seed=3)
    expected, norms = projected(x, {name: value.clone() for name, value in module.state_dict().items()}, training=True)
    out, after = module(x), module.state_dict()
    assert (out - expected).abs().max() < 1e-10
    for name, (mean, variance) in zip(("inner_norm", "outer_norm"), norms, strict=True):
        assert (after[f"{name}.running_mean"] - 0.1 * mean).abs().max() < 1e-10
        assert (after[f"{name}.running_var"] - 0.9 - 0.1 * variance * 6 / 5).abs().max() < 1e-10  # unbiased
    expected, _ = projected(x, after, training=False)
    module.eval()
    assert (module(x) - expected).abs().max() < 1e-10 and (module(x[:1]) - expected[:1]).abs().max() < 1e-10
    assert (expected - out).abs().max() > 0.1


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
