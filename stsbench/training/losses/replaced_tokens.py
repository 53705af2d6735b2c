"""Replaced-token detection: at each place, whether the token there is the original one."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def replaced_token_loss(logits: Tensor, labels: Tensor, counted: Tensor) -> Tensor:
    """The mean over the counted places t of -log softmax(logits_t)[labels_t], labels 1 where the token was replaced.

    logits: (n, L, 2), of original and of replaced; labels: (n, L) integers; counted: (n, L) bool. In float32 at least. No
    counted place gives 0 that still carries a gradient.
    Source: Chuang et al. (2022), DiffCSE, Eq. 3 in its two-class form, a mean instead of their sum, as in their code.
    """
    indices = counted.nonzero(as_tuple=True)  # a GPU is waited for once
    wide = logits[indices].to(torch.promote_types(logits.dtype, torch.float32))
    return functional.cross_entropy(wide, labels[indices], reduction="sum") / max(len(wide), 1)


def detections(logits: Tensor, labels: Tensor, real: Tensor) -> Tensor:
    """int64 (4,), of the real tokens: replaced ones told right, replaced ones, original ones told right, original ones.

    logits: (..., 2), of original and of replaced; labels: (...), 1 where replaced; real: (...) bool. Equal logits say
    original.
    """
    guessed, replaced = logits[..., 1] > logits[..., 0], labels == 1
    right = guessed == replaced
    groups = [right & replaced & real, replaced & real, right & ~replaced & real, ~replaced & real]
    return torch.stack([group.sum() for group in groups])
