"""A transformers encoder whose dropout is on, as in training: what BERT-flow's code fits its flow on."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import torch

from stsbench.encoders.base import Encoded, Encoder, Progress
from stsbench.encoders.forward.dropout import dropout_rates
from stsbench.encoders.probe import probed
from stsbench.encoders.transformer.config import EncoderConfig
from stsbench.encoders.transformer.parts import Parts
from stsbench.encoders.transformer.transformer import ENGINE, TransformerEncoder
from stsbench.errors import EncoderError
from stsbench.torch_random import Generators, drawing


class WithDropout(Encoder):
    """The padded pass in train mode. The masks come from generators of its own."""

    cacheable = False
    engine = ENGINE

    def __init__(self, config: EncoderConfig, parts: Parts, batch_tokens: int | None, seed: int) -> None:
        """EncoderError, one line: every rate of the model's config is 0, or none is known."""
        if not any(dropout_rates(parts.model.config).values()):
            raise EncoderError(f"{config.name} has no dropout: its config.json sets no rate above 0")
        self._encoder = TransformerEncoder(config, parts, batch_tokens=batch_tokens, attention="padded")
        self._encoder.ready()  # how it stands with padding is found out without dropout
        self.spec = replace(self._encoder.spec, options={**self._encoder.spec.options, "dropout": seed})
        self.dimension = self._encoder.dimension
        self._generators = Generators(seed)

    def run(self, texts: Sequence[str], progress: Progress | None = None) -> Encoded:
        """Vectors of n texts, which need not be distinct: each has masks of its own."""
        model = self._encoder.model
        with drawing(self._generators):
            model.train()
            try:
                return self._encoder.run(texts, progress)
            finally:
                model.eval()

    @property
    def device(self) -> torch.device:
        """The model's."""
        device: torch.device = self._encoder.device
        return device

    def identified(self) -> Encoder:
        """Under a fingerprint that never comes back: its vectors do not either."""
        probe, other = probed(lambda texts: self.run(texts).vectors, self.spec.name, self.spec.kind), copy.copy(self)
        other.spec, other.notes = probe.of(self.spec), (*self.notes, probe.note)
        return other
