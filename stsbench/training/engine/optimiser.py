"""AdamW and its learning rate over the steps, as in the papers' trainers (Loshchilov and Hutter 2019)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import nn

from stsbench.training.recipes.recipe import TrainingSettings


def make_optimiser(
    module: nn.Module, settings: TrainingSettings, rates: Mapping[str, float] | None = None
) -> torch.optim.AdamW:
    """AdamW over the trainable weights; no weight decay on biases and normalisation weights. Fused where torch can.

    rates: prefix of parameter names -> multiple of the learning rate, which `set_rate` applies.
    """
    groups: dict[tuple[float, bool], list[nn.Parameter]] = {}
    for name, weight in module.named_parameters():
        if weight.requires_grad:
            plain = weight.ndim < 2 or name.endswith("bias") or "LayerNorm" in name
            factor = next((value for prefix, value in (rates or {}).items() if name.startswith(prefix)), 1.0)
            groups.setdefault((factor, plain), []).append(weight)
    weights = [weight for group in groups.values() for weight in group]
    fused = bool(weights) and all(weight.device.type in ("cpu", "cuda") for weight in weights)
    parameters = [
        {"params": group, "weight_decay": 0.0 if plain else settings.weight_decay, "factor": factor}
        for (factor, plain), group in sorted(groups.items(), key=lambda item: item[0])
    ]
    return torch.optim.AdamW(parameters, lr=settings.learning_rate, betas=settings.betas, eps=settings.epsilon, fused=fused)


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Give every group of weights its multiple of `rate`."""
    for group in optimiser.param_groups:
        group["lr"] = rate * group.get("factor", 1.0)


def learning_rate(step: int, steps: int, settings: TrainingSettings) -> float:
    """The rate of step `step` (from 0) of `steps`: up from 0 over the warm-up, then down to 0 or constant."""
    warmup = settings.warmup if settings.warmup >= 1 or not settings.warmup else math.ceil(settings.warmup * steps)
    if step < warmup:
        return settings.learning_rate * step / warmup
    if settings.schedule == "constant":
        return settings.learning_rate
    return settings.learning_rate * (steps - step) / max(1, steps - warmup)
