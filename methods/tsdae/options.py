"""TSDAE's choices (Wang, Reimers and Gurevych 2021). Imports no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stsbench.training.api.options import Options


class TSDAEOptions(Options):
    """Defaults: the paper's."""

    default_recipe = "wiki-bert-base"

    delete: float = Field(default=0.6, ge=0, lt=1)  # share of a sentence's words or sub-words that is deleted
    unit: Literal["word", "subword"] = "word"  # subword: token ids, after the text was cut at max_length
    # of words: as written English, or every word and mark apart
    detokenise: Literal["treebank-like", "join"] = "treebank-like"
    tie: bool = True  # encoder and decoder share what they have in common; the cross-attention is the decoder's
    decoder: str | None = None  # Hub id or folder of another decoder, not tied; null: the encoder's checkpoint
