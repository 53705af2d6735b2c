"""Choices of conditional masked language modelling (Yang et al. 2020, as read here). Imports no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stsbench.training.api.options import Options


class ConditionalMaskedLMOptions(Options):
    """Defaults: the paper's as far as they are known; no training code was released."""

    default_recipe = "bert-base"

    sentence: Literal["next", "same"] = "next"  # whose masked tokens are guessed; next needs data.contiguous
    both_directions: bool = False  # the sentence is also guessed with the vector of the next one; the two terms are added
    vectors: int = Field(default=15, ge=0)  # read before the masked sentence: the other's own, projections; 0: masked LM
    probability: float = Field(default=0.15, gt=0, lt=1)  # of each ordinary token, to be chosen
    masked: float = Field(default=0.8, ge=0, le=1)  # of the chosen tokens these become [MASK],
    random: float = Field(default=0.1, ge=0, le=1)  # and these a random token; the rest stay
