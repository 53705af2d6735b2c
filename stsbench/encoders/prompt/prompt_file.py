"""What a prompted encoder learned around its model, as the file prompt.safetensors beside it; the rest is settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stsbench.encoders.forward.soft import KeyValues
from stsbench.encoders.prompt.prompt import Prompt
from stsbench.errors import EncoderError, StsbenchError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from stsbench.encoders.prompt.bottlenecks import Bottlenecks

PROMPT_FILE = "prompt.safetensors"
_KINDS: dict[str, Any] = {  # of Prompt.settings(): types, or the words that are allowed
    "template": (str,), "full_stop": {True, False, "punctuation32"}, "text": {"inside", "pieces"},
    "pieces": (int, type(None)), "denoise": (bool,),
    "positions": {"matched", "empty"}, "start": {"own", "zero"}, "head": {None, "dense", "transform"}, "each": (bool,),
    "words": (int, type(None)), "prefixes": (list,), "shift": (int,), "bottlenecks": (dict, type(None)),
}
_OPTIONAL = {"word_places": {"rightmost"}}


def checked_settings(settings: Any) -> dict[str, Any]:
    """`settings` where they are a prompt's, as Prompt.settings() gives them; else ValueError."""
    if not isinstance(settings, dict) or settings.keys() - _OPTIONAL.keys() != _KINDS.keys():
        raise ValueError(f"prompt is not made of {', '.join(_KINDS)}")
    for key, kind in {**_KINDS, **{name: words for name, words in _OPTIONAL.items() if name in settings}}.items():
        value = settings[key]
        if value not in kind if isinstance(kind, set) else not isinstance(value, kind):
            raise ValueError(f"prompt.{key} {value!r}")
    if not all(isinstance(length, int) for length in settings["prefixes"]):
        raise ValueError(f"prompt.prefixes {settings['prefixes']!r}")
    return settings


def promised_tensors(settings: Mapping[str, Any]) -> bool:
    """Whether a prompt of these settings has tensors, and so the file prompt.safetensors."""
    return any(settings[key] not in (None, []) for key in ("head", "words", "prefixes", "bottlenecks"))


def prompt_file(folder: Path) -> Path:
    """The tensors that the folder's prompt promises. EncoderError: they are gone."""
    path = folder / PROMPT_FILE
    if not path.is_file():
        raise EncoderError(f"{folder} lacks the {PROMPT_FILE} that its stsbench.json promises")
    return path


def write_prompt(folder: Path, prompt: Prompt) -> None:
    """Write prompt.safetensors (float32) into `folder`, which has none, or nothing for a prompt that holds no tensor.

    prefix.I.keys and prefix.I.values (layers, P, d) of prefix I from 0, plain, whatever they were computed by; words (m, d);
    head.* and bottlenecks.*, the weights by their modules' names. ValueError for a head of another kind than settings name.
    """
    from safetensors.torch import save_file

    tensors: dict[str, Tensor] = {}
    for index, prefix in enumerate(prompt.prefixes):
        tensors |= {f"prefix.{index}.keys": prefix.keys, f"prefix.{index}.values": prefix.values}
    if prompt.words is not None:
        tensors["words"] = prompt.words
    for name, part in (("head", prompt.head), ("bottlenecks", prompt.bottlenecks)):
        tensors |= {f"{name}.{key}": value for key, value in (part.state_dict() if part is not None else {}).items()}
    if not tensors:
        return
    stored = {key: value.detach().cpu().float().contiguous().clone() for key, value in tensors.items()}
    # one key: safetensors writes several in an order that changes, and the file's sha256 is part of the fingerprint
    save_file(stored, folder / PROMPT_FILE, {"head": json.dumps(_head_settings(prompt.head))})


