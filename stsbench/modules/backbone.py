"""The transformer being trained: padded tokens in, hidden states out, pooled as its encoder will be tested."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from stsbench.encoders.checkpoint import load_model, load_tokenizer, position_limit
from stsbench.encoders.pooling import STATES
from stsbench.errors import EncoderError
from stsbench.modules.packed_training import PackedTraining, packable

Engine = Literal["auto", "packed", "padded"]


class Backbone(nn.Module):
    """A transformers encoder without a pooling layer, its tokenizer and its pooler.

    engine: "packed" computes real tokens only (modules/packed_training.py; BERT and RoBERTa on a CPU), "padded" is the
    transformers module's own pass, "auto" the first where it is possible. Their results are the same up to rounding, their
    dropout masks are other draws from the same distribution. Padding holds no state worth reading in either.
    """

    def __init__(
        self, model: Any, tokenizer: Any, pooler: str = "cls", max_length: int = 32, engine: Engine = "auto"
    ) -> None:
        super().__init__()
        self.model = model
        self.tokenizer = tokenizer
        self.pooler = pooler
        self.max_length = max_length
        self.engine: Engine = engine

    @property
    def width(self) -> int:
        """d, the width of a hidden state."""
        return int(self.model.config.hidden_size)

    def forward(self, ids: Tensor, mask: Tensor, wanted: tuple[int, ...] = (-1,)) -> list[Tensor]:
        """The hidden states `wanted` (0 embeddings ... -1 last layer), each (n, L, d). ids, mask: (n, L)."""
        if packed := self._packed(ids, mask):
            return packed.states(wanted)
        if wanted == (-1,):
            return [self.model(input_ids=ids, attention_mask=mask).last_hidden_state]
        states = self.model(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states
        return [states[index] for index in wanted]

    def pooled(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(n, d) sentence vectors by the pooler. ids, mask: (n, L)."""
        if self.pooler == "cls" and (packed := self._packed(ids, mask)):
            return packed.first()
        return pool_padded(self.pooler, self(ids, mask, STATES[self.pooler]), mask)

    def engine_on(self, device: str) -> str:
        """The engine that "auto" stands for on this kind of device: their dropout masks are other draws."""
        if self.engine != "auto":
            return self.engine
        return "packed" if device == "cpu" and packable(self.model) else "padded"

    def _packed(self, ids: Tensor, mask: Tensor) -> PackedTraining | None:
        """The packed pass of this batch, or None where the padded one is to run. EncoderError: packed asked for in vain."""
        if self.engine not in get_args(Engine):
            raise EncoderError(f"engine {self.engine!r} is unknown (there are {', '.join(get_args(Engine))})")
        if self.engine == "padded":
            return None
        # the cls pooler reads place 0, the packed pass the first real token
        if ids.device.type == "cpu" and packable(self.model) and bool(mask[:, 0].all()):
            return PackedTraining(self.model, ids, mask)
        if self.engine == "auto":
            return None
        raise EncoderError(
            f"no packed training pass for this {type(self.model).__name__} on {ids.device.type}: it needs a plain BERT or "
            "RoBERTa on a CPU, and rows that begin with a token; use engine 'padded'"
        )


def pool_padded(name: str, states: list[Tensor], mask: Tensor) -> Tensor:
    """(n, d) vectors from padded hidden states, as stsbench.encoders.pooling computes them from packed ones.

    states: those named by STATES[name], each (n, L, d); mask: (n, L), 1 on real tokens.
    """
    if name == "cls":
        return states[0][:, 0]
    real = mask.unsqueeze(-1)
    if name == "max":
        return states[0].masked_fill(real == 0, -torch.inf).amax(1)
    means = [(state * real).sum(1) / real.sum(1) for state in states]
    return means[0] if len(means) == 1 else (means[0] + means[1]) / 2


def load_backbone(
    folder: Path, name: str, pooler: str = "cls", max_length: int = 32, dropout: float | None = None
) -> Backbone:
    """The folder's encoder in float32, every weight trainable, in train mode. dropout: on hidden states and attention.

    Raises EncoderError for what cannot be loaded, and for a max_length beyond the model's positions.
    """
    model, _ = load_model(folder, name, "float32", dropout=dropout)
    tokenizer = load_tokenizer(folder, name)
    limit = position_limit(model, tokenizer)
    if limit is not None and max_length > limit:
        raise EncoderError(
            f"backbone.max_length {max_length} is more than the {limit} positions of {name}: "
            f"--set backbone.max_length={limit}"
        )
    if getattr(model, "pooler", None) is not None:
        model.pooler = None  # neither trained nor tested: the methods that need a dense layer bring their own
    return Backbone(model.requires_grad_(True).train(), tokenizer, pooler, max_length)
