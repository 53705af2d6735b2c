"""Encoders of a model in another state than its folder's: between two steps of a training, or with dropout on as in
training (on which BERT-flow's code fits its flow).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from stsbench.encoders.base import Encoded, Encoder, Progress
from stsbench.encoders.forward.model import borrowed, dropout_rates
from stsbench.encoders.forward.pooling import KINDS
from stsbench.encoders.probe import identified_now
from stsbench.encoders.prompt.prompt import PLAIN, PromptSettings, fits_pooler
from stsbench.encoders.transformer.config import EncoderConfig
from stsbench.encoders.transformer.parts import Parts, check_ends
from stsbench.encoders.transformer.transformer import ENGINE, TransformerEncoder
from stsbench.errors import EncoderError
from stsbench.torch_random import Generators, drawing


class LiveEncoder(TransformerEncoder):
    """A model in training as an encoder; its device, modes, gradients and tokenizer, and random states, stay unchanged.

    Nothing is cached. In records it is identified by its present vectors (`identified`).
    """

    cacheable = False

    def __init__(self, parts: Parts, *, pooler: str, name: str, max_length: int | None = None) -> None:
        """parts.dense: a Linear(d, d), followed by tanh. EncoderError: the parts and the pooler do not go together."""
        learned = None if parts.token_pooler is None else parts.token_pooler.kind
        for kind, part, called in (
            ("cls+dense", parts.dense, "dense layer"),
            *((item.pooler, item if learned == item else None, item.title) for item in KINDS.values()),
        ):
            if (part is None) == (pooler == kind):
                raise EncoderError(f"{name}: pooler {kind} and a {called} go together")
        # Copied, as a call with truncation=True elsewhere leaves truncation on in the tokenizer, and would cut these texts.
        tokenizer = copy.deepcopy(parts.tokenizer) if getattr(parts.tokenizer, "is_fast", False) else parts.tokenizer
        if pooler in KINDS:
            check_ends(tokenizer, pooler, name)
        linear: Any = parts.dense
        config = EncoderConfig(
            name, None, pooler, max_length=max_length, dtype=str(parts.model.dtype).removeprefix("torch."),
            prompt=PLAIN if parts.prompt is None else PromptSettings.from_stored(parts.prompt.settings()),
        )
        tanh = None if linear is None else lambda first: linear(first).tanh()
        prompt = parts.prompt
        if prompt is not None and pooler != "mask" and fits_pooler(prompt.settings(), pooler):
            prompt = None  # it is text only, which the config holds
        super().__init__(config, replace(parts, tokenizer=tokenizer, dense=tanh, prompt=prompt))
        heads = [part for part in (linear, parts.token_pooler) if part is not None]
        self._guard = partial(borrowed, parts.model, *heads, *(parts.prompt.modules() if parts.prompt else ()))

    def identified(self) -> Encoder:
        """Return a copy that is identified by the model's present vectors."""
        return identified_now(self, self.name)


class WithDropout(Encoder):
    """A transformer with its dropout on: the padded pass in train mode, with masks from generators of its own."""

    cacheable = False
    engine = ENGINE

    def __init__(self, config: EncoderConfig, parts: Parts, batch_tokens: int | None, seed: int) -> None:
        """Raise EncoderError, one line: every rate of the model's config is 0, or none is known."""
        if not any(dropout_rates(parts.model.config).values()):
            raise EncoderError(f"{config.name} has no dropout: its config.json sets no rate above 0")
        self._encoder = TransformerEncoder(config, parts, batch_tokens=batch_tokens, attention="padded")
        self._encoder.ready()  # whether padding changes vectors is tested without dropout
        self.spec = replace(self._encoder.spec, options={**self._encoder.spec.options, "dropout": seed})
        self.dimension = self._encoder.dimension
        self._generators = Generators(seed)

    def run(self, texts: Sequence[str], progress: Progress | None = None) -> Encoded:
        """Return vectors of n texts, which need not be distinct: each has masks of its own."""
        model = self._encoder.model
        with drawing(self._generators):
            model.train()
            try:
                return self._encoder.run(texts, progress)
            finally:
                model.eval()

    @property
    def device(self) -> torch.device:
        """Return the model's device."""
        device: torch.device = self._encoder.device
        return device

    def identified(self) -> Encoder:
        """Return a copy with a random fingerprint, since its vectors differ at every call."""
        return identified_now(self, self.spec.name)
