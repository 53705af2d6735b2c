"""Choices of continued masked-LM pre-training (Devlin et al. 2019, section 3.1). Imports no torch."""

from __future__ import annotations

from pydantic import Field

from stsbench.training.api.options import Options


class MaskedLMOptions(Options):
    """Defaults: BERT's. Of the chosen positions, `masked` become [MASK], `random` a random token, the rest stay."""

    default_recipe = "bert"

    probability: float = Field(default=0.15, gt=0, lt=1)
    masked: float = Field(default=0.8, ge=0, le=1)
    random: float = Field(default=0.1, ge=0, le=1)
    tied: bool = True  # a head made here shares the embeddings as its output layer
