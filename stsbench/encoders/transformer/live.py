"""The encoder of a model in memory that may be changed, and is read anew, between two uses."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial
from typing import Any

from stsbench.encoders.base import Encoder
from stsbench.encoders.forward.borrowed import borrowed
from stsbench.encoders.forward.token_pooler_files import KINDS
from stsbench.encoders.probe import probed
from stsbench.encoders.prompt.prompt import PLAIN, PromptSettings
from stsbench.encoders.transformer.config import EncoderConfig
from stsbench.encoders.transformer.parts import Parts, check_ends
from stsbench.encoders.transformer.transformer import TransformerEncoder
from stsbench.errors import EncoderError


class LiveEncoder(TransformerEncoder):
    """The model stays on its device, and keeps its modes, its gradients and its tokenizer; random states are not touched.

    Nothing is cached. Records know it by its vectors of the moment (`identified`).
    """

    cacheable = False

    def __init__(self, parts: Parts, *, pooler: str, name: str, max_length: int | None = None) -> None:
        """parts.dense is a Linear(d, d) here, tanh follows it. EncoderError: the parts and the pooler do not go together."""
        learned = None if parts.token_pooler is None else parts.token_pooler.kind
        for kind, part, called in (
            ("cls+dense", parts.dense, "dense layer"),
            *((item.pooler, item if learned == item else None, item.title) for item in KINDS.values()),
        ):
            if (part is None) == (pooler == kind):
                raise EncoderError(f"{name}: pooler {kind} and a {called} go together")
        # A copy: a call with truncation=True leaves it switched on in the tokenizer, which would cut texts here, unseen.
        tokenizer = copy.deepcopy(parts.tokenizer) if getattr(parts.tokenizer, "is_fast", False) else parts.tokenizer
        if pooler in KINDS:
            check_ends(tokenizer, pooler, name)
        linear: Any = parts.dense
        config = EncoderConfig(
            name, None, pooler, max_length=max_length, dtype=str(parts.model.dtype).removeprefix("torch."),
            prompt=PLAIN if parts.prompt is None else PromptSettings.of(parts.prompt.settings()),
        )
        tanh = None if linear is None else lambda first: linear(first).tanh()
        super().__init__(config, replace(parts, tokenizer=tokenizer, dense=tanh))
        heads = [part for part in (linear, parts.token_pooler) if part is not None]
        self._guard = partial(borrowed, parts.model, *heads, *(parts.prompt.modules() if parts.prompt else ()))

    def identified(self) -> Encoder:
        """The same model under the identity of its present weights."""
        probe, other = probed(lambda texts: self.run(texts).vectors, self.name, self.spec.kind), copy.copy(self)
        other.spec, other.notes = probe.of(self.spec), (*self.notes, probe.note)
        return other
