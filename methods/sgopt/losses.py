"""SG-OPT's contrastive losses: sentence vectors c against vectors h of the frozen copy's layers, both projected.

Cosines are taken in float32 at least, also under autocast: a temperature of 0.01 multiplies an error by 100.
Source: Kim et al. (2021), and loss.py of its code (galsang/SG-BERT).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from stsbench.training.api.batch import Shares, Term
from stsbench.training.api.gathering import Gathering, gather


def all_layers_term(vectors: Tensor, layers: Tensor, temperature: float, shares: Shares, mode: Gathering) -> Term:
    """The mean over i and k of -log(e(c_i, h_ik) / (e(c_i, h_ik) + sum over m other than i and all n of e(c_i, h_mn))).

    vectors: (n, D), layers: (n, K, D), this process's rows; m runs over those of all processes. e(a, b) = exp(cos(a, b) /
    temperature). Neither other sentences' c nor a sentence's own other layers are negatives.
    """
    with torch.autocast(vectors.device.type, enabled=False):
        x, y = _unit(vectors), _unit(layers)
        every = gather(y.flatten(1), shares, mode)
        if mode == "simcse":
            x = gather(x, shares, mode)
        logits = (x @ every.reshape(-1, x.shape[1]).T / temperature).view(len(x), len(every), -1)  # (n, N, K)
        columns, itself = _columns(x, every, shares, mode)
        positives = logits[torch.arange(len(x), device=x.device), columns]  # (n, K)
        lowest = torch.finfo(logits.dtype).min  # no infinity, whose gradient would be NaN where nothing else is left
        negatives = logits.masked_fill(itself.unsqueeze(2), lowest).flatten(1).logsumexp(1, keepdim=True)
        losses = torch.logaddexp(positives, negatives) - positives
    return Term(losses.sum() / max(losses.numel(), 1), len(x))


def one_layer_term(
    vectors: Tensor, layer: Tensor, temperature: float, shares: Shares, mode: Gathering, *,
    with_vectors: bool, skip_negative: bool = False,
) -> Term:  # fmt: skip
    """The mean over i of the cross-entropy of h_i among all h and, `with_vectors`, the c of other sentences: c_i the anchor.

    vectors, layer: (n, D), this process's rows. with_vectors: objective opt1, else opt2. skip_negative: without the first
    other sentence's h, which the released code's opt2 cuts off with the c.
    """
    with torch.autocast(vectors.device.type, enabled=False):
        x, y = _unit(vectors), _unit(layer)
        every, others = gather(torch.cat([y, x], 1), shares, mode).chunk(2, 1)
        if mode == "simcse":
            x = others
        columns, itself = _columns(x, every, shares, mode)
        logits = x @ every.T
        if skip_negative:
            logits = logits.masked_fill(_first_other(itself), -torch.inf)
        if with_vectors:
            logits = torch.cat([logits, (x @ others.T).masked_fill(itself, -torch.inf)], 1)
        losses = functional.cross_entropy(logits / temperature, columns, reduction="sum")
    return Term(losses / max(len(x), 1), len(x))


def _columns(vectors: Tensor, every: Tensor, shares: Shares, mode: Gathering) -> tuple[Tensor, Tensor]:
    """(n,) the places of this process's rows among all N, and (n, N) true there."""
    columns = torch.arange(len(vectors), device=vectors.device) + (shares.start if mode == "exact" else 0)
    return columns, columns.unsqueeze(1) == torch.arange(len(every), device=vectors.device)


def _first_other(itself: Tensor) -> Tensor:
    """(n, N) true at the first column of each row that is not its own."""
    first = torch.zeros_like(itself)
    first[:, 0] = ~itself[:, 0]
    first[:, 1:2] = itself[:, :1]
    return first


def _unit(vectors: Tensor) -> Tensor:
    """The vectors in float32 or better, of norm 1."""
    return functional.normalize(vectors.to(torch.promote_types(vectors.dtype, torch.float32)), dim=-1)
