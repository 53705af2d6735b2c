"""Options of Sentence-BERT (Reimers and Gurevych 2019), including the paper's ablations. Imports no torch."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from stsbench.losses.choices import SBERT_FEATURES, Features
from stsbench.settings import setting
from stsbench.training.api.options import Options

TestPooler = Literal["mean", "cls", "max", "first_last:layer1", "last2"]
_NLI = {"objective": ("nli", "nli-sts")}
_STS = {"objective": ("sts", "nli-sts")}


class SBERTOptions(Options):
    """Defaults: the classification objective on NLI, as the authors' library trains it."""

    stages = ("nli", "sts", "triplet")
    default_recipe = "nli-bert-base"

    objective: Literal["nli", "sts", "nli-sts", "triplet"] = setting(
        "nli", "NLI labels, scores, one after the other, or triplets", "section 3",
    )
    features: Features = setting(
        SBERT_FEATURES, "what the classifier sees; difference: |u - v|, product: u * v, max_square: max(u, v)^2",
        "section 3, Table 6; max_square: ConSERT's code", goes_with=_NLI,
    )
    bias: bool = setting(True, "of the classifier", "the library; the paper's formula has none", goes_with=_NLI)
    classifier_init: Literal["torch", "truncated_normal"] = setting(
        "torch", "torch's Linear, or N(0, 0.02^2) within 2 sd", "the library; truncated_normal: the ports to TensorFlow and "
        "Keras", goes_with=_NLI,
    )
    scale: tuple[float, float] = setting(
        (0.0, 5.0), "the least and the greatest score of the data: they become 0 and 1", "the library", goes_with=_STS,
    )
    similarity: Literal["cosine", "rescaled_cosine"] = setting(
        "cosine", "what is to be the score; rescaled: (cos + 1) / 2", "section 3; rescaled: BERT-flow", goes_with=_STS,
    )
    margin: float = setting(1.0, "of triplets", "section 3", gt=0, goes_with={"objective": "triplet"})
    test_pooler: TestPooler | None = setting(
        None, "of the tested encoder; null: backbone.pooler, which is trained", "BERT-flow, BERT-whitening",
    )

    @model_validator(mode="after")
    def _scale_has_a_width(self) -> Self:
        low, high = self.scale
        if low >= high:
            raise ValueError(f"scale [{low:g}, {high:g}]: the least score comes first, then the greatest")
        return self
