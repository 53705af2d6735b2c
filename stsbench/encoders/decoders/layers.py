"""Where in a transformers decoder the layers are, and in a layer the attention's output projection."""

from __future__ import annotations

from typing import Any

from torch import nn

from stsbench.errors import EncoderError

_PROJECTIONS = ("o_proj", "out_proj", "c_proj", "dense")  # Llama's kin, OPT, GPT-2, GPT-NeoX
_ATTENTION = ("attn", "attention")


def layer_count(model: Any) -> int:
    """How many layers a model states that it has."""
    return int(model.config.num_hidden_layers)


def check_layer(layer: int, model: Any, name: str, option: str = "--layer") -> None:
    """EncoderError where `layer` is no index of hidden_states, which has the embeddings and one entry a layer."""
    layers = layer_count(model)
    if not -layers - 1 <= layer <= layers:
        known = f"so 0 (the embeddings) to {layers}, or -1 to -{layers + 1}"
        raise EncoderError(f"{option} {layer}: {name} has {layers} layers, {known}")


def layers_of(model: nn.Module, name: str) -> list[nn.Module]:
    """The layers in order. EncoderError: none are found."""
    count = layer_count(model)
    for part in model.modules():
        if isinstance(part, nn.ModuleList) and len(part) == count:
            return list(part)
    raise EncoderError(f"{name}: a {type(model).__name__} has no list of {count} layers, which the preset changes")


def output_projection(layer: nn.Module, name: str) -> nn.Module:
    """The projection of all heads' outputs in a layer's attention. EncoderError: none is found."""
    part: nn.Module
    for path, part in layer.named_modules():
        parent, _, leaf = path.rpartition(".")
        if leaf in _PROJECTIONS and any(word in parent for word in _ATTENTION):
            return part
    kind = type(layer).__name__
    raise EncoderError(f"{name}: the attention of a {kind} has no output projection, which the preset changes")
