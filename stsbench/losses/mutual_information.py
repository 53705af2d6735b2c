"""What a sentence vector shares with its parts, and not with those of other sentences: mutual information with its tokens by
the Jensen-Shannon divergence (IS-BERT), likeness to its layers (SG-OPT)."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from stsbench.losses.arguments import check_positive, unit


def jensen_shannon(tokens: Tensor, owners: Tensor, sentences: Tensor) -> tuple[Tensor, Tensor]:
    """Return E_negative and -E_positive, whose sum is to be minimised: a lower bound of the mutual information.

        E_positive = mean of ln 2 - softplus(-z),   E_negative = mean of softplus(z) - ln 2;   z = <token, sentence>

    tokens: (T, d), local vectors; sentences: (B, d), global ones; owners: int64 (T,), the sentence of each token. Positive
    are the T scores with a token's own row, negative the T (B - 1) scores with the others. Without tokens or other rows a
    mean is 0, with a gradient. In float32 at least, also under autocast, and without an exponential that overflows: products
    of hundreds of coordinates are large.
    Sources: Zhang et al. (2020), IS-BERT; Hjelm et al. (2019), Deep InfoMax.
    """
    with torch.autocast(tokens.device.type, enabled=False):
        dtype = torch.promote_types(torch.promote_types(tokens.dtype, sentences.dtype), torch.float32)
        scores = tokens.to(dtype) @ sentences.to(dtype).T
        is_own = owners.unsqueeze(1) == torch.arange(len(sentences), device=owners.device)
        # softplus(z) = -logsigmoid(-z), which torch computes exactly for every z; its softplus is z above 20
        positive = (-functional.logsigmoid(scores) - math.log(2)).masked_fill(~is_own, 0).sum()
        negative = (-functional.logsigmoid(-scores) - math.log(2)).masked_fill(is_own, 0).sum()
        return negative / max(scores.numel() - len(tokens), 1), positive / max(len(tokens), 1)


def isbert(tokens: Tensor, real: Tensor, sentences: Tensor) -> Tensor:
    """Return IS-BERT's loss: each token's vector scores high with its own sentence's, low with all others'.

        E_negative - E_positive,
        E_positive = mean over tokens and their own sentences of ln 2 - softplus(-z),
        E_negative = mean over tokens and the other sentences of softplus(z) - ln 2;   z = <token, sentence>

    tokens: (n, L, d), local vectors; real: (n, L), true or 1 at tokens, false or 0 at padding; sentences: (n, d), global
    ones, as a rule the means of the first. Gives a scalar with a gradient, in float32 at least.
    Source: Zhang et al. (2020), IS-BERT, the Jensen-Shannon estimator.

    >>> import torch
    >>> from stsbench import losses
    >>> tokens, real = torch.zeros(2, 3, 4), torch.ones(2, 3)  # all scores are 0
    >>> round(float(losses.isbert(tokens, real, tokens.mean(1))), 4)
    0.0
    """
    if tokens.ndim != 3 or real.shape != tokens.shape[:2] or sentences.shape != (len(tokens), tokens.shape[2]):
        shapes = ", ".join(map(str, (tuple(tokens.shape), tuple(real.shape), tuple(sentences.shape))))
        raise ValueError(f"tokens must be (n, L, d), real (n, L), sentences (n, d): they are {shapes}")
    owners, indices = real.nonzero(as_tuple=True)
    negative, positive = jensen_shannon(tokens[owners, indices], owners, sentences)
    return negative + positive


def sgopt(
    vectors: Tensor, layers: Tensor, *, temperature: float = 0.01, all_layers: Tensor | None = None, start: int = 0
) -> Tensor:
    """Return SG-OPT's loss: a sentence's vector is near to those of its own layers, and not to those of other sentences.

        mean over i and k of -log( e(c_i, h_ik) / ( e(c_i, h_ik) + sum over m other than i and all n of e(c_i, h_mn) ) ),
        e(a, b) = exp(cos(a, b) / temperature)

    vectors: c, (n, D), of the encoder that is trained; layers: h, (n, K, D), of K layers of its frozen copy, both projected.
    Neither other sentences' c nor a sentence's own other layers are negatives.
    all_layers: (N, K, D), those of the whole batch, of which this process's begin at row `start`; by default `layers`.
    Gives a scalar with a gradient, in float32 at least. The paper adds 0.1 times the squared distance of the weights to
    those of the copy.
    Source: Kim et al. (2021), SG-OPT.

    >>> import torch
    >>> from stsbench import losses
    >>> c = torch.eye(4)
    >>> round(float(losses.sgopt(c, c.unsqueeze(1), temperature=1.0)), 4)  # one layer: ln(1 + 3 / e)
    0.7437
    """
    check_positive(temperature=temperature)
    with torch.autocast(vectors.device.type, enabled=False):
        x, y = unit(vectors, 1e-12), unit(layers if all_layers is None else all_layers, 1e-12)
        logits = (x @ y.flatten(0, 1).T / temperature).view(len(x), *y.shape[:2])  # (n, N, K)
        rows = torch.arange(len(x), device=x.device)
        itself = (rows + start).unsqueeze(1) == torch.arange(len(y), device=x.device)
        positives = logits[rows, rows + start]  # (n, K)
        lowest = torch.finfo(logits.dtype).min  # no infinity, whose gradient would be NaN where nothing else is left
        negatives = logits.masked_fill(itself.unsqueeze(2), lowest).flatten(1).logsumexp(1, keepdim=True)
        losses = torch.logaddexp(positives, negatives) - positives
    return losses.sum() / max(losses.numel(), 1)
