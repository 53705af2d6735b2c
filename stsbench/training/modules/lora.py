"""LoRA, by peft: low-rank changes that are trained instead of a model's weights, merging and storing them, and DiffAug's
several sets of them on queries and values, of which one is active at a time."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from stsbench.errors import EncoderError

_TARGETS = ("query", "value")
_ADAPTED = "backbone"  # the name of `adapt`'s adapter in peft
_OF_ADAPTERS = re.compile(r"(^|\.)(lora_|base_layer|modules_to_save|original_module|prompt_encoder|adaption_)")


def adapt(
    model: Any, name: str, rank: int, alpha: float, dropout: float = 0.0, layers: Sequence[str] | None = None,
    base: Literal["whole", "nf4", "nf4_double"] = "whole",
) -> None:
    """Add low-rank changes of linear layers to `model`, called `name`, in place, and freeze all else.

    layers: the last parts of the layers' names; None: all linear layers. base: whether linear layers' weights are whole, or
    quantised to 4 bits. Raises EncoderError, one line, for an unknown layer, and if weights cannot be quantised.
    """
    from peft import LoraConfig, inject_adapter_in_model

    linear = _linear(model)
    if unknown := next((layer for layer in layers or () if layer not in linear), None):
        names = ", ".join(sorted(linear)) or "none"
        raise EncoderError(f"backbone.lora.layers: {name} has no linear layer {unknown!r}; its own are {names}")
    if base != "whole":
        _quantise(model, name, base)
    config = LoraConfig(
        r=rank, lora_alpha=alpha, lora_dropout=dropout, target_modules="all-linear" if layers is None else list(layers),
        fan_in_fan_out="Conv1D" in linear.values(),
    )
    try:
        inject_adapter_in_model(config, model, _ADAPTED)
    except ValueError as error:
        raise EncoderError(f"backbone.lora: peft cannot adapt {name}: {' '.join(str(error).split())}") from error
    trainable(model, lora=True, base=False)


def freeze_adapted(model: Any) -> None:
    """Freeze the weights of a model that `adapt` changed, except for the low-rank changes, as a method may have unfrozen
    them. Other models stay unchanged."""
    if any(_ADAPTED in layer.lora_A for _, layer in _layers(model)):
        changes = {id(weight) for weight in lora_weights(model)}
        for weight in model.parameters():
            weight.requires_grad_(weight.requires_grad and id(weight) in changes)


def merged_state(model: Any) -> dict[str, Tensor]:
    """Return the weights of a model by their names, with `adapt`'s low-rank changes merged, and none in 4 bits."""
    from peft.utils.integrations import dequantize_module_weight

    state: dict[str, Tensor] = model.state_dict()
    state |= {f"{path}.weight": dequantize_module_weight(layer) for path, layer in _quantised(model)}
    for path, layer in _layers(model):
        if _ADAPTED not in layer.lora_A:
            continue
        changed = state[f"{path}.base_layer.weight"].detach() + layer.get_delta_weight(_ADAPTED).detach()
        state = {key: value for key, value in state.items() if not key.startswith(f"{path}.lora_")}
        state = {key.replace(f"{path}.base_layer.", f"{path}."): value for key, value in state.items()}
        state[f"{path}.weight"] = changed
    return state


def write_adapter(model: Any, folder: Path, base: str) -> None:
    """Write `adapt`'s adapter of `model` into `folder`, as peft does: adapter_config.json and adapter_model.safetensors.

    base: Hub id or folder of the model without the adapter.
    """
    from safetensors.torch import save_file

    layers = [(path, layer) for path, layer in _layers(model) if _ADAPTED in layer.lora_A]
    weights = {f"base_model.model.{path}.lora_{part}.weight": getattr(layer, f"lora_{part}")[_ADAPTED].weight.detach()
               for path, layer in layers for part in "AB"}
    save_file({name: weight.cpu().contiguous() for name, weight in weights.items()}, folder / "adapter_model.safetensors",
              {"format": "pt"})
    names = sorted({path.rpartition(".")[2] for path, _ in layers})
    config = copy.copy(model.peft_config[_ADAPTED])
    config.target_modules, config.base_model_name_or_path, config.inference_mode = names, base, True
    config.save_pretrained(folder)


