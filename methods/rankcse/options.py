"""RankCSE's choices (Liu et al. 2023), and those of the community code where it differs. Imports no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stsbench.training.api.ranking_options import RankingOptions


class RankCSEOptions(RankingOptions):
    """Defaults: what the paper describes, but for the teachers, which have to be named."""

    default_recipe = "listmle-bert-base"

    temperature: float = Field(default=0.05, gt=0)  # of the contrastive term
    head: Literal["mlp_train_only", "mlp", "none"] = "mlp_train_only"  # as SimCSE's
    view: Literal["dropout", "given"] = "dropout"  # the positive: the sentence again, or what the data give
