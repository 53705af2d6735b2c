"""Margins: the anchor nearer to one text than to another, by no less than a margin (triplets), and by no more than a second
one (SNCSE's soft negatives)."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn.functional import relu

from stsbench.losses.arguments import check_positive, check_rows, check_weights, unit, wide
from stsbench.losses.contrastive import info_nce


def triplet(anchors: Tensor, positives: Tensor, negatives: Tensor, *, margin: float = 1.0) -> Tensor:
    """Return Sentence-BERT's loss of triplets, by Euclidean distance.

        mean over rows of max(|a - p| - |a - n| + margin, 0)

    All are (n, d). In float32 at least. Gives a scalar with a gradient; no triplet (n = 0) gives 0.
    Source: Reimers and Gurevych (2019), Sentence-BERT, section 3, triplet objective.

    >>> import torch
    >>> from stsbench import losses
    >>> zero = torch.zeros(1, 2)
    >>> float(losses.triplet(zero, torch.tensor([[3.0, 4.0]]), torch.tensor([[0.0, 2.0]])))  # 5 - 2 + 1
    4.0
    """
    check_rows(anchors=anchors, positives=positives, negatives=negatives)
    check_positive(margin=margin)
    anchors = wide(anchors)
    gaps: Tensor = vector_norm(anchors - positives, dim=1) - vector_norm(anchors - negatives, dim=1)
    return (gaps + margin).clamp(min=0).sum() / max(len(gaps), 1)


def bidirectional_margin(anchors: Tensor, positives: Tensor, soft_negatives: Tensor, *, alpha: float, beta: float) -> Tensor:
    """Return SNCSE's bidirectional margin loss: a soft negative is farther away than the positive, between two margins.

        mean over i of relu(D_i + alpha) + relu(-D_i - beta),   D_i = cos(a_i, m_i) - cos(a_i, p_i)

    anchors a, positives p, soft negatives m: (n, d), row by row of one sentence. It is 0, without a gradient, where all D_i
    are in [-beta, -alpha], and knows nothing of the vectors' lengths. No row gives 0, with a gradient. In float32 at least,
    also under autocast.
    Source: Wang et al. (2022), SNCSE, bidirectional margin loss.

    >>> import torch
    >>> from stsbench import losses
    >>> z = torch.eye(2)
    >>> round(float(losses.bidirectional_margin(z, z, z.flip(0), alpha=0.1, beta=0.3)), 4)  # D = -1
    0.7
    """
    if not (math.isfinite(alpha) and math.isfinite(beta)):
        raise ValueError(f"alpha and beta must be finite, not {alpha} and {beta}")
    with torch.autocast(anchors.device.type, enabled=False):
        a, p, m = (unit(vectors) for vectors in (anchors, positives, soft_negatives))
        difference = (a * m).sum(1) - (a * p).sum(1)
        return (relu(difference + alpha) + relu(-difference - beta)).sum() / max(len(difference), 1)


def sncse(
    anchors: Tensor, positives: Tensor, soft_negatives: Tensor, *, temperature: float = 0.05, alpha: float = 0.1,
    beta: float = 0.3, weight: float = 1e-3,
) -> Tensor:
    """Return SNCSE's loss: InfoNCE and, of negations, `bidirectional_margin`.

        mean over i of -log( exp(s(a_i, p_i)) / sum_j exp(s(a_i, p_j)) ) + weight * [ relu(D_i + alpha) + relu(-D_i - beta) ]

    anchors, positives, soft_negatives: (n, d), row by row a sentence in two templates and its negation. s is the cosine over
    `temperature`, D_i = cos(a_i, m_i) - cos(a_i, p_i). The soft negatives are in no sum over a batch. Gives a scalar with a
    gradient, in float32 at least. Raises ValueError for other shapes.
    Source: Wang et al. (2022), SNCSE, InfoNCE and the bidirectional margin loss.

    >>> import torch
    >>> from stsbench import losses
    >>> z = torch.eye(4)  # views at right angles to all others, negations equal to their sentences: ln(1 + 3 / e) + 0.1
    >>> round(float(losses.sncse(z, z, z, temperature=1.0, weight=1.0)), 4)
    0.8437
    """
    check_rows(anchors=anchors, positives=positives, soft_negatives=soft_negatives)
    check_weights(weight=weight)
    margin = bidirectional_margin(anchors, positives, soft_negatives, alpha=alpha, beta=beta)
    return info_nce(anchors, positives, temperature=temperature) + weight * margin
