"""Options of conditional masked language modelling (Yang et al. 2020). Imports no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from stsbench.settings import setting
from stsbench.training.api.options import Options, check_shares


class ConditionalMaskedLMOptions(Options):
    """Defaults: the paper's. No training code was released, and values without a source are inferred."""

    default_recipe = "bert-base"

    sentence: Literal["next", "same"] = setting(
        "next", "whose masked tokens are guessed; next needs data.contiguous", "the paper's introduction: next",
    )
    both_directions: bool = setting(
        False, "the sentence is also guessed with the vector of the next one; the two terms are added",
        goes_with={"sentence": "next"},
    )
    vectors: int = setting(
        15, "read before the masked sentence: the other's own vector and projections of it; 0: plain masked LM", ge=0,
    )
    probability: float = setting(0.15, "of each ordinary token, to be chosen", "BERT", gt=0, lt=1)
    masked: float = setting(0.8, "share of the chosen tokens that become [MASK]", "BERT", ge=0, le=1)
    random: float = setting(0.1, "share of them that become a random token; the rest stay", "BERT", ge=0, le=1)

    _shares = model_validator(mode="after")(check_shares)