def _quantise(model: Any, name: str, base: str) -> None:
    """Quantise the weights of all linear layers of `model` to 4 bits, in place (Dettmers et al. 2023, QLoRA): nf4, one scale
    for 64 weights; nf4_double: the scales in 8 bits. Products are computed in float32.

    Layers that transformers keeps in float32 stay so. A checkpoint holds the bits without scales, which are computed again
    from the model's files.
    """
    if "Conv1D" in _linear(model).values():
        raise EncoderError(f"backbone.lora.base {base}: {name} has linear layers of a kind that is not held in 4 bits: "
                           "set it to whole")
    try:
        from bitsandbytes.nn import Linear4bit, Params4bit
    except ImportError as error:
        raise EncoderError(f"backbone.lora.base {base} needs bitsandbytes: pip install 'stsbench[qlora]'") from error
    how: dict[str, Any] = {"compress_statistics": base == "nf4_double", "quant_type": "nf4"}
    for path, layer in [item for item in model.named_modules() if isinstance(item[1], nn.Linear)]:
        if {*path.split(".")} & {*(model._keep_in_fp32_modules or ())}:
            continue
        bits = Linear4bit(layer.in_features, layer.out_features, compute_dtype=torch.float32, device="meta", **how)
        bits.weight, bits.bias = Params4bit(layer.weight.detach(), **how).to(layer.weight.device), layer.bias
        bits.support_avx512bf16_for_cpu = False  # else eval mode, but not train mode, would compute in bfloat16 on a CPU
        bits.register_state_dict_post_hook(_without_scales)
        model.set_submodule(path, bits)
    model.is_loaded_in_4bit = True  # peft then uses its classes for 4-bit layers


def _without_scales(module: nn.Module, state: dict[str, Tensor], prefix: str, metadata: Any) -> None:
    for key in [key for key in state if key.startswith(f"{prefix}weight.")]:
        del state[key]


def check_whole(model: Any, copied: str) -> None:
    """Raise EncoderError, one line, if `model` has 4-bit weights, which cannot be trained in `copied`, a copy of it."""
    if _quantised(model):
        raise EncoderError(f"backbone.lora.base: all weights of {copied} are trained, and 4 bits cannot be: set it to whole")


def base_arguments(model: Any) -> dict[str, Any]:
    """Return arguments of transformers' from_pretrained that quantise a base as `adapt` did; {} if it is not quantised."""
    if not (layers := _quantised(model)):
        return {}
    return {"quantization_config": {
        "quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_use_double_quant": layers[0][1].weight.compress_statistics, "llm_int8_skip_modules": [],
    }}


