"""Parts of prompt-based methods: texts inside a template, PromptBERT's template denoising, which subtracts the vector of the
template alone, and the transform of a stored masked-LM head."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stsbench.encoders.forward.model import position_limit
from stsbench.encoders.forward.passes import check_family
from stsbench.encoders.prompt.modules import LMTransform
from stsbench.encoders.prompt.template import (
    Positions,
    Start,
    TokenTemplate,
    first_position,
    parse_template,
    template_positions,
)
from stsbench.errors import EncoderError, StsbenchError
from stsbench.training.modules.backbone import Backbone
from stsbench.training.modules.masked_lm import LMHead
from stsbench.training.modules.soft_prompt import Prefix, SoftPrompt


def check_prompted(backbone: Backbone, start: Start) -> None:
    """Raise EncoderError, one line, for a model that takes no position ids, and if options.denoise_start zero (`start`) has
    no effect, as the model's positions begin with 0."""
    check_family(backbone.model)
    if start == "zero" and first_position(backbone.model) == 0:
        raise EncoderError(
            f"options.denoise_start zero has no effect: the positions of {backbone.name} begin with 0; leave it at own"
        )


def check_length(template: TokenTemplate, name: str, backbone: Backbone) -> None:
    """Raise EncoderError if the longest sentence inside the template has more tokens than the model has positions.

    name: the template's option, for the message. The sentence has backbone.max_length tokens, two of them special.
    """
    limit = position_limit(backbone.model, backbone.tokenizer)
    longest = backbone.max_length - 2 + template.length
    if limit is not None and longest > limit:
        raise EncoderError(
            f"{name} makes up to {longest} tokens of backbone.max_length {backbone.max_length}, and {backbone.name} has "
            f"{limit} positions: --set backbone.max_length={backbone.max_length - longest + limit}"
        )


def template_vectors(
    backbone: Backbone, template: TokenTemplate, counts: Tensor, *, positions: Positions = "matched", start: Start = "own",
    split: int | None = None, gradient: bool = True, prefix: Callable[[int], Prefix] | None = None,
    vectors: Tensor | None = None,
) -> Tensor:
    """Return (n, d) template vectors, the last state at the mask of the template alone, for sentences of `counts` (n,)
    tokens; they are subtracted from the vectors h_i to denoise them (Jiang et al. 2022, PromptBERT, section 3.3).

    positions: "matched": the positions of the template's tokens from `split` on (None: those after the sentence) are
    counts[i] later, "empty": they are not; start: whether positions begin at the model's first or at 0, after a prefix.
    gradient: whether gradients flow through the result. prefix: m -> a prefix for m rows; vectors: (m, d) learned words.

    One pass computes all distinct counts, a row each, with its own dropout; texts of equal count share a row, as in the
    authors' table of all counts. Raises EncoderError for positions beyond the model's (Backbone.at).
    """
    with nullcontext() if gradient else torch.no_grad():
        distinct, rows = counts.unique(return_inverse=True)
        tokens = torch.tensor([*template.before, *template.after], device=counts.device)
        ids = tokens.expand(len(distinct), -1).contiguous()
        mask = torch.ones_like(ids)
        before = None if prefix is None else prefix(len(distinct))
        base = (first_position(backbone.model) if start == "own" else 0) + (0 if before is None else before.keys.shape[2])
        at = len(template.before) if split is None else split
        soft = SoftPrompt(
            positions=template_positions(distinct.long(), at, template.length, base, positions),
            rows=None if vectors is None else template.words(ids, mask), vectors=vectors, prefix=before,
        )
        return backbone.at(ids, mask, template.mask_indices(mask), soft).index_select(0, rows)


def load_transform(folder: Path, model: Any, name: str) -> LMTransform:
    """Return the transform (dense layer, activation, LayerNorm) of the masked-LM head in `folder`, in float32 and trainable.

    model: the encoder from this folder; name: its name in errors.

    Raises EncoderError, one line, for a folder without a masked-LM head, and for an unknown head.
    """
    head = LMHead.load(folder, model, name, tied=False)
    if not head.stored:
        raise EncoderError(
            f"{name} stores no masked-LM head, and the transform is the first half of one: train one with "
            "`stsbench train mlm`, take a checkpoint that has one, or choose another head"
        )
    dense, activation, norm = _transform_parts(head, model.config, name)
    made = LMTransform(int(dense.in_features), activation, float(norm.eps))
    made.to(dense.weight.device)
    made.dense.load_state_dict(dense.state_dict())
    made.norm.load_state_dict(norm.state_dict())
    _check_transform(made, head, name)
    made.train(model.training)
    return made


