"""Options of DeCLUTR (Giorgi et al. 2021). Imports no torch."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from stsbench.options import POSITIVE
from stsbench.settings import setting
from stsbench.training.api.options import Options

_CONTRASTED = {"contrastive_weight": POSITIVE}


class DeCLUTROptions(Options):
    """Defaults: the paper's. Lengths are in word pieces, special tokens not counted."""

    default_recipe = "roberta-base"

    anchors: int = setting(2, "A, spans a document", "section 3.1", ge=1)
    positives: int = setting(
        2, "P, spans an anchor, whose vectors are averaged", "section 3.1", ge=1, goes_with=_CONTRASTED,
    )
    l_min: int = setting(32, "the shortest span", "section 3.1", ge=1)
    l_max: int = setting(512, "no span is as long; a document needs 2 A of them", "section 3.1", ge=2)
    sampling: Literal["default", "subsuming", "adjacent"] = setting(
        "default", "where positives lie: anywhere that overlaps or touches the anchor, within it, or beside it",
        "the released code, contrastive_utils.py", goes_with=_CONTRASTED,
    )
    spans: Literal["ids", "retokenised"] = setting(
        "ids", "what the model reads of a span: its ids as they are, or those of its decoded text",
        "retokenised: the released code",
    )
    short: Literal["drop", "refuse"] = setting(
        "drop", "documents of fewer than 2 A l_max word pieces; refuse: an error", "refuse: the released code",
    )
    temperature: float = setting(0.05, "tau, divides the cosines", "section 3.1", gt=0, goes_with=_CONTRASTED)
    contrastive_weight: float = setting(
        1.0, "of the contrastive loss; 0: masked language modelling alone", "the paper; 0.25: its published run", ge=0,
    )
    mlm_weight: float = setting(1.0, "of the masked-LM loss; 0: no token is masked", "the paper", ge=0)
    mlm_probability: float = setting(
        0.15, "of an anchor's token to be chosen; of these 80/10/10 as BERT", "the paper", gt=0, lt=1,
        goes_with={"mlm_weight": POSITIVE},
    )

    @model_validator(mode="after")
    def _check_lengths_and_loss(self) -> Self:
        if self.l_min >= self.l_max:
            raise ValueError(f"l_min {self.l_min} is to be less than l_max {self.l_max}")
        if self.contrastive_weight == self.mlm_weight == 0:
            raise ValueError("contrastive_weight and mlm_weight are both 0: there is no loss")
        return self
