"""Options of Contrastive Tension (Carlsson et al. 2021; sentence-transformers). Imports no torch."""

from __future__ import annotations

from typing import Literal

from stsbench.settings import setting
from stsbench.training.api.options import Options

_PAIRS, _IN_BATCH = {"objective": "pairs"}, {"objective": "in-batch"}
_AUTHORS = "the authors' code, FreddeFrallan/Contrastive-Tension@75293a8"
_LIBRARY = "sentence-transformers, ContrastiveTensionLossInBatchNegatives"


class ContrastiveTensionOptions(Options):
    """Defaults: the authors' code. Dropout is `backbone.dropout`: 0 in that code, null (the model's) in the library."""

    default_recipe = "bert-base"

    objective: Literal["pairs", "in-batch"] = setting(
        "pairs", "cross-entropy of single pairs, or over the batch, both ways", f"{_AUTHORS}; in-batch: {_LIBRARY}",
    )
    negatives: Literal["fresh", "consecutive", "anchor"] = setting(
        "fresh", "of 2 k other sentences n_i with n_(k+i), or n_1 with n_2 and so on; anchor: the sentence with k others",
        f"{_AUTHORS}; consecutive: sentence-transformers' loader; anchor: the paper's figure", goes_with=_PAIRS,
    )
    k: int = setting(7, "negative pairs a positive one", _AUTHORS, ge=1, goes_with=_PAIRS)
    reduction: Literal["mean", "sum"] = setting(
        "mean", "over the pairs of a batch", f"{_AUTHORS}; sum: sentence-transformers", goes_with=_PAIRS,
    )
    similarity: Literal["dot", "cosine"] = setting(
        "dot", "of two vectors; objective pairs compares by dot product", "sentence-transformers' script; its class: cosine",
        goes_with=_IN_BATCH,
    )
    scale: float = setting(
        1.0, "the similarity's factor at the start", "sentence-transformers' script; its class: 20", gt=0,
        goes_with=_IN_BATCH,
    )
    learned_scale: bool = setting(True, "whether the factor, exp(t), is trained", _LIBRARY, goes_with=_IN_BATCH)
    keep: Literal["best", "model2", "model1"] = setting(
        "best", "the encoder tested; best: the better on dev", f"{_AUTHORS}; model2: sentence-transformers",
    )
