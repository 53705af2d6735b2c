"""AnglE's losses as functions of vectors, for a training loop of one's own."""

from __future__ import annotations

import torch
from torch import Tensor

from stsbench.training.losses.contrastive import info_nce
from stsbench.training.losses.graded_pairs import cosent, labelled_in_batch, pair_angles, pair_cosines
from stsbench.training.losses.rows import check_numbers, check_positive, check_rows, check_weights


def loss(
    first: Tensor, second: Tensor, scores: Tensor, *, ibn_weight: float = 1.0, cosine_weight: float = 0.0,
    angle_weight: float = 0.02, ibn_scale: float = 20.0, cosine_scale: float = 20.0, angle_scale: float = 20.0,
) -> Tensor:
    """Format A, ibn_weight L_ibn + cosine_weight CoSENT(cosines) + angle_weight CoSENT(angles), a scalar with a gradient.

    first, second: u and v, (n, d), the two texts of a pair row by row; scores: (n,), of which CoSENT uses the order; with
    ibn_weight they have to be 0 and 1. The angle of u and v is |cos(u, v) + cos(u, Jv)|, J(c; d) = (-d; c) for the
    halves c and d of a vector: it does not tell v from -v, and is not symmetric. With weights 0, 0 and 1 this is
    sentence-transformers' AnglELoss. In float32 at least.
    Source: Li and Li (2024), AnglE; SeanLee97/AnglE@1af7261:angle_emb/loss.py.

    >>> import torch
    >>> from stsbench import methods
    >>> u, v = torch.eye(2), torch.tensor([[1.0, 0.0], [0.0, -1.0]])  # equal, and opposite: both angles are 1
    >>> round(float(methods.angle.loss(u, v, torch.tensor([1.0, 0.0]), ibn_weight=0.0, angle_weight=1.0)), 4)  # ln 2
    0.6931
    """
    check_rows(first=first, second=second)
    check_numbers(scores, len(first), "scores")
    check_positive(ibn_scale=ibn_scale, cosine_scale=cosine_scale, angle_scale=angle_scale)
    check_weights(ibn_weight=ibn_weight, cosine_weight=cosine_weight, angle_weight=angle_weight)
    terms = []
    if ibn_weight:
        if bool(((scores != 0) & (scores != 1)).any()):
            raise ValueError("scores must be 0 and 1 with an ibn_weight: graded ones have no in-batch target")
        terms.append(ibn_weight * labelled_in_batch(first, second, scores, scale=ibn_scale))
    if cosine_weight:
        terms.append(cosine_weight * cosent(pair_cosines(first, second), scores, scale=cosine_scale))
    if angle_weight:
        terms.append(angle_weight * cosent(pair_angles(first, second), scores, scale=angle_scale))
    return _sum(terms)


def triplet_loss(
    queries: Tensor, positives: Tensor, negatives: Tensor, *, ibn_weight: float = 1.0, cln_weight: float = 1.0,
    cosine_weight: float = 0.0, angle_weight: float = 0.02, ibn_scale: float = 20.0, cosine_scale: float = 20.0,
    angle_scale: float = 20.0,
) -> Tensor:
    """Format C, (ibn_weight CE(q; p) + cln_weight CE(q; p, n)) / 2 and CoSENT over (q, p) with 1 and (q, n) with 0.

    All are (n, d); CE is InfoNCE on cosines times ibn_scale, from q alone. Gives a scalar with a gradient. In float32 at
    least.
    Source: Li and Li (2024), AnglE; SeanLee97/AnglE@5155458:angle_emb/loss.py.

    >>> import torch
    >>> from stsbench import methods
    >>> q = torch.eye(2)  # each at its positive, and at a right angle to all else
    >>> value = methods.angle.triplet_loss(q, q, q.flip(0), angle_weight=0.0, ibn_scale=1.0)
    >>> round(float(value), 4)  # half of ln(1 + 1/e) and of ln(2 + 2/e)
    0.6598
    """
    check_rows(queries=queries, positives=positives, negatives=negatives)
    check_positive(ibn_scale=ibn_scale, cosine_scale=cosine_scale, angle_scale=angle_scale)
    check_weights(ibn_weight=ibn_weight, cln_weight=cln_weight, cosine_weight=cosine_weight, angle_weight=angle_weight)
    terms, temperature = [], 1 / ibn_scale
    if ibn_weight:
        terms.append(ibn_weight / 2 * info_nce(queries, positives, temperature=temperature))
    if cln_weight:
        terms.append(cln_weight / 2 * info_nce(queries, positives, temperature=temperature, negatives=[negatives]))
    scores = torch.cat([queries.new_ones(len(queries)), queries.new_zeros(len(queries))])
    for weight, similarity, scale in (
        (cosine_weight, pair_cosines, cosine_scale), (angle_weight, pair_angles, angle_scale)
    ):
        if weight:
            both = torch.cat([similarity(queries, positives), similarity(queries, negatives)])
            terms.append(weight * cosent(both, scores, scale=scale))
    return _sum(terms)


def _sum(terms: list[Tensor]) -> Tensor:
    if not terms:
        raise ValueError("no weight is above 0: there is no loss")
    return torch.stack(terms).sum()
