"""CoSENT's choices (Su 2022). Imports no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stsbench.training.api.options import Options


class CoSENTOptions(Options):
    """Defaults: those of the released code."""

    default_recipe = "stsb-bert-base"

    format: Literal["scored", "labelled"] = "scored"  # data of two texts and a score, or labelled pairs (NLI)
    # labelled: class -> score; pairs of other classes are left out
    label_scores: dict[str, float] = Field(default={"contradiction": 0.0, "neutral": 1.0, "entailment": 2.0})
    scale: float = Field(default=20.0, gt=0)  # of the cosines: their differences times 20
