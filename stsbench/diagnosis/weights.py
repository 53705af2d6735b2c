"""Other weights for the same model: rounded to fewer bits, without its adapter."""

from __future__ import annotations

import copy
from typing import Any

from stsbench.encoders.forward.checkpoint import cast

ROUNDED = ("bfloat16", "float16")
# Schemes of int8 weights, none of whose activations are rounded here: what is rounded, and what shares a scale.
INT8 = {
    "int8 tensor": ("linear layers", "tensor"), "int8 row": ("linear layers", "row"),
    "int8 tensor, embeddings": ("linear layers and embeddings", "tensor"),
    "int8 row, embeddings": ("linear layers and embeddings", "row"),
}
NO_ADAPTER = "no adapter"


def changed(model: Any, how: str) -> Any:
    """A copy of a transformers model with other weights: how is one of ROUNDED, INT8 or NO_ADAPTER."""
    import torch

    other = copy.deepcopy(model)
    if how in ROUNDED:
        return cast(other, getattr(torch, how))
    if how == NO_ADAPTER:
        other.disable_adapters()
        return other
    kinds, scale = INT8[how]
    layers: tuple[type, ...] = (torch.nn.Linear, torch.nn.Embedding) if "embeddings" in kinds else (torch.nn.Linear,)
    for part in other.modules():
        if isinstance(part, layers):
            part.weight.data = rounded(part.weight.data, by_row=scale == "row")
    return other


def rounded(weight: Any, *, by_row: bool) -> Any:
    """Weights (out, in) as 255 steps between minus and plus the largest of them, of all or of a row: symmetric int8."""
    largest = weight.abs().amax(dim=1, keepdim=True) if by_row else weight.abs().amax()
    step = largest.clamp_min(1e-12) / 127
    return (weight / step).round() * step


def has_adapter(model: Any) -> bool:
    """Whether transformers has loaded an adapter of PEFT into it."""
    return bool(getattr(model, "_hf_peft_config_loaded", False))


def moved(model: Any, other: Any) -> tuple[int, int, float]:
    """(tensors that differ, tensors, the largest difference) of two models of one shape; ValueError: of others."""
    one, two = model.state_dict(), other.state_dict()
    if one.keys() != two.keys() or any(one[key].shape != two[key].shape for key in one):
        raise ValueError("the two models have other weights in number or shape")
    gaps = [float((one[key].float() - two[key].float().to(one[key].device)).abs().max()) if one[key].numel() else 0.0
            for key in one]
    return sum(gap > 0 for gap in gaps), len(gaps), max(gaps, default=0.0)
