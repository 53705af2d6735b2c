"""A lower bound of the mutual information of local and global vectors, by the Jensen-Shannon divergence."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional


def jensen_shannon(tokens: Tensor, owners: Tensor, sentences: Tensor) -> tuple[Tensor, Tensor]:
    """E_negative and -E_positive, whose sum is to be minimised: each a mean over scores z = <token, sentence>.

    tokens: (T, d), local vectors; sentences: (B, d), global ones; owners: int64 (T,), the sentence of each token. Positive
    are the T scores with a token's own row, E_positive = mean of ln 2 - softplus(-z); negative the T (B - 1) scores with the
    others, E_negative = mean of softplus(z) - ln 2. Without tokens or other rows a mean is 0, with a gradient. In float32 at
    least, also under autocast, and without an exponential that overflows: products of hundreds of coordinates are large.
    Sources: Zhang et al. (2020), IS-BERT; Hjelm et al. (2019), Deep InfoMax.
    """
    with torch.autocast(tokens.device.type, enabled=False):
        wide = torch.promote_types(torch.promote_types(tokens.dtype, sentences.dtype), torch.float32)
        scores = tokens.to(wide) @ sentences.to(wide).T
        is_own = owners.unsqueeze(1) == torch.arange(len(sentences), device=owners.device)
        # softplus(z) = -logsigmoid(-z), which torch computes exactly for every z; its softplus is z above 20
        positive = (-functional.logsigmoid(scores) - math.log(2)).masked_fill(~is_own, 0).sum()
        negative = (-functional.logsigmoid(-scores) - math.log(2)).masked_fill(is_own, 0).sum()
        return negative / max(scores.numel() - len(tokens), 1), positive / max(len(tokens), 1)
