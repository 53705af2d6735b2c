"""ConSERT's choices (Yan et al. 2021), and what its released code does otherwise. Imports no torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from stsbench.training.api.options import Options
from stsbench.training.losses.pair_features import SBERT_FEATURES, Features

Setting = Literal["unsup", "sup", "joint", "sup-unsup", "joint-unsup"]
# span: in the released code only
Augmentation = Literal["none", "shuffle", "token_cutoff", "feature_cutoff", "dropout", "span", "adversarial"]
Rate = Annotated[float, Field(gt=0, lt=1)] | None


class ConSERTOptions(Options):
    """Defaults: the unsupervised ConSERT-base of the paper. A pair is what is done to the first and to the second view."""

    stages = ("sup", "joint", "unsup")
    default_recipe = "unsup-bert-base"

    setting: Setting = "unsup"  # its stages: sup, NLI's cross-entropy; unsup, the contrastive loss; joint, both
    views: tuple[Augmentation, Augmentation] = ("feature_cutoff", "shuffle")  # of stage unsup
    rates: tuple[Rate, Rate] = (0.2, None)  # share of tokens, features or elements set to 0; span: of tokens outside it
    joint_views: tuple[Augmentation, Augmentation] = ("none", "token_cutoff")  # of stage joint
    joint_rates: tuple[Rate, Rate] = (None, 0.15)
    adversarial_norm: float = Field(default=1.0, gt=0)  # length of what is added to each token's embedding; not in the paper
    temperature: float = Field(default=0.1, gt=0)
    contrastive_weight: float = Field(default=0.15, gt=0)  # alpha of stage joint, cl_rate in the code
    weigh_unsup: bool = False  # the same weight in stage unsup (released code)
    nt_xent: Literal["mean", "sum"] = "mean"  # over 2N views; sum: of the means of first and of second views (released code)
    features: Features = SBERT_FEATURES  # what the NLI classifier sees; the released scripts add max_square
    test_pooler: Literal["last2", "mean", "cls", "max", "first_last:embeddings", "first_last:layer1"] = "last2"
