"""Options of SARCSE (Liu et al. 2024). Those of its TextCNN are in the recipe's backbone.text_cnn. Imports no torch."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from stsbench.options import POSITIVE, Values, Where
from stsbench.settings import setting
from stsbench.training.api.options import Options

_DECODER = Where(lambda options: options.rebuilds, "beta or gamma above 0")
_WEIGHED = (_DECODER, {"self_adaptive": True})


class SARCSEOptions(Options):
    """Defaults: the paper's, and the simplest choice where the paper is silent."""

    default_recipe = "roberta-base"

    view: Literal["dropout", "given"] = setting("dropout", "the positive: the sentence again, or what the data give")
    similarity: Literal["cosine", "dot"] = setting(
        "cosine", "dot: without temperature", "Eq. 11", goes_with={"contrastive_weight": POSITIVE},
    )
    temperature: float = setting(
        0.05, "divides the cosine", "Eq. 11", gt=0, goes_with=({"contrastive_weight": POSITIVE}, {"similarity": "cosine"}),
    )
    contrastive_weight: float = setting(1.0, "alpha; 0: no contrastive term", "total loss", ge=0)
    beta: float = setting(2.5e-4, "weight of the first view's reconstruction", "total loss", ge=0)
    gamma: float = setting(
        2.5e-4, "and of the other views'; with both 0 there is no decoder", "total loss; 0: Table 1", ge=0,
    )
    self_adaptive: bool = setting(True, "tokens weigh by their frequency; false: every token weighs 1", "Eq. 8, Table 1")
    theta: float = setting(0.1, "least weight of a frequent token", "Eq. 8, Table 3", ge=0, le=1, goes_with=_WEIGHED)
    frequency_scale: float = setting(
        50.0, "lambda: weight = max(theta, 1 - lambda * rel. frequency)", "Eq. 8", ge=0,
        goes_with=(*_WEIGHED, {"theta": Values(lambda theta: theta < 1, "below 1")}),
    )
    unpool: Literal["max", "repeat", "repeat+position"] = setting(
        "max", "from a pooled channel back to its windows: that of its maximum, all, or all with a learned position",
        "Eq. 6, which leaves it open", goes_with=_DECODER,
    )
    transposed_fusion: Literal["shared", "separate"] = setting(
        "shared", "one transposed convolution for all kernels, or one each", "Eq. 5, which leaves it open",
        goes_with=_DECODER,
    )
    mse_reduction: Literal["mean", "sum"] = setting("mean", "over the coordinates of a token vector", goes_with=_DECODER)
    detach_target: bool = setting(False, "true: the token vectors to be rebuilt get no gradient", goes_with=_DECODER)
    head_rate: float = setting(1.0, "rate of TextCNN and decoder, as a multiple of training.learning_rate", gt=0)

    @property
    def rebuilds(self) -> bool:
        """Return whether there is a decoder, which a reconstruction term of a weight above 0 needs."""
        return self.beta > 0 or self.gamma > 0

    @model_validator(mode="after")
    def _there_is_a_loss(self) -> Self:
        if self.contrastive_weight == 0 and not self.rebuilds:
            raise ValueError("contrastive_weight, beta and gamma are all 0: there is no loss; set one above 0")
        return self
