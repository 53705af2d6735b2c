"""Properties of a transformers model in memory: its device, positions, layers and dropout; and evaluation mode for a block.

Torch is imported only inside the functions that need it, so that commands which only name a model start quickly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from stsbench.errors import EncoderError

if TYPE_CHECKING:
    from torch import nn

# Dropout settings, on hidden states (BERT; Falcon, GPT-NeoX; DistilBERT, BART, XLNet; T5; ModernBERT; GPT-2, GPT-J, Phi;
# MPT; GPT-Neo; StarCoder 2) and on attention (BERT; most others; GPT-2; Reformer). A config has those of its family.
_SETTINGS = (
    "hidden_dropout_prob", "hidden_dropout", "dropout", "dropout_rate", "embedding_dropout", "mlp_dropout", "embd_pdrop",
    "resid_pdrop", "emb_pdrop", "embed_dropout", "resid_dropout", "residual_dropout",
    "attention_probs_dropout_prob", "attention_dropout", "attn_pdrop",
    "local_attention_probs_dropout_prob", "lsh_attention_probs_dropout_prob",
)
_BY_NUMBER = ("global_attn_every_n_layers", "scale_attn_by_inverse_layer_idx")  # settings: ModernBERT, GPT-2


def main_device(model: Any) -> Any:
    """Return the torch.device for a model's inputs: that of its first weights, or, if it is spread over several devices, the
    first that computes."""
    import torch

    spread = getattr(model, "hf_device_map", None)
    if not spread:
        return next(model.parameters()).device
    computing = [torch.device(where) for where in spread.values() if str(where) not in ("cpu", "disk")]
    return computing[0] if computing else torch.device("cpu")


def cast(model: Any, dtype: Any) -> Any:
    """Return the model with weights of `dtype`. Buffers that are not stored, such as the frequencies of rotary positions,
    stay as from_pretrained leaves them: rounded to 8 bits, they give wrong angles, more so at later positions."""
    made = [(part, {name: part._buffers[name] for name in part._non_persistent_buffers_set}) for part in model.modules()]
    model = model.to(dtype)
    for part, buffers in made:
        part._buffers.update(buffers)
    return model


def position_limit(model: Any, tokenizer: Any) -> int | None:
    """Return the number of tokens that the model has positions for, special ones included; None if it states no limit.

    The model's own number comes first: a stored model_max_length is often a training setting.
    """
    positions = getattr(model.config, "max_position_embeddings", None)
    if isinstance(positions, int) and positions > 0:
        table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
        padding = getattr(table, "padding_idx", None)  # RoBERTa and MPNet count from the padding index on
        return positions if padding is None else positions - padding - 1
    stated = getattr(tokenizer, "model_max_length", None)
    return int(stated) if stated is not None and stated < 1_000_000 else None


class NoDropoutError(EncoderError):
    """Raised where a dropout rate is asked for and the config has no known dropout setting."""


def dropout_rates(config: Any) -> dict[str, float]:
    """Return the known dropout settings that a transformers config has, with their rates; {} where it has none of them."""
    rates = {key: getattr(config, key, None) for key in _SETTINGS}
    return {key: float(rate) for key, rate in rates.items() if isinstance(rate, int | float) and not isinstance(rate, bool)}


def set_dropout(config: Any, rate: float, name: str) -> None:
    """Set every known dropout rate of a transformers config. NoDropoutError, one line, where there is none."""
    known = dropout_rates(config)
    if not known:
        raise NoDropoutError(
            f"backbone.dropout {rate:g} cannot be set: no dropout setting of {name} ({config.model_type}) is known: choose "
            "another backbone"
        )
    for key in known:
        setattr(config, key, rate)


def layer_count(model: Any) -> int:
    """Return the number of layers that a model's config states."""
    return int(model.config.num_hidden_layers)


def check_layer(layer: int, model: Any, name: str, option: str = "--layer") -> None:
    """Raise EncoderError where `layer` is not an index of hidden_states, which has the embeddings and one entry a layer."""
    layers = layer_count(model)
    if not -layers - 1 <= layer <= layers:
        known = f"so 0 (the embeddings) to {layers}, or -1 to -{layers + 1}"
        raise EncoderError(f"{option} {layer}: {name} has {layers} layers, {known}")


def keep_layers(model: Any, layers: Sequence[int], name: str, option: str) -> None:
    """Reduce `model` to these layers, counted from 0, in their order, and adapt its config.

    EncoderError, one line: there are no such layers, they are all of the model's, they share their weights, or layers differ
    by their number (local and global attention by turns, say), so that a loaded copy would have other layers.
    """
    from torch import nn

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
    """Return the module that holds the list of layers, and the list's attribute name.

    use: what the list is for, named in the EncoderError where there is none.
    """
    from torch import nn

    count = layer_count(model)
    for path, part in model.named_modules():
        if isinstance(part, nn.ModuleList) and len(part) == count:
            parent, _, key = path.rpartition(".")
            return model.get_submodule(parent), key
    raise EncoderError(f"{name}: a {type(model).__name__} has no list of {count} layers, which {use}")


@contextmanager
def borrowed(*modules: nn.Module) -> Iterator[None]:
    """Run a block in eval mode, without gradients and autocast; every submodule then returns to its mode, also on an error.

    Not in inference_mode: a buffer that a model makes in that mode could never again take part in a backward pass.
    """
    import torch

    modes = [(part, part.training) for module in modules for part in module.modules()]
    device = next(modules[0].parameters()).device.type
    for module in modules:
        module.eval()
    try:
        with torch.no_grad(), torch.autocast(device, enabled=False):
            yield
    finally:
        for part, training in modes:
            part.training = training
