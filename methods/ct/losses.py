"""Contrastive Tension's binary cross-entropy, and sentence-transformers' cross-entropy over the batch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from stsbench.training.api.batch import Shares, Term
from stsbench.training.api.contrasting import contrast
from stsbench.training.api.gathering import Gathering


def pair_loss(first: Tensor, second: Tensor, labels: Tensor) -> Tensor:
    """The mean over pairs of -log s(z) where the label is 1, of -log(1 - s(z)) where it is 0; z = first . second.

    first, second: (n, d), by the two encoders; labels: (n,), 0 or 1; s: the logistic function. In float32 at least, also
    under autocast, and from the logit: a dot product is unbounded, and its exponential overflows float16 at 11. No pair
    (n = 0) gives 0. Source: ContrastiveTensionModel.py of the authors, `predictAndUpdate`.
    """
    with torch.autocast(first.device.type, enabled=False):
        logits = (_wide(first) * _wide(second)).sum(1)
        losses = functional.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="sum")
    return losses / max(len(first), 1)


def batch_term(first: Tensor, second: Tensor, scale: Tensor | float, cosine: bool, shares: Shares, mode: Gathering) -> Term:
    """(CE(S) + CE(S^T)) / 2 with S_ij = scale * sim(first_i, second_j) of all processes; the right column of row i is i.

    first, second: (n, d), this process's rows; scale: a positive number, or a (1, 1) tensor. Source: sentence-transformers,
    ContrastiveTensionLossInBatchNegatives.
    """
    x, y = _wide(first), _wide(second)
    if cosine:
        x, y = functional.normalize(x, dim=1), functional.normalize(y, dim=1)
    one, other = (contrast(a * scale, b, [], shares, mode, similarity="dot") for a, b in ((x, y), (y, x)))
    return Term((one.value + other.value) / 2, one.count)


def _wide(vectors: Tensor) -> Tensor:
    return vectors.to(torch.promote_types(vectors.dtype, torch.float32))
