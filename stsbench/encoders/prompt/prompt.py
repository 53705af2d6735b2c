"""What stands around a text: said by the user, stored by sentence-transformers, or trained with the model.

PromptSettings describes any of the three and is always there; Prompt is a trained one with its tensors.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from stsbench.encoders.forward.soft import KeyValues
from stsbench.encoders.prompt.reading import read_otherwise

if TYPE_CHECKING:
    from torch import Tensor, nn

    from stsbench.encoders.prompt.bottlenecks import Bottlenecks
    from stsbench.encoders.prompt.template import FullStop


@dataclass(frozen=True)
class PromptSettings:
    """What changes a vector around a text, without tensors. The empty one, PLAIN, is that of an encoder without a prompt.

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
    def of(cls, stored: Mapping[str, Any]) -> PromptSettings:
        """A trained prompt, from what Prompt.settings() gave and stsbench.json keeps."""
        return cls(**{**stored, "prefixes": tuple(stored["prefixes"])}, trained=True)

    def stored(self) -> dict[str, Any]:
        """The trained prompt as stsbench.json keeps it, and Prompt.settings() gives it."""
        about = {field.name: getattr(self, field.name) for field in fields(self)}
        del about["text_prompt"], about["trained"], about["word_places"]
        return {**about, "prefixes": list(self.prefixes), **_unusual(self.word_places)}

    def spec_options(self) -> dict[str, Any]:
        """EncoderSpec.options: what the fields `template` and `prefix` of the spec do not say."""
        if self.trained:
            about = self.stored()
            del about["template"]
            return {"prompt": about}
        return {"full_stop": True} if self.full_stop else {}

    def changed(self, template: str | None, full_stop: bool | None) -> PromptSettings:
        """With what a user asks for (None: nothing); a template takes the place of all that was there before."""
        prompt = self if template is None else PromptSettings(template)
        return prompt if full_stop is None else replace(prompt, full_stop=full_stop)


PLAIN = PromptSettings()
_STOPS: dict[FullStop, str] = {True: "full stop added", "punctuation32": "full stop added behind a text without punctuation"}


@dataclass(frozen=True)
class Prompt:
    """Everything of the pooler `mask` that the transformers model and its tokenizer do not hold, as a method trains it.

    template: with {} or [X] for the sentence and [MASK] or {mask}; full_stop: whether one is put behind a text, and behind
    which (template.with_full_stop); text: "inside": the filled template is tokenised, "pieces": the sentence is
    tokenised alone and cut at `pieces` tokens (None: not at all), as in training.

    denoise: subtract the vector of the template alone, at the positions that it has around a text of as many tokens
    (positions "matched") or around none ("empty"), from the model's first position on (start "own") or from 0 ("zero").
    head: (n, d) -> (n, d), or None; each: head(h) - head(delta) instead of head(h - delta).

    words: (m, d) learned embeddings of the template's tokens in order, special tokens left out; None: the model's own.
    word_places: the tokens that they stand for, see TokenTemplate.
    prefixes: none, one, or several whose vectors are averaged; shift: positions that stand before the text. bottlenecks: of
    one set, or None.
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
        """Everything but the tensors' values, for a JSON file: of tensors their number, their lengths or their kind."""
        return {
            "template": self.template, "full_stop": self.full_stop, "text": self.text, "pieces": self.pieces,
            "denoise": self.denoise, "positions": self.positions, "start": self.start, "head": self._kind(),
            "each": self.each, "words": None if self.words is None else len(self.words),
            "prefixes": [prefix.keys.shape[1] for prefix in self.prefixes], "shift": self.shift,
            "bottlenecks": None if self.bottlenecks is None else self.bottlenecks.settings(),
            **_unusual(self.word_places),
        }

    def modules(self) -> tuple[nn.Module, ...]:
        """The head and the bottlenecks, those that there are."""
        return tuple(part for part in (self.head, self.bottlenecks) if part is not None)

    def digest(self) -> str | None:
        """sha256 over the values of all tensors; None without any."""
        tensors = [] if self.words is None else [("words", self.words)]
        for index, prefix in enumerate(self.prefixes):
            tensors += [(f"{index} keys", prefix.keys), (f"{index} values", prefix.values)]
        for part in self.modules():
            # an LMTransform's choices that settings() does not name
            about = [type(part).__name__, *(str(getattr(part, key)) for key in ("activation", "eps") if hasattr(part, key))]
            tensors += [(" ".join([*about, name]), value) for name, value in part.state_dict().items()]
        if not tensors:
            return None
        sha = hashlib.sha256()
        for name, value in tensors:
            sha.update(f"{name} {tuple(value.shape)}\n".encode())
            sha.update(value.detach().cpu().float().contiguous().numpy().tobytes())
        return sha.hexdigest()

    def _kind(self) -> str | None:
        if self.head is None:
            return None
        from stsbench.encoders.prompt.lm_transform import LMTransform

        return "transform" if isinstance(self.head, LMTransform) else "dense"


def _unusual(word_places: str) -> dict[str, str]:
    """`word_places` as settings hold it: not where it is what it was before it had a name, so that fingerprints stay."""
    return {} if word_places == "own" else {"word_places": word_places}


_DESCRIBED = ("prompt", "prompts")  # settings in words; other mappings are an extension's, shown as they are


def described(options: Mapping[str, Any]) -> list[str]:
    """What an encoder's spec.options say of a prompt and of a final full stop, for people; the template left out, and what
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
