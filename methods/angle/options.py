"""AnglE's choices (Li and Li 2024), its weights and scales by the code's names spelled out. Imports no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stsbench.training.api.options import Options


class AnglEOptions(Options):
    """Defaults: those of the released code (ibn_w, cln_w, cosine_w, angle_w and the three tau)."""

    default_recipe = "nli-bert-base"

    # the code's format A: two texts and a score, or labelled pairs (NLI); B: anchor, positive; C: and a negative
    format: Literal["scored", "labelled", "positives", "triplets"] = "scored"
    # labelled: class -> score; pairs of other classes are left out
    label_scores: dict[str, float] = Field(default={"contradiction": 0.0, "entailment": 1.0})
    ibn_weight: float = Field(default=1.0, ge=0)  # in-batch negatives; of scored and labelled pairs: scores 0 and 1 only
    cln_weight: float = Field(default=1.0, ge=0)  # triplets: in-batch and hard negatives
    cosine_weight: float = Field(default=0.0, ge=0)  # CoSENT on cosines
    angle_weight: float = Field(default=0.02, ge=0)  # CoSENT on the angle similarity
    ibn_scale: float = Field(default=20.0, gt=0)  # of the cosines in ibn and cln
    cosine_scale: float = Field(default=20.0, gt=0)
    angle_scale: float = Field(default=20.0, gt=0)
    test_pooler: Literal["cls", "mean", "cls_avg"] | None = None  # of the tested encoder; null: backbone.pooler
