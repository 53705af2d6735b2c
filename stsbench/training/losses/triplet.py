"""Triplets: the anchor nearer to its positive than to its negative, by a margin."""

from __future__ import annotations

from torch import Tensor
from torch.linalg import vector_norm

from stsbench.training.losses.rows import check_positive


def triplet(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0) -> Tensor:
    """The mean over triplets of max(|a - p| - |a - n| + margin, 0), by Euclidean distance; all are (n, d).

    No triplet (n = 0) gives 0, with a gradient.
    Source: Reimers and Gurevych (2019), Sentence-BERT, section 3, triplet objective.
    """
    check_positive(margin=margin)
    gaps: Tensor = vector_norm(anchor - positive, dim=1) - vector_norm(anchor - negative, dim=1)
    return (gaps + margin).clamp(min=0).sum() / max(len(gaps), 1)
