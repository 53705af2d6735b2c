"""The bidirectional margin loss: a soft negative is farther away than the positive, by no less and no more than margins."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import normalize, relu


def bidirectional_margin(anchors: Tensor, positives: Tensor, soft_negatives: Tensor, *, alpha: float, beta: float) -> Tensor:
    """The mean over i of relu(D_i + alpha) + relu(-D_i - beta), D_i = cos(a_i, m_i) - cos(a_i, p_i).

    anchors a, positives p, soft negatives m: (n, d), row by row of one sentence. It is 0, without a gradient, where all D_i
    are in [-beta, -alpha], and knows nothing of the vectors' lengths. No row gives 0, with a gradient. In float32 at least,
    also under autocast.
    Source: Wang et al. (2022), SNCSE, bidirectional margin loss.

    >>> z = torch.eye(2)
    >>> round(float(bidirectional_margin(z, z, z.flip(0), alpha=0.1, beta=0.3)), 4)  # D = -1
    0.7
    """
    if not (math.isfinite(alpha) and math.isfinite(beta)):
        raise ValueError(f"alpha and beta must be finite, not {alpha} and {beta}")
    with torch.autocast(anchors.device.type, enabled=False):
        a, p, m = (
            normalize(vectors.to(torch.promote_types(vectors.dtype, torch.float32)), dim=1, eps=1e-8)
            for vectors in (anchors, positives, soft_negatives)
        )
        difference = (a * m).sum(1) - (a * p).sum(1)
        return (relu(difference + alpha) + relu(-difference - beta)).sum() / max(len(difference), 1)
