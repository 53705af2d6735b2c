"""Options of RankCSE (Liu et al. 2023), including where the community code differs. Imports no torch."""

from __future__ import annotations

from typing import Literal

from stsbench.settings import setting
from stsbench.training.api.options import RankingOptions


class RankCSEOptions(RankingOptions):
    """Defaults: as in the paper. The teachers have no default."""

    default_recipe = "listmle-bert-base"

    temperature: float = setting(0.05, "of the contrastive term", "community README", gt=0)
    head: Literal["mlp_train_only", "mlp", "none"] = setting(
        "mlp_train_only", "as SimCSE's, the MLP over the pooler cls: dropped at test, kept, or none", "community README",
    )
    view: Literal["dropout", "given"] = setting("dropout", "the positive: the sentence again, or what the data give")
