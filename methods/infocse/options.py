"""Options of InfoCSE (Wu et al. 2022). Imports no torch."""

from __future__ import annotations

from typing import Literal

from stsbench.options import POSITIVE
from stsbench.settings import setting
from stsbench.training.api.options import Options

_SCRIPT = "caskcsg/sentemb@5eeec55:InfoCSE/Infocse-bert-base.sh"
_RECONSTRUCTION = {"mlm_weight": POSITIVE}


class InfoCSEOptions(Options):
    """Defaults: the settings that produced the published scores of BERT-base, by the released code."""

    default_recipe = "bert-base"

    temperature: float = setting(0.05, "divides the cosine", _SCRIPT, gt=0)
    projector: Literal["batchnorm", "tanh"] = setting(
        "batchnorm", "before the contrastive term; tanh: SimCSE's. Dropped at test", f"{_SCRIPT}, --batchnorm",
    )
    mlm_weight: float = setting(1e-5, "of the reconstruction; 0: there is none", _SCRIPT, ge=0)
    mlm_probability: float = setting(
        0.4, "of a token to be masked", f"{_SCRIPT}; BERT-large: 0.3", gt=0, lt=1, goes_with=_RECONSTRUCTION,
    )
    frozen_layers: int = setting(
        6, "the checkpoint's first, which read the masked sentence and are not trained", f"{_SCRIPT}, skip_from", ge=1,
        goes_with=_RECONSTRUCTION,
    )
    frozen_mode: Literal["eval", "train"] = setting(
        "eval", "of the frozen layers; train: they have dropout", f"{_SCRIPT}, --mlm_eval; BERT-large: train",
        goes_with=_RECONSTRUCTION,
    )
    head_layers: int = setting(
        2, "layers that read the sentence's vector beside the frozen layers' states", f"{_SCRIPT}, n_head_layers", ge=1,
        goes_with=_RECONSTRUCTION,
    )
    head_init: Literal["random", "condenser"] = setting(
        "random", "condenser: as model.pt in the backbone's folder has them", "condenser: Gao and Callan (2021)",
        goes_with=_RECONSTRUCTION,
    )
