"""Sentence-BERT's three objectives as functions of vectors, for a training loop of one's own."""

from __future__ import annotations

from torch import Tensor

from stsbench.training.losses.cosine_regression import RegressedSimilarity, cosine_regression
from stsbench.training.losses.nli import nli_cross_entropy
from stsbench.training.losses.pair_features import SBERT_FEATURES, Feature
from stsbench.training.losses.rows import check_numbers, check_positive, check_rows
from stsbench.training.losses.triplet import triplet


def loss(
    first: Tensor, second: Tensor, labels: Tensor, weight: Tensor, bias: Tensor | None = None, *,
    features: tuple[Feature, ...] = SBERT_FEATURES,
) -> Tensor:
    """Classification, the mean over pairs of -log softmax(W [u; v; |u - v|] + b)[label].

    first, second: u and v, (n, d); labels: (n,) class numbers; weight: W, (c, k d) for c classes and the k blocks of
    `features`, and bias: b, (c,), those of a torch.nn.Linear that is trained with the encoder. Gives a scalar with a
    gradient.
    Source: Reimers and Gurevych (2019), Sentence-BERT, section 3, classification objective.

    >>> import torch
    >>> from stsbench import methods
    >>> head = torch.nn.Linear(3 * 8, 3)
    >>> u, v, labels = torch.randn(4, 8), torch.randn(4, 8), torch.tensor([0, 1, 2, 0])
    >>> methods.sbert.loss(u, v, labels, head.weight, head.bias).shape
    torch.Size([])
    """
    check_rows(first=first, second=second)
    check_numbers(labels, len(first), "labels")
    return nli_cross_entropy(first, second, weight, bias, labels=labels, features=features)


def regression_loss(
    first: Tensor, second: Tensor, scores: Tensor, *, scale: tuple[float, float] = (0.0, 5.0),
    similarity: RegressedSimilarity = "cosine",
) -> Tensor:
    """Regression, the mean over pairs of (s(u, v) - score)^2, s = cos, or (cos + 1) / 2 for "rescaled_cosine".

    first, second: u and v, (n, d); scores: (n,), in the data's own units; scale: the least and the greatest there is, which
    become 0 and 1. Gives a scalar with a gradient.
    Source: Reimers and Gurevych (2019), Sentence-BERT, section 3, regression objective.

    >>> import torch
    >>> from stsbench import methods
    >>> float(methods.sbert.regression_loss(torch.eye(2), torch.eye(2), torch.tensor([5.0, 2.5])))  # (0 + 0.25) / 2
    0.125
    """
    check_rows(first=first, second=second)
    check_numbers(scores, len(first), "scores")
    low, high = scale
    check_positive(**{"the width of scale": high - low})
    return cosine_regression(first, second, (scores - low) / (high - low), similarity)


def triplet_loss(anchors: Tensor, positives: Tensor, negatives: Tensor, *, margin: float = 1.0) -> Tensor:
    """Triplets, the mean over rows of max(|a - p| - |a - n| + margin, 0), by Euclidean distance; all are (n, d).

    Gives a scalar with a gradient. Source: Reimers and Gurevych (2019), Sentence-BERT, section 3, triplet objective.

    >>> import torch
    >>> from stsbench import methods
    >>> zero = torch.zeros(1, 2)
    >>> float(methods.sbert.triplet_loss(zero, torch.tensor([[3.0, 4.0]]), torch.tensor([[0.0, 2.0]])))  # 5 - 2 + 1
    4.0
    """
    check_rows(anchors=anchors, positives=positives, negatives=negatives)
    return triplet(anchors, positives, negatives, margin)
