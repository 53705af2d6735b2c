"""Token vectors rebuilt from a sentence vector: their squared error, the weight of each token, the loss of a sentence."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Reduction = Literal["mean", "sum"]


def token_errors(rebuilt: Tensor, tokens: Tensor, reduction: Reduction = "mean") -> Tensor:
    """(n, T) the squared error of each token vector: the mean, or the sum, over its d coordinates.

    rebuilt, tokens: (n, T, d); both get a gradient. Computed in float32 at least, also under autocast.
    """
    if reduction not in ("mean", "sum"):
        raise ValueError(f"reduction {reduction!r} is unknown (there are mean, sum)")
    wide = torch.promote_types(torch.promote_types(rebuilt.dtype, tokens.dtype), torch.float32)
    with torch.autocast(tokens.device.type, enabled=False):
        squares = (tokens.to(wide) - rebuilt.to(wide)).square()
        return squares.mean(2) if reduction == "mean" else squares.sum(2)


def reconstruction_loss(errors: Tensor, weights: Tensor, real: Tensor) -> Tensor:
    """The mean over n texts of (1 / N) sum_i w_i e_i over the N real tokens of a text; not over the sum of the weights.

    errors, weights: (n, T); real: (n, T) bool. A text without a real token has the loss 0 and counts as a text. No text
    (n = 0) gives 0, with a gradient. Source: Liu et al. (2024), SARCSE, the reconstruction losses L_R and L_R+.
    """
    with torch.autocast(errors.device.type, enabled=False):
        summed = (errors * weights).masked_fill(~real, 0).sum(1)
        return (summed / real.sum(1).clamp(min=1)).sum() / max(len(errors), 1)


def token_weights(counts: NDArray[np.int64] | Any, theta: float = 0.1, scale: float = 50.0) -> Tensor:
    """float32 (V,): max(theta, 1 - scale * counts_w / sum of counts), the weight of each token w; unseen ones weigh 1.

    counts: (V,), how often each token occurs in the training text. Source: Liu et al. (2024), SARCSE, Eq. 8, whose
    freq(w) is read as the relative frequency: their scale of 50 reaches theta = 0.1 at 1.8 % of all tokens, which only
    the commonest words and punctuation marks are.
    """
    shares = np.asarray(counts, dtype=np.float64) / max(int(np.sum(counts)), 1)
    return torch.from_numpy(np.maximum(theta, 1 - scale * shares)).float()
