"""Where in a transformers model the layers are, and how some are left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from stsbench.errors import EncoderError

_BY_NUMBER = ("global_attn_every_n_layers", "scale_attn_by_inverse_layer_idx")  # settings: ModernBERT, GPT-2


def layer_count(model: Any) -> int:
    """How many layers a model states that it has."""
    return int(model.config.num_hidden_layers)


def check_layer(layer: int, model: Any, name: str, option: str = "--layer") -> None:
    """EncoderError where `layer` is no index of hidden_states, which has the embeddings and one entry a layer."""
    layers = layer_count(model)
    if not -layers - 1 <= layer <= layers:
        known = f"so 0 (the embeddings) to {layers}, or -1 to -{layers + 1}"
        raise EncoderError(f"{option} {layer}: {name} has {layers} layers, {known}")


def keep_layers(model: Any, layers: Sequence[int], name: str, option: str) -> None:
    """Leave these layers of `model`, from 0, in their order; its config says how many there are.

    EncoderError, one line: there are no such layers, they are all there are, they share their weights, or a layer is what
    its number makes it (by turns local and global attention, say), so that another reader would take it for another.
    """
    count = layer_count(model)
    if stray := [layer for layer in layers if not 0 <= layer < count]:
        raise EncoderError(f"{option} {stray[0]}: {name} has the layers 0 to {count - 1}")
    if len(layers) == count:
        raise EncoderError(f"{option} has no effect: {name} has these {count} layers: set it to null")
    config = model.config
    lists = {key: value for key, value in vars(config).items() if isinstance(value, list) and len(value) == count}
    by_number = [key for key in _BY_NUMBER if getattr(config, key, None)]
    by_number += [key for key, value in lists.items() if any(kind != value[0] for kind in value)]
    if by_number:
        raise EncoderError(f"{option}: the layers of {name} differ by their number ({by_number[0]}): set it to null")
    holder, key = list_of_layers(model, name, "backbone.layers chooses from")
    kept = [getattr(holder, key)[layer] for layer in layers]
    setattr(holder, key, nn.ModuleList(kept))
    for number, layer in enumerate(kept):
        for part in layer.modules():
            if hasattr(part, "layer_idx"):
                part.layer_idx = number
    config.num_hidden_layers = len(kept)
    for key, value in lists.items():
        setattr(config, key, value[: len(kept)])


def list_of_layers(model: nn.Module, name: str, use: str) -> tuple[nn.Module, str]:
    """Return the module that holds the list of layers, and its attribute there.

    use: of the list, for the EncoderError where there is none.
    """
    count = layer_count(model)
    for path, part in model.named_modules():
        if isinstance(part, nn.ModuleList) and len(part) == count:
            parent, _, key = path.rpartition(".")
            return model.get_submodule(parent), key
    raise EncoderError(f"{name}: a {type(model).__name__} has no list of {count} layers, which {use}")
