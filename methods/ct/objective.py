"""Contrastive Tension's objectives as functions of vectors, for a training loop of one's own."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from stsbench.training.losses.contrastive import Similarity, info_nce
from stsbench.training.losses.rows import check_numbers, check_positive, check_rows


def loss(first: Tensor, second: Tensor, labels: Tensor, *, reduction: Literal["mean", "sum"] = "mean") -> Tensor:
    """The mean over pairs of -log s(z) where the label is 1, of -log(1 - s(z)) where it is 0; z = first . second.

    first, second: (n, d), by the two encoders; labels: (n,), 1 where both read one sentence, else 0; s: the logistic
    function. In float32 at least, also under autocast, and from the logit: a dot product is unbounded, and its exponential
    overflows float16 at 11. No pair (n = 0) gives 0. reduction "sum": sentence-transformers' ContrastiveTensionLoss.
    Source: ContrastiveTensionModel.py of Carlsson et al. (2021), `predictAndUpdate`.

    >>> import torch
    >>> from stsbench import methods
    >>> z, labels = torch.eye(2), torch.tensor([1, 0])
    >>> round(float(methods.ct.loss(z, z, labels)), 4)  # (ln(1 + 1 / e) + ln(1 + e)) / 2
    0.8133
    """
    check_rows(first=first, second=second)
    check_numbers(labels, len(first), "labels")
    with torch.autocast(first.device.type, enabled=False):
        logits = (_wide(first) * _wide(second)).sum(1)
        losses = functional.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="sum")
    return losses if reduction == "sum" else losses / max(len(first), 1)


def in_batch_loss(
    first: Tensor, second: Tensor, *, similarity: Similarity = "dot", scale: Tensor | float = 1.0
) -> Tensor:
    """(CE(S) + CE(S^T)) / 2 with S_ij = scale * sim(first_i, second_j); the right column of row i is i.

    first, second: (n, d), of the same n sentences by the two encoders; scale: a positive number, or a tensor of one, which
    may be learned. In float32 at least.
    Source: sentence-transformers, ContrastiveTensionLossInBatchNegatives.

    >>> import torch
    >>> from stsbench import methods
    >>> round(float(methods.ct.in_batch_loss(torch.eye(4), torch.eye(4))), 4)  # ln(1 + 3 / e)
    0.7437
    """
    check_positive(scale=scale)
    x, y = scaled_pair(first, second, similarity)
    return (info_nce(x * scale, y, similarity="dot") + info_nce(y * scale, x, similarity="dot")) / 2


def scaled_pair(first: Tensor, second: Tensor, similarity: Similarity) -> tuple[Tensor, Tensor]:
    """Both in float32 or better, of norm 1 where the similarity is the cosine."""
    x, y = _wide(first), _wide(second)
    return (functional.normalize(x, dim=1), functional.normalize(y, dim=1)) if similarity == "cosine" else (x, y)


def _wide(vectors: Tensor) -> Tensor:
    return vectors.to(torch.promote_types(vectors.dtype, torch.float32))
