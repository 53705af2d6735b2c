"""InfoCSE's choices (Wu et al. 2022). Imports no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stsbench.training.api.options import Options


class InfoCSEOptions(Options):
    """Defaults: what produced the published scores of BERT-base, by the released code."""

    default_recipe = "bert-base"

    temperature: float = Field(default=0.05, gt=0)
    projector: Literal["batchnorm", "tanh"] = "batchnorm"  # before the contrastive term; tanh: SimCSE's. Dropped at test
    mlm_weight: float = Field(default=1e-5, ge=0)  # of the reconstruction; 0: there is none
    mlm_probability: float = Field(default=0.4, gt=0, lt=1)  # of a token to be masked
    frozen_layers: int = Field(default=6, ge=1)  # the checkpoint's first, which read the masked sentence and are not trained
    frozen_mode: Literal["eval", "train"] = "eval"  # of the frozen layers; train: they have dropout
    head_layers: int = Field(default=2, ge=1)  # layers that read the sentence's vector beside the frozen layers' states
    head_init: Literal["random", "condenser"] = "random"  # condenser: as model.pt in the backbone's folder has them
