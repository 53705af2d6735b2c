"""Prompts and templates around a text: given by the user, stored by sentence-transformers, or trained with the model.

PromptSettings describes any of the three, or none; Prompt is a trained prompt with its tensors.

The tensors of a trained prompt are in the file prompt.safetensors beside its model; all else are settings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from stsbench.encoders.forward.batching import KeyValues
from stsbench.encoders.prompt.reading import read_otherwise
from stsbench.errors import EncoderError, StsbenchError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from stsbench.encoders.prompt.modules import Bottlenecks
    from stsbench.encoders.prompt.template import FullStop

PROMPT_FILE = "prompt.safetensors"
_KINDS: dict[str, Any] = {  # types, or the allowed words, of Prompt.settings()
    "template": (str,), "full_stop": {True, False, "punctuation32", "prompteol"}, "text": {"inside", "pieces"},
    "pieces": (int, type(None)), "denoise": (bool,),
    "positions": {"matched", "empty"}, "start": {"own", "zero"}, "head": {None, "dense", "transform"}, "each": (bool,),
    "words": (int, type(None)), "prefixes": (list,), "shift": (int,), "bottlenecks": (dict, type(None)),
}
_OPTIONAL = {"word_places": {"rightmost"}}


@dataclass(frozen=True)
class PromptSettings:
    """The settings of a prompt that change a vector, without tensors. PLAIN, all defaults, is for encoders without a prompt.

    template: None for the text alone; text_prompt: what sentence-transformers stores as the default prompt, directly before
    the text; trained: the prompt is part of the model, and so recorded whole. All else is as in Prompt, where "head" is the
    kind of the head, "words" and "prefixes" are the lengths of the tensors, and "bottlenecks" their settings.
    """

    template: str | None = None
    full_stop: FullStop = False
    text_prompt: str | None = None
    trained: bool = False
    text: Literal["inside", "pieces"] = "inside"
    pieces: int | None = None
    denoise: bool = False
    positions: Literal["matched", "empty"] = "matched"
    start: Literal["own", "zero"] = "own"
    head: Literal["dense", "transform"] | None = None
    each: bool = False
    words: int | None = None
    word_places: Literal["own", "rightmost"] = "own"
    prefixes: tuple[int, ...] = ()
    shift: int = 0
    bottlenecks: Mapping[str, Any] | None = None

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any]) -> PromptSettings:
        """Return the settings of a trained prompt from those that Prompt.settings() returned and stsbench.json stores."""
        return cls(**{**stored, "prefixes": tuple(stored["prefixes"])}, trained=True)

    def stored(self) -> dict[str, Any]:
        """Return the settings of a trained prompt as Prompt.settings() returns them and stsbench.json stores them."""
        about = {field.name: getattr(self, field.name) for field in fields(self)}
        del about["text_prompt"], about["trained"], about["word_places"]
        return {**about, "prefixes": list(self.prefixes), **_unusual(self.word_places)}

    def spec_options(self) -> dict[str, Any]:
        """Return EncoderSpec.options of the prompt: all that the spec's fields `template` and `prefix` do not say."""
        if self.trained:
            about = self.stored()
            del about["template"]
            return {"prompt": about}
        return {"full_stop": True} if self.full_stop else {}

    def changed(self, template: str | None, full_stop: bool | None) -> PromptSettings:
        """Return the settings changed by a user's options (None: unchanged); a template replaces all other settings."""
        prompt = self if template is None else PromptSettings(template)
        return prompt if full_stop is None else replace(prompt, full_stop=full_stop)


PLAIN = PromptSettings()
_STOPS: dict[FullStop, str] = {True: "full stop added", "punctuation32": "full stop added behind a text without punctuation",
                                 "prompteol": "PromptEOL's clean-up"}


@dataclass(frozen=True)
class Prompt:
    """A trained prompt: all that the pooler `mask` needs beside the transformers model and its tokenizer. For the pooler
    `last` it is a template and a rule for full stops only.

    template: with {} or [X] for the sentence and [MASK] or {mask}, which of the pooler `last` it need not hold;
    full_stop: the rule by which a full stop is added to texts (template.with_full_stop); text: "inside": the filled
    template is tokenised, "pieces": the sentence is tokenised alone and cut at `pieces` tokens (None: not at all), as in
    training.

    denoise: subtract the vector of the template alone, at the positions that it has around a text of as many tokens
    (positions "matched") or around none ("empty"), from the model's first position on (start "own") or from 0 ("zero").
    head: (n, d) -> (n, d), or None; each: head(h) - head(delta) instead of head(h - delta).

    words: (m, d) learned embeddings of the template's tokens in order, special tokens left out; None: the model's own.
    word_places: the tokens that they stand for, see TokenTemplate.
    prefixes: none, one, or several whose vectors are averaged; shift: number of positions before the text. bottlenecks:
    adapters of one set, or None.
    """

    template: str
    full_stop: FullStop = False
    text: Literal["inside", "pieces"] = "inside"
    pieces: int | None = None
    denoise: bool = False
    positions: Literal["matched", "empty"] = "matched"
    start: Literal["own", "zero"] = "own"
    head: nn.Module | None = None
    each: bool = False
    words: Tensor | None = None
    word_places: Literal["own", "rightmost"] = "own"
    prefixes: tuple[KeyValues, ...] = ()
    shift: int = 0
    bottlenecks: Bottlenecks | None = None

    def settings(self) -> dict[str, Any]:
        """Return the prompt for a JSON file, without the values of tensors: in their place their number, lengths or
        kind."""
        return {
            "template": self.template, "full_stop": self.full_stop, "text": self.text, "pieces": self.pieces,
            "denoise": self.denoise, "positions": self.positions, "start": self.start, "head": self._kind(),
            "each": self.each, "words": None if self.words is None else len(self.words),
            "prefixes": [prefix.keys.shape[1] for prefix in self.prefixes], "shift": self.shift,
            "bottlenecks": None if self.bottlenecks is None else self.bottlenecks.settings(),
            **_unusual(self.word_places),
        }

    def modules(self) -> tuple[nn.Module, ...]:
        """Return the head and the bottlenecks, where there are any."""
        return tuple(part for part in (self.head, self.bottlenecks) if part is not None)

    def _kind(self) -> str | None:
        if self.head is None:
            return None
        from stsbench.encoders.prompt.modules import LMTransform

        return "transform" if isinstance(self.head, LMTransform) else "dense"


