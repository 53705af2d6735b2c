"""Options of CoSENT (Su 2022). Imports no torch."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from stsbench.settings import setting
from stsbench.training.api.options import Options


class CoSENTOptions(Options):
    """Defaults: those of the released code."""

    default_recipe = "stsb-bert-base"

    format: Literal["scored", "labelled"] = setting("scored", "the data: two texts and a score, or labelled pairs (NLI)")
    label_scores: dict[str, float] = setting(
        {"contradiction": 0.0, "neutral": 1.0, "entailment": 2.0}, "class -> score; pairs of other classes are left out",
        "bojone/CoSENT@124c368:cosent_nli.py", goes_with={"format": "labelled"},
    )
    scale: float = setting(20.0, "factor of the cosines' differences", "bojone/CoSENT@124c368:cosent.py", gt=0)

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if len(set(self.label_scores.values())) < 2:
            raise ValueError("label_scores needs two classes with different scores: the loss learns their order")
        return self
