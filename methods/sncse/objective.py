"""SNCSE's objective as a function of vectors, for a training loop of one's own."""

from __future__ import annotations

from torch import Tensor

from stsbench.training.losses.contrastive import info_nce
from stsbench.training.losses.rows import check_rows, check_weights

from .margin import bidirectional_margin


def loss(
    anchors: Tensor, positives: Tensor, soft_negatives: Tensor, *, temperature: float = 0.05, alpha: float = 0.1,
    beta: float = 0.3, weight: float = 1e-3,
) -> Tensor:
    """The mean over i of

        -log( exp(s(a_i, p_i)) / sum_j exp(s(a_i, p_j)) ) + weight * [ relu(D_i + alpha) + relu(-D_i - beta) ]

    anchors, positives, soft_negatives: (n, d), row by row a sentence in two templates and its negation. s is the cosine over
    `temperature`, D_i = cos(a_i, m_i) - cos(a_i, p_i). The soft negatives are in no sum over a batch. Gives a scalar with a
    gradient, in float32 at least. Raises ValueError for other shapes.
    Source: Wang et al. (2022), SNCSE, InfoNCE and the bidirectional margin loss.

    >>> import torch
    >>> from stsbench import methods
    >>> z = torch.eye(4)  # views at right angles to all others, negations equal to their sentences: ln(1 + 3 / e) + 0.1
    >>> round(float(methods.sncse.loss(z, z, z, temperature=1.0, weight=1.0)), 4)
    0.8437
    """
    check_rows(anchors=anchors, positives=positives, soft_negatives=soft_negatives)
    check_weights(weight=weight)
    margin = bidirectional_margin(anchors, positives, soft_negatives, alpha=alpha, beta=beta)
    return info_nce(anchors, positives, temperature=temperature) + weight * margin
