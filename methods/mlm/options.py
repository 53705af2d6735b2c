"""Choices of continued masked-LM pre-training (Devlin et al. 2019, section 3.1). Imports no torch."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from stsbench.settings import setting
from stsbench.training.api.options import Options

_BERT = "Devlin et al. (2019), section 3.1"


class MaskedLMOptions(Options):
    """Defaults: BERT's. Of the chosen positions, `masked` become [MASK], `random` a random token, the rest stay."""

    default_recipe = "bert"

    probability: float = setting(0.15, "of a token to be chosen, and guessed", _BERT, gt=0, lt=1)
    masked: float = setting(0.8, "share of the chosen tokens that become [MASK]", _BERT, ge=0, le=1)
    random: float = setting(0.1, "share of the chosen tokens that become a random one; the rest stay", _BERT, ge=0, le=1)
    tied: bool = setting(True, "a head made here shares the embeddings as its output layer")

    @model_validator(mode="after")
    def _check_shares(self) -> Self:
        if self.masked + self.random > 1:
            shares = f"masked {self.masked:g} and random {self.random:g}"
            raise ValueError(f"{shares} are shares of the chosen tokens: their sum may not exceed 1")
        return self