def _unusual(word_places: str) -> dict[str, str]:
    """Return `word_places` as settings hold it: left out for "own", the only way before this setting, so that fingerprints
    stay valid."""
    return {} if word_places == "own" else {"word_places": word_places}


_DESCRIBED = ("prompt", "prompts")  # put into words below; other mappings are an extension's, shown as they are


def described(options: Mapping[str, Any]) -> list[str]:
    """Return phrases for users on the prompt and the full stop in an encoder's spec.options, without the template and what
    `described_reading` says."""
    prompt = options.get("prompt") or {}
    parts = [_STOPS[rule]] if (rule := options.get("full_stop") or prompt.get("full_stop")) else []
    if prompt.get("text") == "pieces":
        cut = "" if prompt["pieces"] is None else f", cut at {prompt['pieces']} tokens"
        parts.append(f"sentence tokenised alone{cut}")
    if prompt.get("denoise"):
        other = [name for name in (prompt["positions"], prompt["start"]) if name not in ("matched", "own")]
        parts.append("denoised" + (f" ({', '.join(other)})" if other else ""))
    if prompt.get("head"):
        parts.append(f"{prompt['head']} head" + (" on each" if prompt["each"] and prompt["denoise"] else ""))
    if prompt.get("words") is not None:
        parts.append(f"{prompt['words']} learned words" + (" at rightmost matches" if "word_places" in prompt else ""))
    if prompt.get("prefixes"):
        lengths = " and ".join(map(str, prompt["prefixes"]))
        parts.append(f"prefix {lengths}, averaged" if len(prompt["prefixes"]) > 1 else f"prefix {lengths}")
    if prompt.get("bottlenecks"):
        parts.append(f"adapters of rank {prompt['bottlenecks']['rank']}")
    if options.get("prompts"):
        parts.append("prompts by task")
    reading = read_otherwise(options)
    more = {} if reading else {
        name: value for name, value in options.items() if isinstance(value, Mapping) and name not in _DESCRIBED
    }
    return [*parts, *(f"{name} {json.dumps(value, ensure_ascii=False, sort_keys=True)}" for name, value in more.items())]


def checked_settings(settings: Any) -> dict[str, Any]:
    """Return `settings` if they are as Prompt.settings() returns them; raise ValueError otherwise."""
    if not isinstance(settings, dict) or settings.keys() - _OPTIONAL.keys() != _KINDS.keys():
        raise ValueError(f"prompt is not made of {', '.join(_KINDS)}")
    for key, kind in {**_KINDS, **{name: words for name, words in _OPTIONAL.items() if name in settings}}.items():
        value = settings[key]
        if value not in kind if isinstance(kind, set) else not isinstance(value, kind):
            raise ValueError(f"prompt.{key} {value!r}")
    if not all(isinstance(length, int) for length in settings["prefixes"]):
        raise ValueError(f"prompt.prefixes {settings['prefixes']!r}")
    return settings


def fits_pooler(settings: Mapping[str, Any], pooler: str) -> bool:
    """Return whether a prompt of these settings works with the pooler: `mask` takes all, `last` only a template's text."""
    plain = settings["text"] == "inside" and not settings["denoise"] and not promised_tensors(settings)
    return pooler == "mask" or (pooler == "last" and plain)


def promised_tensors(settings: Mapping[str, Any]) -> bool:
    """Return whether a prompt of these settings has tensors, and so the file prompt.safetensors."""
    return any(settings[key] not in (None, []) for key in ("head", "words", "prefixes", "bottlenecks"))


def prompt_file(folder: Path) -> Path:
    """Return the path of prompt.safetensors in `folder`. EncoderError: it is missing."""
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
    """Return the prompt with these settings and the tensors of `folder`: float32, on the CPU, in eval mode, without
    gradients.

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
    except Exception as error:  # safetensors, torch and json raise errors of their own
        why = " ".join(str(error).split())[:200] or type(error).__name__
        lacking = "it lacks " if isinstance(error, KeyError) else ""
        raise EncoderError(f"cannot use {path}, which stsbench.json describes: {lacking}{why}") from error
    return prompt


def _below(tensors: dict[str, Tensor], start: str) -> dict[str, Tensor]:
    """Remove the tensors whose names begin with `start` from `tensors`, and return them by the rest of their names."""
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
    from stsbench.encoders.prompt.modules import Bottlenecks

    loaded = Bottlenecks.load(settings, tensors)
    if (settings["layers"], settings["width"]) != sizes:
        raise StsbenchError(f"adapters of {settings['layers']} layers of {settings['width']}, and the model has {sizes}")
    return loaded.eval().requires_grad_(False)


def _head_settings(head: nn.Module | None) -> dict[str, Any] | None:
    """Return the arguments by which `_head` builds a head; its kind is among the prompt's settings."""
    if head is None:
        return None
    from stsbench.encoders.prompt.modules import LMTransform, MLPHead

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

    from stsbench.encoders.prompt.modules import LMTransform, MLPHead

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
