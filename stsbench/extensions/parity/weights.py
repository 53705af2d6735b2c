"""Other weights for the same model: rounded to fewer bits, without its adapter."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from stsbench.encoders.forward.model import cast

ROUNDED = ("bfloat16", "float16")
NO_ADAPTER = "no adapter"


@dataclass(frozen=True)
class Int8:
    """A scheme of int8: a scale for each row of a weight or for the whole of it; whether embeddings are rounded; and to how
    many bits what goes into a linear layer is, 0 for not at all (dynamic quantisation: torch has 7, ONNX Runtime 8)."""

    by_row: bool
    bits: int = 0
    embeddings: bool = False

    @property
    def words(self) -> str:
        """For people."""
        layers = "linear layers and embeddings" if self.embeddings else "linear layers"
        dynamic = f", {self.bits} bits of what goes into a layer" if self.bits else ""
        return f"int8 weights of the {layers}, a scale for each {'row' if self.by_row else 'tensor'}{dynamic}"


INT8 = {scheme.words: scheme for scheme in (
    Int8(False), Int8(True), Int8(False, 7), Int8(True, 7), Int8(False, 8, embeddings=True), Int8(True, 8),
)}


def changed(model: Any, how: str) -> Any:
    """A copy of a transformers model with other weights: how is one of ROUNDED, INT8 or NO_ADAPTER."""
    import torch

    other = copy.deepcopy(model)
    if how in ROUNDED:
        return cast(other, getattr(torch, how))
    return _without_adapters(other) if how == NO_ADAPTER else _in_int8(other, INT8[how])


def _without_adapters(model: Any) -> Any:
    from peft.tuners.tuners_utils import BaseTunerLayer

    for part in model.modules():
        if isinstance(part, BaseTunerLayer):
            part.enable_adapters(enabled=False)
    return model


def _in_int8(model: Any, scheme: Int8) -> Any:
    import torch

    for part in model.modules():
        if isinstance(part, torch.nn.Linear) or (scheme.embeddings and isinstance(part, torch.nn.Embedding)):
            part.weight.data = rounded(part.weight.data, by_row=scheme.by_row)
        if scheme.bits and isinstance(part, torch.nn.Linear):
            part.register_forward_pre_hook(lambda part, values: (_steps(values[0], 2**scheme.bits - 1), *values[1:]))
    return model


def _steps(values: Any, count: int) -> Any:
    """What goes into a layer, (n, ...), in steps between the least and the largest number of each text, 0 being one."""
    flat = values.flatten(1)
    low, high = flat.amin(1).clamp(max=0), flat.amax(1).clamp(min=0)
    size = ((high - low) / count).clamp_min(1e-12).view(-1, *[1] * (values.dim() - 1))
    return (values / size).round() * size


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
