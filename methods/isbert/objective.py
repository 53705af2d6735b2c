"""IS-BERT's objective as a function of vectors, for a training loop of one's own."""

from __future__ import annotations

from torch import Tensor

from stsbench.training.losses.mutual_information import jensen_shannon


def loss(tokens: Tensor, real: Tensor, sentences: Tensor) -> Tensor:
    """E_negative - E_positive: each token's vector scores high with its own sentence's, low with all others'.

    tokens: (n, L, d), local vectors; real: (n, L), true or 1 at tokens, false or 0 at padding; sentences: (n, d), global
    ones, as a rule the means of the first. A score is z = <token, sentence>; E_positive = mean of ln 2 - softplus(-z) over
    tokens and their own sentences, E_negative = mean of softplus(z) - ln 2 over tokens and the others. Gives a scalar with
    a gradient, in float32 at least.
    Source: Zhang et al. (2020), IS-BERT, the Jensen-Shannon estimator.

    >>> import torch
    >>> from stsbench import methods
    >>> tokens, real = torch.zeros(2, 3, 4), torch.ones(2, 3)  # all scores are 0
    >>> round(float(methods.isbert.loss(tokens, real, tokens.mean(1))), 4)
    0.0
    """
    if tokens.ndim != 3 or real.shape != tokens.shape[:2] or sentences.shape != (len(tokens), tokens.shape[2]):
        shapes = ", ".join(map(str, (tuple(tokens.shape), tuple(real.shape), tuple(sentences.shape))))
        raise ValueError(f"tokens must be (n, L, d), real (n, L), sentences (n, d): they are {shapes}")
    owners, indices = real.nonzero(as_tuple=True)
    negative, positive = jensen_shannon(tokens[owners, indices], owners, sentences)
    return negative + positive