def _transform_parts(head: LMHead, config: Any, name: str) -> tuple[Any, str, Any]:
    """Return the dense layer, the activation's name and the LayerNorm of a head. Raises EncoderError for an unknown head."""
    parts = head.parts
    predictions: Any = getattr(parts["cls"], "predictions", None) if "cls" in parts else None
    if hasattr(predictions, "transform"):
        part: Any = predictions.transform
        return part.dense, str(config.hidden_act), part.LayerNorm
    if "lm_head" in parts and hasattr(parts["lm_head"], "layer_norm"):
        part = parts["lm_head"]
        return part.dense, "gelu", part.layer_norm  # RoBERTa's head never asks the config
    if "vocab_transform" in parts:
        return parts["vocab_transform"], str(config.activation), parts["vocab_layer_norm"]
    raise EncoderError(f"{name}: the masked-LM head of {head.architecture.__name__} has no transform known here")


def _check_transform(transform: LMTransform, head: LMHead, name: str) -> None:
    """Raise EncoderError unless the transform and then the head's output layer give the head's logits."""
    decoder = head.decoder
    with torch.no_grad():
        hidden = torch.linspace(-2, 2, transform.width, device=transform.dense.weight.device).unsqueeze(0)
        same = torch.allclose(decoder(transform(hidden)), head(hidden), rtol=1e-4, atol=1e-4)
    if not same:
        raise EncoderError(f"{name}: {head.architecture.__name__} does more in its head than a dense layer and LayerNorm")


class InTemplate:
    """Token ids of texts inside a template: each text is cut at max_length tokens, decoded and put into the template, whose
    last token is pooled. Source: Jiang et al. (2023), PromptEOL, and ft_llm.py of kongds/scaling_sentemb."""

    def __init__(self, backbone: Backbone, template: str) -> None:
        """Raise StsbenchError, one line, for a pooler other than last, a template without exactly one place for the text,
        and texts inside it that are longer than the model's positions."""
        if backbone.pooler != "last":
            raise StsbenchError(
                f"backbone.pooler {backbone.pooler}: options.template is read at its last token: set it to last"
            )
        self.tokenizer, self.cut = copy.deepcopy(backbone.tokenizer), backbone.max_length
        self.filled = parse_template(template, self.tokenizer.mask_token, False, option="options.template")
        longest = self.cut + len(self.tokenizer(self.filled.fill(""))["input_ids"])
        limit = position_limit(backbone.model, backbone.tokenizer)
        if limit is not None and longest > limit:
            raise StsbenchError(
                f"options.template makes texts of up to {longest} tokens of backbone.max_length {self.cut}, and "
                f"{backbone.name} has {limit} positions: lower backbone.max_length"
            )

    def count_later_tokens(self, words: str) -> int:
        """Return how many tokens of a filled template follow `words`, which the template has after the text.

        Raises StsbenchError unless `words` is there once and ends with a token. Source: train.py of ZBWpro/CSE-SFP.
        """
        start, *ends = self.filled.after.split(words) if words else [""]
        whole, part = self.filled.fill(""), self.filled.before + start + words
        ids: list[list[int]] = self.tokenizer([whole, part], add_special_tokens=False)["input_ids"]
        if len(ends) != 1 or ids[0][: len(ids[1])] != ids[1] or ids[0] == ids[1]:
            raise StsbenchError(
                f"options.positive_word {words!r}: options.template must have it once behind the text, before its last "
                "token, and at the end of a token"
            )
        special: list[int] = self.tokenizer(whole, return_special_tokens_mask=True)["special_tokens_mask"]
        return len(ids[0]) - len(ids[1]) + special[::-1].index(0)

    def __call__(self, texts: Sequence[str]) -> list[NDArray[np.int64]]:
        """Return `[text]` -> token ids of the filled template, with the tokenizer's special tokens."""
        cutting = {"truncation": True, "max_length": self.cut, "add_special_tokens": False, "padding": False}
        cut = self.tokenizer.batch_decode(self.tokenizer(list(texts), **cutting)["input_ids"])
        rows = self.tokenizer([self.filled.fill(text) for text in cut], padding=False, truncation=False, verbose=False)
        return [np.asarray(row) for row in rows["input_ids"]]
