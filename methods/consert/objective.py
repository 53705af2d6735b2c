"""ConSERT's contrastive objective as a function of vectors, for a training loop of one's own."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from stsbench.training.losses.nt_xent import nt_xent as mean_loss


def loss(
    first: Tensor, second: Tensor, *, temperature: float = 0.1, nt_xent: Literal["mean", "sum"] = "mean"
) -> Tensor:
    """NT-Xent, the mean over the 2n views r of -log( exp(s(r, r+)) / sum of exp(s(r, r')) over the other 2n - 1 views r' ).

    first, second: (n, d), row by row the two augmented views of a text; r+ is the text's other view, s the cosine over
    `temperature`. nt_xent "sum" is the sum of the means over the first and over the second views, twice this, as in the
    released code. Gives a scalar with a gradient, in float32 at least. With labels (settings sup and joint) the
    cross-entropy that goes with it is methods.sbert.loss.
    Source: Yan et al. (2021), ConSERT, Eq. 2.

    >>> import torch
    >>> from stsbench import methods
    >>> z = torch.eye(4)  # two equal views of each text, at right angles to the 6 others: ln(1 + 6 / e)
    >>> round(float(methods.consert.loss(z, z, temperature=1.0)), 4)
    1.1654
    """
    return mean_loss(first, second, temperature=temperature) * (2 if nt_xent == "sum" else 1)
