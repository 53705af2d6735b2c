"""WhitenedCSE's objective as a function of vectors, for a training loop of one's own."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from stsbench.training.losses.contrastive import info_nce
from stsbench.training.losses.rows import check_rows


def loss(
    anchors: Tensor, positives: Tensor, *, temperature: float = 0.05, reduce: Literal["sum", "mean"] = "sum"
) -> Tensor:
    """The sum over k, or the mean with reduce "mean", of the mean over i of

        -log( exp(s(a_i, p_ki)) / sum_j exp(s(a_i, p_kj)) )

    anchors: (n, d); positives: (k n, d), k blocks p_k of further views, row by row of the same sentences; all of them
    whitened and behind the head. s is the cosine over `temperature`. One direction, and positives are not compared with one
    another. Gives a scalar, in float32 at least.
    Source: Zhuo et al. (2023), WhitenedCSE, in its code. The whitening: stsbench/training/modules/projector.py.

    >>> import torch
    >>> from stsbench import methods
    >>> z = torch.eye(4)  # all sentences at right angles, two positives each: 2 ln(1 + 3 / e)
    >>> round(float(methods.whitenedcse.loss(z, torch.cat([z, z]), temperature=1.0)), 4)
    1.4873
    """
    blocks = positives.split(len(anchors)) if len(anchors) else (positives,)
    check_rows(anchors=anchors, first_positives=blocks[0], last_positives=blocks[-1])
    return reduced([info_nce(anchors, block, temperature=temperature) for block in blocks], reduce)


def reduced(values: list[Tensor], reduce: Literal["sum", "mean"]) -> Tensor:
    """One value for all positives."""
    total = sum(values[1:], values[0])
    return total / len(values) if reduce == "mean" else total
