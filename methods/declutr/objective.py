"""DeCLUTR's first term as a function of vectors, for a training loop of one's own."""

from __future__ import annotations

from torch import Tensor

from stsbench.training.losses.nt_xent import nt_xent


def contrastive_loss(anchors: Tensor, positives: Tensor, *, temperature: float = 0.05) -> Tensor:
    """NT-Xent of anchors and of the means of their positives: the mean over the 2n vectors r of
    -log( exp(s(r, r+)) / sum of exp(s(r, r')) over the other 2n - 1 vectors r' ).

    anchors: (n, d), spans of documents; positives: (n, P, d), P spans near each, or (n, d), their means. r+ is the
    counterpart, s the cosine over `temperature`. Gives a scalar with a gradient, in float32 at least.
    Source: Giorgi et al. (2021), DeCLUTR.

    >>> import torch
    >>> from stsbench import methods
    >>> z = torch.eye(4)
    >>> round(float(methods.declutr.contrastive_loss(z, torch.stack([z, z], dim=1), temperature=1.0)), 4)
    1.1654
    """
    return nt_xent(anchors, positives.mean(1) if positives.ndim == 3 else positives, temperature=temperature)
