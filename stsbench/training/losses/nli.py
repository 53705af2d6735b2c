"""Natural language inference as classification of two sentence vectors."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from stsbench.training.losses.pair_features import SBERT_FEATURES, Feature, feature_blocks


def nli_cross_entropy(
    u: Tensor, v: Tensor, weight: Tensor, bias: Tensor | None = None, *, labels: Tensor,
    features: tuple[Feature, ...] = SBERT_FEATURES,
) -> Tensor:
    """The mean over pairs of -log softmax(W [u; v; |u - v|] + b)[label].

    u, v: (n, d) premises and hypotheses; weight: (c, k d) for c classes, 3 or, say, 2, and the k blocks of `features`; bias:
    (c,), which the paper does not have; labels: (n,) class numbers. No pair (n = 0) gives 0, with a gradient.
    Source: Reimers and Gurevych (2019), Sentence-BERT, section 3, classification objective.
    """
    logits = functional.linear(torch.cat(feature_blocks(u, v, features), dim=1), weight, bias)
    # torch leaves out a label of -100 without a word: nothing is to be left out
    ignored = torch.iinfo(torch.int64).min
    return functional.cross_entropy(logits, labels, reduction="sum", ignore_index=ignored) / max(len(labels), 1)
