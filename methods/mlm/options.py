"""Options of continued masked-LM pre-training (Devlin et al. 2019, section 3.1), and of masked next token prediction
(BehnamGhader et al. 2024, LLM2Vec). Imports no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from stsbench.settings import setting
from stsbench.training.api.options import Options, check_shares

_BERT = "Devlin et al. (2019), section 3.1"


class MaskedLMOptions(Options):
    """Defaults: BERT's. Of the chosen positions, `masked` become [MASK], `random` a random token, the rest stay."""

    default_recipe = "bert"

    probability: float = setting(0.15, "of a token to be chosen, and guessed", _BERT, gt=0, lt=1)
    masked: float = setting(0.8, "share of the chosen tokens that become [MASK]", _BERT, ge=0, le=1)
    random: float = setting(0.1, "share of the chosen tokens that become a random one; the rest stay", _BERT, ge=0, le=1)
    predict: Literal["own", "previous"] = setting(
        "own", "whose state guesses a token: its own; previous: that of the token before, as a causal model does",
        "LLM2Vec, section 2.2",
    )
    mask_token: str | None = setting(
        None, "a token of the vocabulary that stands for [MASK]; null: the tokenizer's own", "LLM2Vec",
    )
    tied: bool = setting(True, "a head made here shares the embeddings as its output layer")

    _shares = model_validator(mode="after")(check_shares)
