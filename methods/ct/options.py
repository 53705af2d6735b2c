"""Contrastive Tension's choices (Carlsson et al. 2021; sentence-transformers). Imports no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stsbench.training.api.options import Options


class CTOptions(Options):
    """Defaults: the authors' code. Dropout is `backbone.dropout`: 0 as there, null (the model's own) as in the library."""

    # pairs: a binary cross-entropy of drawn pairs; in-batch: sentence-transformers' cross-entropy over the batch, both ways
    objective: Literal["pairs", "in-batch"] = "pairs"
    # of a positive (s, s): fresh: (a_i, b_i), all 2 k of them other sentences (authors' code); consecutive: the same in the
    # order of sentence-transformers' loader, (1, 2), (3, 4), ...; anchor: (s, a_i), k other sentences (the paper's figure)
    negatives: Literal["fresh", "consecutive", "anchor"] = "fresh"
    k: int = Field(7, ge=1)  # negative pairs a positive one
    reduction: Literal["mean", "sum"] = "mean"  # over the pairs of a batch; sum: sentence-transformers
    similarity: Literal["dot", "cosine"] = "dot"  # in-batch; pairs compares by dot product
    scale: float = Field(1.0, gt=0)  # in-batch: the similarity's factor at the start
    learned_scale: bool = True  # in-batch: whether the factor, exp(t), is trained
    # the encoder that is tested; best: the better of the two on the development data, at each evaluation (authors' code)
    keep: Literal["best", "model2", "model1"] = "best"
