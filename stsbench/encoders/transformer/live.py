"""The encoder of a model in memory that may be changed, and is read anew, between two uses."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial
from typing import Any

from stsbench.encoders.forward.borrowed import borrowed
from stsbench.encoders.prompt.prompt import PLAIN, PromptSettings
from stsbench.encoders.transformer.config import EncoderConfig
from stsbench.encoders.transformer.parts import Parts, check_ends
from stsbench.encoders.transformer.transformer import TransformerEncoder
from stsbench.errors import EncoderError


class LiveEncoder(TransformerEncoder):
    """The model stays on its device, and keeps its modes, its gradients and its tokenizer; random states are not touched.

    Nothing is cached: no digest could be.
    """

    cacheable = False

    def __init__(self, parts: Parts, *, pooler: str, name: str, max_length: int | None = None) -> None:
        """parts.dense is a Linear(d, d) here, tanh follows it. EncoderError: the parts and the pooler do not go together."""
        for kind, part, called in (
            ("cls+dense", parts.dense, "dense layer"), ("text_cnn", parts.text_cnn, "TextCNN")
        ):  # fmt: skip
            if (part is None) == (pooler == kind):
                raise EncoderError(f"{name}: pooler {kind} and a {called} go together")
        # A copy: a call with truncation=True leaves it switched on in the tokenizer, which would cut texts here, unseen.
        own = copy.deepcopy(parts.tokenizer) if getattr(parts.tokenizer, "is_fast", False) else parts.tokenizer
        if pooler == "text_cnn":
            check_ends(own, name)
        linear: Any = parts.dense
        config = EncoderConfig(
            name, None, pooler, max_length=max_length, dtype=str(parts.model.dtype).removeprefix("torch."),
            prompt=PLAIN if parts.prompt is None else PromptSettings.of(parts.prompt.settings()),
        )  # fmt: skip
        tanh = None if linear is None else lambda first: linear(first).tanh()
        super().__init__(config, replace(parts, tokenizer=own, dense=tanh))
        learned = [part for part in (linear, parts.text_cnn) if part is not None]
        self._guard = partial(borrowed, parts.model, *learned, *(parts.prompt.modules() if parts.prompt else ()))
