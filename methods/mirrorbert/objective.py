"""Mirror-BERT's objective as a function of vectors, for a training loop of one's own."""

from __future__ import annotations

from torch import Tensor

from stsbench.training.losses.nt_xent import nt_xent


def loss(first: Tensor, second: Tensor, *, temperature: float = 0.04) -> Tensor:
    """NT-Xent, the mean over the 2n views r of -log( exp(s(r, r+)) / sum of exp(s(r, r')) over the other 2n - 1 views r' ).

    first, second: (n, d), row by row the two views of a text; r+ is the text's other view, s the cosine over `temperature`
    (0.2 for words and short phrases). Gives a scalar with a gradient, in float32 at least.
    Source: Liu et al. (2021), Mirror-BERT.

    >>> import torch
    >>> from stsbench import methods
    >>> z = torch.eye(4)  # two equal views of each text, at right angles to the 6 others: ln(1 + 6 / e)
    >>> round(float(methods.mirrorbert.loss(z, z, temperature=1.0)), 4)
    1.1654
    """
    return nt_xent(first, second, temperature=temperature)
