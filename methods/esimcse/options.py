"""ESimCSE's choices (Wu et al. 2022). Imports no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stsbench.training.api.options import Options, Queue, Repetition


class ESimCSEOptions(Options):
    """Defaults: what produced the published scores of BERT-base, by the released code."""

    default_recipe = "bert-base"

    temperature: float = Field(default=0.05, gt=0)
    head: Literal["mlp_train_only", "mlp", "none"] = "mlp_train_only"  # as SimCSE's: dropped at test, kept, no MLP
    repeat: Repetition | None = Repetition()  # of the second view: unit, rate, count (released or paper); null: none
    queue: Queue | None = Queue(start="random")  # size, momentum, start (random: released; copy: as meant); null: none
