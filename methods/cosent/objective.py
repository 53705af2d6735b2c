"""CoSENT's loss as a function of vectors, for a training loop of one's own."""

from __future__ import annotations

from torch import Tensor

from stsbench.training.losses.graded_pairs import cosent, pair_cosines
from stsbench.training.losses.rows import check_numbers, check_rows


def loss(first: Tensor, second: Tensor, scores: Tensor, *, scale: float = 20.0) -> Tensor:
    """log(1 + the sum over i, j with score_i < score_j of exp(scale (cos_i - cos_j))), a scalar with a gradient.

    first, second: u and v, (n, d), the two texts of a pair row by row; scores: (n,), of which the order alone counts. One
    batch is one loss: it is no mean over pairs. In float32 at least.
    Source: J. Su (2022), CoSENT, bojone/CoSENT@124c368.

    >>> import torch
    >>> from stsbench import methods
    >>> u, v = torch.eye(2), torch.tensor([[0.0, 1.0], [0.0, 1.0]])  # cosines 0 and 1, in the order of the scores
    >>> round(float(methods.cosent.loss(u, v, torch.tensor([1.0, 3.0]), scale=1.0)), 4)  # ln(1 + 1 / e)
    0.3133
    """
    check_rows(first=first, second=second)
    check_numbers(scores, len(first), "scores")
    return cosent(pair_cosines(first, second), scores, scale=scale)
