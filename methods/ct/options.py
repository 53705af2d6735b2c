"""Contrastive Tension's choices (Carlsson et al. 2021; sentence-transformers). Imports no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stsbench.training.api.options import Options


class ContrastiveTensionOptions(Options):
    """Defaults: the authors' code. Dropout is `backbone.dropout`: 0 as there, null (the model's own) as in the library."""

    default_recipe = "bert-base"

    objective: Literal["pairs", "in-batch"] = "pairs"  # cross-entropy of single pairs, or over the batch, both ways
    # fresh: n_i with n_(k+i), as the authors' code; consecutive: n_1 with n_2, ..., as sentence-transformers' loader
    negatives: Literal["fresh", "consecutive", "anchor"] = "fresh"  # 2 k others in two orders; anchor: s with k others
    k: int = Field(default=7, ge=1)  # negative pairs a positive one
    reduction: Literal["mean", "sum"] = "mean"  # over the pairs of a batch; sum: sentence-transformers
    similarity: Literal["dot", "cosine"] = "dot"  # in-batch; pairs compares by dot product
    scale: float = Field(default=1.0, gt=0)  # in-batch: the similarity's factor at the start
    learned_scale: bool = True  # in-batch: whether the factor, exp(t), is trained
    keep: Literal["best", "model2", "model1"] = "best"  # the encoder tested; best: the better on dev, as the authors' code
