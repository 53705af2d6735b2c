"""Options of TSDAE (Wang, Reimers and Gurevych 2021). Imports no torch."""

from __future__ import annotations

from typing import Literal

from stsbench.settings import setting
from stsbench.training.api.options import Options


class TSDAEOptions(Options):
    """Defaults: the paper's."""

    default_recipe = "wiki-bert-base"

    delete: float = setting(
        0.6, "share of a sentence's words or sub-words that is deleted", "the paper; the library's scripts since 2025: 0.4",
        ge=0, lt=1,
    )
    unit: Literal["word", "subword"] = setting("word", "subword: token ids, after the text was cut at max_length")
    detokenise: Literal["treebank-like", "join"] = setting(
        "treebank-like", "of words: as written English, or every word and mark apart", "after the authors' library",
        goes_with={"unit": "word"},
    )
    tie: bool = setting(
        True, "encoder and decoder share what they have in common; the cross-attention is the decoder's", "the paper",
    )
    decoder: str | None = setting(
        None, "Hub id or folder of another decoder, not tied; null: the encoder's checkpoint", goes_with={"tie": False},
    )
