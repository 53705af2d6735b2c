"""Options of AnglE (Li and Li 2024), whose weights and scales are named as in its code, spelled out. Imports no torch."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from stsbench.options import POSITIVE, Where
from stsbench.settings import setting
from stsbench.training.api.options import CleanUp, Options, full_stop_setting, template_setting

_CODE = "SeanLee97/AnglE@5155458:angle_emb"
_WEIGHED = {"format": ("scored", "labelled", "triplets")}  # format positives has one term, of weight 1
_IN_BATCH = Where(lambda options: options.ibn_weight > 0 or (options.format == "triplets" and options.cln_weight > 0),
                  "ibn_weight above 0, or format triplets and cln_weight above 0")


class AnglEOptions(Options):
    """Defaults: those of the released code (ibn_w, cln_w, cosine_w, angle_w and the three tau)."""

    default_recipe = "nli-bert-base"

    format: Literal["scored", "labelled", "positives", "triplets"] = setting(
        "scored", "the data: two texts and a score, or labelled pairs (NLI); anchor, positive; and a negative",
        f"formats A, B and C of {_CODE}",
    )
    label_scores: dict[str, float] = setting(
        {"contradiction": 0.0, "entailment": 1.0}, "class -> score; pairs of other classes are left out",
        "the code's README", goes_with={"format": "labelled"},
    )
    ibn_weight: float = setting(
        1.0, "of in-batch negatives; with scored and labelled pairs for scores 0 and 1 only", f"ibn_w, {_CODE}", ge=0,
        goes_with=_WEIGHED,
    )
    cln_weight: float = setting(
        1.0, "of in-batch and hard negatives", f"cln_w, {_CODE}", ge=0, goes_with={"format": "triplets"},
    )
    cosine_weight: float = setting(0.0, "of CoSENT on cosines", f"cosine_w, {_CODE}", ge=0, goes_with=_WEIGHED)
    angle_weight: float = setting(
        0.02, "of CoSENT on the angle similarity", f"angle_w, {_CODE}", ge=0, goes_with=_WEIGHED,
    )
    ibn_scale: float = setting(
        20.0, "factor of the cosines in the terms of ibn_weight and cln_weight", f"ibn_tau, {_CODE}", gt=0,
        goes_with=_IN_BATCH,
    )
    cosine_scale: float = setting(
        20.0, "factor of the cosines in CoSENT", f"cosine_tau, {_CODE}", gt=0, goes_with={"cosine_weight": POSITIVE},
    )
    angle_scale: float = setting(
        20.0, "factor of the angles in CoSENT", f"angle_tau, {_CODE}", gt=0,
        goes_with=(_WEIGHED, {"angle_weight": POSITIVE}),
    )
    test_pooler: Literal["cls", "mean", "cls_avg"] | None = setting(
        None, "of the tested encoder; null: backbone.pooler", "cls_avg: README of the code's examples/NLI",
    )

    template: str | None = template_setting()
    full_stop: CleanUp = full_stop_setting()

    @model_validator(mode="after")
    def _check_loss(self) -> Self:
        """Raise ValueError if no loss is left, all scores are equal, or in-batch negatives cannot use the scores."""
        if not (_IN_BATCH.holds(self) or self.cosine_weight or self.angle_weight):
            raise ValueError("angle_weight and all other weights are 0, and there is no loss: set one of them")
        scores = set(self.label_scores.values())
        if len(scores) < 2:
            raise ValueError("label_scores needs two classes with different scores: the loss learns their order")
        if self.format == "labelled" and self.ibn_weight and scores != {0.0, 1.0}:
            raise ValueError(
                f"label_scores has the score {max(scores - {0.0, 1.0}):g}, and in-batch negatives (ibn_weight) take 0 and 1 "
                "alone: set ibn_weight 0, or make the scores 0 and 1"
            )
        return self
