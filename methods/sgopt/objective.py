"""SG-OPT's objective as a function of vectors, for a training loop of one's own."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from stsbench.training.losses.rows import check_positive


def loss(
    vectors: Tensor, layers: Tensor, *, temperature: float = 0.01, all_layers: Tensor | None = None, start: int = 0
) -> Tensor:
    """The mean over i and k of -log(e(c_i, h_ik) / (e(c_i, h_ik) + sum over m other than i and all n of e(c_i, h_mn))).

    vectors: c, (n, D), of the encoder that is trained; layers: h, (n, K, D), of K layers of its frozen copy, both projected;
    e(a, b) = exp(cos(a, b) / temperature). Neither other sentences' c nor a sentence's own other layers are negatives.
    all_layers: (N, K, D), those of the whole batch, of which this process's begin at row `start`; by default `layers`.
    Gives a scalar with a gradient, in float32 at least. The paper adds 0.1 times the squared distance of the weights to
    those of the copy.
    Source: Kim et al. (2021), SG-OPT.

    >>> import torch
    >>> from stsbench import methods
    >>> c = torch.eye(4)
    >>> round(float(methods.sgopt.loss(c, c.unsqueeze(1), temperature=1.0)), 4)  # one layer: ln(1 + 3 / e)
    0.7437
    """
    check_positive(temperature=temperature)
    with torch.autocast(vectors.device.type, enabled=False):
        x, y = unit(vectors), unit(layers if all_layers is None else all_layers)
        logits = (x @ y.flatten(0, 1).T / temperature).view(len(x), *y.shape[:2])  # (n, N, K)
        rows = torch.arange(len(x), device=x.device)
        itself = (rows + start).unsqueeze(1) == torch.arange(len(y), device=x.device)
        positives = logits[rows, rows + start]  # (n, K)
        lowest = torch.finfo(logits.dtype).min  # no infinity, whose gradient would be NaN where nothing else is left
        negatives = logits.masked_fill(itself.unsqueeze(2), lowest).flatten(1).logsumexp(1, keepdim=True)
        losses = torch.logaddexp(positives, negatives) - positives
    return losses.sum() / max(losses.numel(), 1)


def unit(vectors: Tensor) -> Tensor:
    """The vectors in float32 or better, of norm 1."""
    return functional.normalize(vectors.to(torch.promote_types(vectors.dtype, torch.float32)), dim=-1)