def read_prompt(folder: Path, settings: Mapping[str, Any]) -> Prompt:
    """The prompt with these settings and the tensors of `folder`: float32, on the CPU, in eval mode, without gradients.

    settings: as Prompt.settings() gave them. EncoderError, one line: prompt.safetensors is missing, broken, or does not fit
    the settings or the model's config.json.
    """
    kept = {key: settings[key] for key in ("template", "full_stop", "text", "pieces", "denoise", "positions", "start",
                                           "each", "shift", *_OPTIONAL) if key in settings}
    if not promised_tensors(settings):
        return Prompt(**kept)
    path = prompt_file(folder)
    from safetensors import safe_open

    try:
        with safe_open(path, framework="pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a mapping)
            head = json.loads((file.metadata() or {}).get("head", "null"))
        config = json.loads((folder / "config.json").read_text("utf-8"))
        sizes = int(config["num_hidden_layers"]), int(config["hidden_size"])
        prompt = Prompt(
            **kept,
            head=_head(settings["head"], head, _below(tensors, "head."), sizes[1]),
            words=_words(tensors, settings["words"], sizes[1]),
            prefixes=tuple(_prefix(tensors, index, length, sizes) for index, length in enumerate(settings["prefixes"])),
            bottlenecks=_bottlenecks(settings["bottlenecks"], _below(tensors, "bottlenecks."), sizes),
        )
        if tensors:
            raise ValueError(f"it also holds {min(tensors)}")
    except Exception as error:  # safetensors, torch and json each have their own kinds
        raise EncoderError(f"cannot use {path}, which stsbench.json describes: {_line(error)}") from error
    return prompt


def _line(error: Exception) -> str:
    lacking = isinstance(error, KeyError)
    text = " ".join(str(error).split())[:200] or type(error).__name__
    return f"it lacks {text}" if lacking else text


def _below(tensors: dict[str, Tensor], start: str) -> dict[str, Tensor]:
    """The tensors whose names begin so, without that beginning, taken out of `tensors`."""
    return {key.removeprefix(start): tensors.pop(key) for key in sorted(tensors) if key.startswith(start)}


def _prefix(tensors: dict[str, Tensor], index: int, length: int, sizes: tuple[int, int]) -> KeyValues:
    both = [tensors.pop(f"prefix.{index}.{name}") for name in ("keys", "values")]
    for tensor in both:
        _shaped(f"prefix {index}", tensor, (sizes[0], length, sizes[1]))
    return KeyValues(*both)


def _words(tensors: dict[str, Tensor], count: int | None, width: int) -> Tensor | None:
    if count is None:
        return None
    _shaped("words", words := tensors.pop("words"), (count, width))
    return words


def _bottlenecks(
    settings: Mapping[str, Any] | None, tensors: dict[str, Tensor], sizes: tuple[int, int]
) -> Bottlenecks | None:
    if settings is None:
        _check_none("bottlenecks", tensors)
        return None
    from stsbench.encoders.prompt.bottlenecks import Bottlenecks

    loaded = Bottlenecks.load(settings, tensors)
    if (settings["layers"], settings["width"]) != sizes:
        raise StsbenchError(f"adapters of {settings['layers']} layers of {settings['width']}, and the model has {sizes}")
    return loaded.eval().requires_grad_(False)


def _head_settings(head: nn.Module | None) -> dict[str, Any] | None:
    """What _head needs beside the weights; its kind is among the prompt's settings."""
    if head is None:
        return None
    from stsbench.encoders.prompt.lm_transform import LMTransform
    from stsbench.encoders.prompt.mlp_head import MLPHead

    if isinstance(head, LMTransform):
        return {"width": head.width, "activation": head.activation, "eps": head.eps}
    if isinstance(head, MLPHead):
        return {"width": head.dense.in_features}
    raise ValueError(f"a {type(head).__name__} is not a head that can be exported")


def _head(kind: str | None, settings: dict[str, Any] | None, tensors: dict[str, Tensor], width: int) -> nn.Module | None:
    if kind is None:
        _check_none("head", tensors)
        return None
    import torch

    from stsbench.encoders.prompt.lm_transform import LMTransform
    from stsbench.encoders.prompt.mlp_head import MLPHead

    made: type[nn.Module] = {"dense": MLPHead, "transform": LMTransform}[kind]
    with torch.device("meta"):
        head = made(**(settings or {}))
    head.load_state_dict(tensors, assign=True)
    if (settings or {})["width"] != width:
        raise ValueError(f"a head of width {(settings or {})['width']}, and the model's is {width}")
    return head.eval().requires_grad_(False)


def _check_none(name: str, tensors: dict[str, Tensor]) -> None:
    if tensors:
        raise ValueError(f"it also holds {name}.{min(tensors)}")


def _shaped(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} is {tuple(tensor.shape)}, and {shape} was expected")
