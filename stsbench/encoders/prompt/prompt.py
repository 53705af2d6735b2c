"""How a prompted encoder reads a text: the template, what is learned around it, and what is made of the mask's vector."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from stsbench.encoders.forward.soft import KeyValues

if TYPE_CHECKING:
    from torch import Tensor, nn

    from stsbench.encoders.prompt.bottlenecks import Bottlenecks


@dataclass(frozen=True)
class Prompt:
    """Everything of the pooler `mask` that the transformers model and its tokenizer do not hold.

    template: with {} or [X] for the sentence and [MASK] or {mask}; full_stop: put one behind a text that ends in none of
    . ? " ' (PromptBERT's evaluation.py); text: "inside": the filled template is tokenised, "pieces": the sentence is
    tokenised alone and cut at `pieces` tokens (None: not at all), as in training.

    denoise: subtract the vector of the template alone, at the positions that it has around a text of as many tokens
    (positions "matched") or around none ("empty"), from the model's first position on (start "own") or from 0 ("zero").
    head: (n, d) -> (n, d), or None; each: head(h) - head(delta) instead of head(h - delta).

    words: (m, d) learned embeddings of the template's tokens in order, special tokens left out; None: the model's own.
    prefixes: none, one, or several whose vectors are averaged; shift: positions that stand before the text. bottlenecks: of
    one set, or None.
    """

    template: str
    full_stop: bool = False
    text: Literal["inside", "pieces"] = "inside"
    pieces: int | None = None
    denoise: bool = False
    positions: Literal["matched", "empty"] = "matched"
    start: Literal["own", "zero"] = "own"
    head: nn.Module | None = None
    each: bool = False
    words: Tensor | None = None
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
        }  # fmt: skip

    def modules(self) -> tuple[nn.Module, ...]:
        """The head and the bottlenecks, those that there are."""
        return tuple(part for part in (self.head, self.bottlenecks) if part is not None)

    def digest(self) -> str | None:
        """sha256 over the values of all tensors; None without any."""
        tensors = [] if self.words is None else [("words", self.words)]
        for place, prefix in enumerate(self.prefixes):
            tensors += [(f"{place} keys", prefix.keys), (f"{place} values", prefix.values)]
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


def spec_options(settings: Mapping[str, Any] | None, full_stop: bool) -> dict[str, Any]:
    """EncoderSpec.options of an encoder with a prompt of these settings, or none. full_stop: of one without a prompt."""
    if settings is not None:
        return {"prompt": {key: value for key, value in settings.items() if key != "template"}}
    return {"full_stop": True} if full_stop else {}


def described(options: Mapping[str, Any]) -> list[str]:
    """What an encoder's spec.options say of a prompt and of a final full stop, for people; the template left out."""
    prompt = options.get("prompt") or {}
    said = ["full stop added"] if options.get("full_stop") or prompt.get("full_stop") else []
    if prompt.get("text") == "pieces":
        cut = "" if prompt["pieces"] is None else f", cut at {prompt['pieces']} tokens"
        said.append(f"sentence tokenised alone{cut}")
    if prompt.get("denoise"):
        other = [name for name in (prompt["positions"], prompt["start"]) if name not in ("matched", "own")]
        said.append("denoised" + (f" ({', '.join(other)})" if other else ""))
    if prompt.get("head"):
        said.append(f"{prompt['head']} head" + (" on each" if prompt["each"] and prompt["denoise"] else ""))
    if prompt.get("words") is not None:
        said.append(f"{prompt['words']} learned words")
    if prompt.get("prefixes"):
        lengths = " and ".join(map(str, prompt["prefixes"]))
        said.append(f"prefix {lengths}, averaged" if len(prompt["prefixes"]) > 1 else f"prefix {lengths}")
    if prompt.get("bottlenecks"):
        said.append(f"adapters of rank {prompt['bottlenecks']['rank']}")
    return said
