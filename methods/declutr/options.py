"""DeCLUTR's choices (Giorgi et al. 2021). Imports no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stsbench.training.api.options import Options


class DeCLUTROptions(Options):
    """Defaults: the paper's. Lengths are in word pieces, special tokens not counted."""

    default_recipe = "roberta-base"

    anchors: int = Field(default=2, ge=1)  # A, spans a document
    positives: int = Field(default=2, ge=1)  # P, spans an anchor, whose vectors are averaged
    l_min: int = Field(default=32, ge=1)  # the shortest span
    l_max: int = Field(default=512, ge=2)  # no span is as long; a document needs 2 A of them
    # where positives lie; default: anywhere that overlaps or touches the anchor; subsuming: within it; adjacent: beside it
    sampling: Literal["default", "subsuming", "adjacent"] = "default"
    # what the model reads of a span: its ids as they are, or those of its decoded text, as the released code
    spans: Literal["ids", "retokenised"] = "ids"
    # documents of fewer than 2 A l_max word pieces; refuse: an error, as in the released code
    short: Literal["drop", "refuse"] = "drop"
    temperature: float = Field(default=0.05, gt=0)
    contrastive_weight: float = Field(default=1.0, ge=0)  # 0: masked language modelling alone
    mlm_weight: float = Field(default=1.0, ge=0)  # 0: no token is masked
    mlm_probability: float = Field(default=0.15, gt=0, lt=1)  # of an anchor's token to be chosen; of these 80/10/10 as BERT
