"""ESimCSE's objective as a function of vectors, for a training loop of one's own."""

from __future__ import annotations

from torch import Tensor

from stsbench.training.losses.contrastive import info_nce
from stsbench.training.losses.rows import check_rows


def loss(anchors: Tensor, positives: Tensor, stored: Tensor | None = None, *, temperature: float = 0.05) -> Tensor:
    """The mean over i of

        -log( exp(s(a_i, p_i)) / ( sum_j exp(s(a_i, p_j)) + sum_l exp(s(a_i, v_l)) ) )

    anchors, positives: (n, d), row by row the two views of a sentence; stored: v (M, d), the momentum encoder's vectors of
    earlier batches, without gradient. s is the cosine over `temperature`. Gives a scalar, in float32 at least.
    Source: Wu et al. (2022), ESimCSE, the loss with the momentum contrast's queue.

    >>> import torch
    >>> from stsbench import methods
    >>> z = torch.eye(6)  # four sentences and two stored vectors, all at right angles: ln(1 + 5 / e)
    >>> round(float(methods.esimcse.loss(z[:4], z[:4], z[4:], temperature=1.0)), 4)
    1.0436
    """
    check_rows(anchors=anchors, positives=positives)
    return info_nce(anchors, positives, temperature=temperature, stored=stored)
