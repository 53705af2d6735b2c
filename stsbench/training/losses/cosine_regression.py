"""Cosine similarity regressed on a score."""

from __future__ import annotations

from typing import Literal

from torch import Tensor
from torch.nn import functional

RegressedSimilarity = Literal["cosine", "rescaled_cosine"]


def cosine_regression(u: Tensor, v: Tensor, targets: Tensor, similarity: RegressedSimilarity = "cosine") -> Tensor:
    """The mean over pairs of (s(u, v) - target)^2, s = cos, or (cos + 1) / 2 for "rescaled_cosine".

    u, v: (n, d); targets: (n,), in [0, 1]. A norm below 1e-8 counts as 1e-8. No pair (n = 0) gives 0, with a gradient.
    Source: Reimers and Gurevych (2019), Sentence-BERT, section 3, regression objective.
    """
    similarities = functional.cosine_similarity(u, v, dim=1, eps=1e-8)
    if similarity == "rescaled_cosine":
        similarities = (similarities + 1) / 2
    return functional.mse_loss(similarities, targets.to(similarities.dtype), reduction="sum") / max(len(targets), 1)
