"""SARCSE's choices (Liu et al. 2024). The TextCNN's own stand in the recipe's backbone.text_cnn. Imports no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stsbench.training.api.options import Options


class SARCSEOptions(Options):
    """Defaults: the paper's, and where it is silent the plainest reading."""

    default_recipe = "roberta-base"

    view: Literal["dropout", "given"] = "dropout"  # the positive: the sentence again, or what the data give
    similarity: Literal["cosine", "dot"] = "cosine"
    temperature: float = Field(default=0.05, gt=0)
    contrastive_weight: float = Field(default=1.0, ge=0)  # alpha of the total loss
    beta: float = Field(default=2.5e-4, ge=0)  # weight of the first view's reconstruction
    gamma: float = Field(default=2.5e-4, ge=0)  # and of the other views'; with both 0 there is no decoder
    self_adaptive: bool = True  # Eq. 8; false: every token weighs 1
    theta: float = Field(default=0.1, ge=0, le=1)  # least weight of a frequent token
    frequency_scale: float = Field(default=50.0, ge=0)  # lambda of Eq. 8: weight = max(theta, 1 - lambda * rel. frequency)
    unpool: Literal["max", "repeat", "repeat+position"] = "max"  # from a pooled channel back to its windows
    transposed_fusion: Literal["shared", "separate"] = "shared"  # one transposed convolution for all kernels, or one each
    mse_reduction: Literal["mean", "sum"] = "mean"  # over the coordinates of a token vector
    detach_target: bool = False  # true: the token vectors to be rebuilt get no gradient
    head_rate: float = Field(default=1.0, gt=0)  # rate of TextCNN and decoder, as a multiple of training.learning_rate
