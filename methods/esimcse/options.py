"""Options of ESimCSE (Wu et al. 2022). Imports no torch."""

from __future__ import annotations

from typing import Literal

from stsbench.settings import setting
from stsbench.training.api.options import Options, Queue, Repetition

_RUN = "caskcsg/sentemb@5eeec55:ESimCSE/run.sh"


class ESimCSEOptions(Options):
    """Defaults: the settings that produced the published scores of BERT-base, by the released code."""

    default_recipe = "bert-base"

    temperature: float = setting(0.05, "divides the cosine", _RUN, gt=0)
    head: Literal["mlp_train_only", "mlp", "none"] = setting(
        "mlp_train_only", "the MLP over the pooler cls, as SimCSE's: dropped at test, kept, or none", _RUN,
    )
    repeat: Repetition | None = setting(
        Repetition(), "of the second view: unit, rate, count (released or paper); null: none", _RUN,
    )
    queue: Queue | None = setting(
        Queue(start="random"), "size, momentum, start (random: released; copy: as meant); null: none", _RUN,
    )
