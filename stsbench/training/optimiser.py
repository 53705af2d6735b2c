"""AdamW and its learning rate over the steps, as in the papers' trainers (Loshchilov and Hutter 2019)."""

from __future__ import annotations

import math

import torch
from torch import nn

from stsbench.training.recipe import TrainingSettings


def make_optimiser(module: nn.Module, settings: TrainingSettings) -> torch.optim.AdamW:
    """AdamW over the trainable weights; no weight decay on biases and normalisation weights. Fused where torch can."""
    decayed: list[nn.Parameter] = []
    free: list[nn.Parameter] = []
    for name, weight in module.named_parameters():
        if weight.requires_grad:
            plain = weight.ndim < 2 or name.endswith("bias") or "LayerNorm" in name
            (free if plain else decayed).append(weight)
    groups = [{"params": decayed, "weight_decay": settings.weight_decay}, {"params": free, "weight_decay": 0.0}]
    weights = [*decayed, *free]
    fused = bool(weights) and all(weight.device.type in ("cpu", "cuda") for weight in weights)
    return torch.optim.AdamW(
        [group for group in groups if group["params"]], lr=settings.learning_rate, betas=settings.betas,
        eps=settings.epsilon, fused=fused,
    )  # fmt: skip


def learning_rate(step: int, steps: int, settings: TrainingSettings) -> float:
    """The rate of step `step` (from 0) of `steps`: up from 0 over the warm-up, then down to 0 or constant."""
    warmup = settings.warmup if settings.warmup >= 1 or not settings.warmup else math.ceil(settings.warmup * steps)
    if step < warmup:
        return settings.learning_rate * step / warmup
    if settings.schedule == "constant":
        return settings.learning_rate
    return settings.learning_rate * (steps - step) / max(1, steps - warmup)
