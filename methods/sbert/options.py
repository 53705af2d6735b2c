"""Sentence-BERT's choices (Reimers and Gurevych 2019), each ablation of the paper one of them. Imports no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stsbench.training.api.options import Options
from stsbench.training.losses.pair_features import SBERT_FEATURES, Features

TestPooler = Literal["mean", "cls", "max", "first_last:layer1", "last2"]


class SBERTOptions(Options):
    """Defaults: the classification objective on NLI, as the authors' library trains it."""

    stages = ("nli", "sts", "triplet")
    default_recipe = "nli-bert-base"

    objective: Literal["nli", "sts", "nli-sts", "triplet"] = "nli"  # NLI labels, scores, one after the other, triplets
    features: Features = SBERT_FEATURES  # of the classifier; difference: |u - v|, product: u * v, max_square: max(u, v)^2
    bias: bool = True  # of the classifier: the library has one, the paper's formula none
    classifier_init: Literal["torch", "truncated_normal"] = "torch"  # torch's Linear; the ports: N(0, 0.02^2) within 2 sd
    scale: tuple[float, float] = (0.0, 5.0)  # the least and the greatest score of the data: they become 0 and 1
    similarity: Literal["cosine", "rescaled_cosine"] = "cosine"  # what is to be the score; rescaled: (cos + 1) / 2
    margin: float = Field(default=1.0, gt=0)  # of triplets
    test_pooler: TestPooler | None = None  # of the tested encoder; null: backbone.pooler, which is trained