def add_lora(model: Any, sets: int, rank: int, scale: float) -> None:
    """Add `sets` low-rank changes of W_q and W_v in every layer to `model` (transformers' BERT or RoBERTa), in place.

    W x + scale * B A x (Hu et al. 2022): A (r, d) from peft's Kaiming-uniform draw by torch's global generator, B (d, r)
    zero, no dropout: 4 layers d r weights a set. DiffAug's LoRA (Wang and Lu 2022, Table 3) has two sets, one for each view.
    The new weights are trainable, the others as trainable as before. A set is active only inside `using`.
    """
    from peft import LoraConfig, inject_adapter_in_model

    if _layers(model):
        raise EncoderError("LoRA of views and backbone.lora exclude one another: set backbone.lora to null")
    if not _linear(model).keys() >= {*_TARGETS}:
        raise EncoderError(f"LoRA needs a BERT or RoBERTa model with query and value layers, not a {type(model).__name__}")
    before = [(weight, weight.requires_grad) for weight in model.parameters()]
    config = LoraConfig(
        r=rank, lora_alpha=scale * rank, lora_dropout=0.0, bias="none", target_modules=list(_TARGETS)  # peft: alpha / r
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Already found a `peft_config`")
        for index in range(sets):
            inject_adapter_in_model(config, model, f"set{index}")
    for _, layer in _layers(model):
        layer.set_adapter([])
    trainable(model, lora=True, base=False)
    for weight, needed in before:
        weight.requires_grad_(needed)


@contextmanager
def using(model: Any, index: int) -> Iterator[None]:
    """Activate the set `index` in the block, afterwards the set that was active before. Does not change which weights are
    trainable. Backward passes may run after the block: they use the activations of the forward pass.
    """
    layers = [layer for _, layer in _layers(model)]
    if not 0 <= index < _sets(layers):
        raise ValueError(f"set {index} asked for, and there are {_sets(layers)}, counted from 0")
    before = list(layers[0].active_adapters)
    _activate(layers, [f"set{index}"])
    try:
        yield
    finally:
        _activate(layers, before)


def merged(model: Any, which: Literal["sum", "mean"] | int) -> Any:
    """Return a plain copy of the model with sets merged into its weights; `model` is unchanged.

    which: "sum" adds all sets, "mean" their average, a number only that set. The copy is on the same device, in the same
    modes, without gradients, and its weights have the names of a model without LoRA.
    """
    plain = copy.deepcopy(model)
    layers = _layers(plain)
    sets = _sets([layer for _, layer in layers])
    if isinstance(which, int) and not 0 <= which < sets:
        raise ValueError(f"set {which} asked for, and there are {sets}, counted from 0")
    names = [f"set{which}"] if isinstance(which, int) else [f"set{index}" for index in range(sets)]
    for path, layer in layers:
        if which == "mean":
            for name in names:
                layer.set_scale(name, 1 / sets)
        layer.merge(adapter_names=names)
        parent, _, child = path.rpartition(".")
        setattr(plain.get_submodule(parent), child, layer.get_base_layer())
    del plain.peft_config
    for weight in plain.parameters():
        weight.grad = None
    return plain


def trainable(model: Any, lora: bool, base: bool) -> None:
    """Freeze or unfreeze all sets' weights (lora) and all other weights of the model (base)."""
    adapters = {id(weight) for weight in lora_weights(model)}
    for weight in model.parameters():
        weight.requires_grad_(lora if id(weight) in adapters else base)


def lora_weights(model: Any) -> list[nn.Parameter]:
    """Return the LoRA weights A and B of every adapted layer."""
    return [
        weight
        for _, layer in _layers(model)
        for part in (layer.lora_A, layer.lora_B)
        for weight in part.parameters()
    ]


def _linear(model: Any) -> dict[str, str]:
    """Return the last parts of the names of linear layers -> their class, which in GPT-2 is transformers' Conv1D."""
    return {name.rpartition(".")[2]: type(module).__name__ for name, module in model.named_modules()
            if isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"}


def _quantised(model: Any) -> list[tuple[str, Any]]:
    """Return the linear layers with 4-bit weights, with their names."""
    return [(name, module) for name, module in model.named_modules()
            if isinstance(module, nn.Linear) and hasattr(module.weight, "quant_state")]


def _layers(model: Any) -> list[tuple[str, Any]]:
    """Return the linear layers with low-rank changes, with their names."""
    from peft.tuners.lora import LoraLayer

    return [(name, module) for name, module in model.named_modules() if isinstance(module, LoraLayer)]


def _activate(layers: list[Any], names: list[str]) -> None:
    for layer in layers:
        # peft makes the active set trainable and freezes the others: undone below
        before = [(weight, weight.requires_grad) for weight in layer.parameters()]
        layer.set_adapter(names)
        for weight, needed in before:
            weight.requires_grad_(needed)


def _sets(layers: list[Any]) -> int:
    return len(layers[0].lora_A) if layers else 0


def merge_adapter(model: Any, name: str) -> None:
    """Merge the PEFT adapter that transformers loaded with `model` into its weights, in place, to get a plain model.

    Raises EncoderError, one line, for an adapter that does more than change weights.
    """
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils import ModulesToSaveWrapper

    for path, whole in [item for item in model.named_modules() if isinstance(item[1], ModulesToSaveWrapper)]:
        parent, _, child = path.rpartition(".")
        setattr(model.get_submodule(parent), child, whole.modules_to_save[whole.active_adapters[0]])
    for path, layer in [item for item in model.named_modules() if isinstance(item[1], BaseTunerLayer)]:
        try:
            layer.merge(safe_merge=True)
        except Exception as error:
            raise EncoderError(f"{name}: its adapter cannot be merged into the weights ({error})") from error
        parent, _, child = path.rpartition(".")
        setattr(model.get_submodule(parent), child, layer.get_base_layer())
    if left := next((key for key in model.state_dict() if _OF_ADAPTERS.search(key)), None):
        raise EncoderError(f"{name}: its adapter is more than changes of weights ({left}), which no plain model holds")
    model._hf_peft_config_loaded = False
    vars(model).pop("_weight_conversions", None)  # with it save_pretrained would give weights the names of an adapter's
    if hasattr(model, "peft_config"):
        del model.peft_config
