"""InfoCSE's first term as a function of vectors, for a training loop of one's own."""

from __future__ import annotations

from torch import Tensor

from stsbench.training.losses.contrastive import info_nce
from stsbench.training.losses.rows import check_rows


def contrastive_loss(anchors: Tensor, positives: Tensor, *, temperature: float = 0.05) -> Tensor:
    """L_cl, the mean over i of

        -log( exp(s(a_i, p_i)) / sum_j exp(s(a_i, p_j)) )

    anchors, positives: (n, d), row by row the two views of a sentence, behind the projector; s is the cosine over
    `temperature`. Gives a scalar with a gradient, in float32 at least.
    Source: Wu et al. (2022), InfoCSE, the contrastive term, which is SimCSE's.

    >>> import torch
    >>> from stsbench import methods
    >>> z = torch.eye(4)  # each view its sentence's own, at right angles to all others: ln(1 + 3 / e)
    >>> round(float(methods.infocse.contrastive_loss(z, z, temperature=1.0)), 4)
    0.7437
    """
    check_rows(anchors=anchors, positives=positives)
    return info_nce(anchors, positives, temperature=temperature)
