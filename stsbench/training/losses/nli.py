"""Natural language inference as classification of two sentence vectors."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def nli_cross_entropy(u: Tensor, v: Tensor, weight: Tensor, bias: Tensor | None = None, *, labels: Tensor) -> Tensor:
    """The mean over pairs of -log softmax(W [u; v; |u - v|] + b)[label].

    u, v: (n, d) premises and hypotheses; weight: (c, 3d) for c classes, 3 or, say, 2; bias: (c,), which the paper does not
    have; labels: (n,) class numbers. No pair (n = 0) gives 0, with a gradient.
    Source: Reimers and Gurevych (2019), Sentence-BERT, section 3, classification objective.
    """
    logits = functional.linear(torch.cat([u, v, (u - v).abs()], dim=1), weight, bias)
    return functional.cross_entropy(logits, labels, reduction="sum") / max(len(labels), 1)
