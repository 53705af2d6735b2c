"""What DiffAug's authors watch during stage 1: how far the views part, and how large the prefix is beside the text."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from stsbench.training.modules.backbone import Backbone
from stsbench.training.modules.soft_prompt import SoftPrompt

from .modules import ViewModules


def divergence(first: Tensor, second: Tensor) -> tuple[float, float]:
    """The mean over n texts of ||f(x) - f(x+)||_2, of the vectors as they are and of length 1. first, second: (n, d).

    Wang and Lu (2022), DiffAug, section 5.2: representation divergence, not squared.
    """
    raw = (first - second).norm(dim=1).mean()
    normalised = (functional.normalize(first, dim=1) - functional.normalize(second, dim=1)).norm(dim=1).mean()
    return float(raw), float(normalised)


def convergence(backbone: Backbone, modules: ViewModules, ids: Tensor, mask: Tensor, which: Tensor) -> float:
    """kappa = 1 / 2M sum over layers of (mean row norm of the text's keys - that of the prefix's) and the same of values.

    Rows are (d,), all heads side by side; the text's: of every real token of the n rows ids (n, L), each under the prefix of
    its set `which` (n,). Signed. Wang and Lu (2022), DiffAug, section 5.2: weight convergence.
    """
    assert modules.prefix is not None
    layers = backbone.model.encoder.layer
    visible = modules.visible(which)
    prefix = modules.prefix(visible)
    states = backbone(ids, mask, tuple(range(len(layers))), SoftPrompt(prefix=prefix))
    real, total = mask.bool(), 0.0
    for number, (layer, state) in enumerate(zip(layers, states, strict=True)):
        attention = layer.attention.self
        for linear, slots in ((attention.key, prefix.keys), (attention.value, prefix.values)):
            of_text = linear(state[real]).norm(dim=1).mean()
            total += float(of_text - slots[number][visible].norm(dim=1).mean())
    return total / (2 * len(layers))


def by_dropout(backbone: Backbone, ids: Tensor, mask: Tensor, indices: Tensor) -> tuple[float, float]:
    """`divergence` of two passes that differ by dropout alone, without prefix: the reference. Modes are put back."""
    training = backbone.training
    backbone.train()
    try:
        first, second = backbone.at(ids.repeat(2, 1), mask.repeat(2, 1), indices.repeat(2)).split(len(ids))
        return divergence(first, second)
    finally:
        backbone.train(training)
