"""Learning to rank: a student orders the sentences of a batch as a teacher does, and by both of its views in one way."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from stsbench.training.losses.rows import check_weights, nan_unless_finite

Ranks = Literal["sum", "mean"]
Consistency = Literal["js", "entropy"]
_LEAST = 1e-7  # what the community code clamps at


def cosines(vectors: Tensor, others: Tensor) -> Tensor:
    """(n, m) cosines of n and m vectors, (n, d) and (m, d), in float32 at least."""
    one, other = (functional.normalize(_wide(rows), dim=1, eps=1e-8) for rows in (vectors, others))
    product: Tensor = one @ other.T
    return product


def without_own(scores: Tensor, start: int) -> Tensor:
    """(n, N - 1) the scores (n, N) of a batch without each row's own positive, which stands in column start + row."""
    rows = torch.arange(len(scores), device=scores.device)
    kept = torch.ones_like(scores, dtype=torch.bool)
    kept[rows, rows + start] = False
    return scores[kept].reshape(len(scores), max(scores.shape[1] - 1, 0))


def listnet(student: Tensor, teacher: Tensor) -> Tensor:
    """The mean over rows of - sum_j softmax(teacher)_j log softmax(student)_j.

    student, teacher: (n, N) similarities over their temperatures; the first has the gradient. No row gives 0. Computed in
    float32 at least.
    Sources: Cao et al. (2007), ListNet, its top-one probabilities; Liu et al. (2023), RankCSE.
    """
    student, teacher = _wide(student), _wide(teacher)
    return -(teacher.softmax(1) * student.log_softmax(1)).sum() / max(len(student), 1)


def listmle(student: Tensor, teacher: Tensor, *, eps: float = 0.0, ranks: Ranks = "sum") -> Tensor:
    """The mean over rows of sum_k [ log sum_{m >= k} exp(s_m) - s_k ], s the student's scores from the teacher's best on.

    student, teacher: (n, N) similarities over their temperatures; the teacher's order alone counts, columns that it does
    not tell apart stay in their order. eps: added inside the logarithm behind the row's maximum, as in the community code
    (1e-7): tails below it are flat. ranks: the sum over k, or their mean. No row gives 0. Computed in float32 at least.
    Sources: Xia et al. (2008), ListMLE; Liu et al. (2023), RankCSE.
    """
    check_weights(eps=eps)
    order = teacher.argsort(dim=1, descending=True, stable=True)
    scores = _wide(student).gather(1, order)
    if eps:
        scores = scores - scores.amax(1, keepdim=True)
        tails = (scores.exp().flip(1).cumsum(1).flip(1) + eps).log()
    else:
        tails = scores.flip(1).logcumsumexp(1).flip(1)
    total = (tails - scores).sum() / max(len(scores), 1) + nan_unless_finite(teacher=teacher)
    return total if ranks == "sum" else total / max(scores.shape[1], 1)


def consistency(first: Tensor, second: Tensor, kind: Consistency = "js") -> Tensor:
    """The mean over rows of the Jensen-Shannon divergence of P = softmax(first) and Q = softmax(second), in nats.

    first, second: (n, N), how a row's one view ranks all others and how its other view does. kind "entropy": what the
    community code computes instead, -(H(P) + H(Q)) / 2: to lower it is to flatten both, whether they agree or not. No row
    gives 0. Computed in float32 at least.
    Source: Liu et al. (2023), RankCSE, ranking consistency; perceptiveshawty/RankCSE@17c5226, for "entropy".
    """
    one, other = _wide(first), _wide(second)
    if kind == "entropy":  # the mixture's logarithm is clamped from below at 1e-7, which is above every logarithm
        parts = [p * (p.log() - _LEAST) for p in (one.softmax(1).clamp(min=_LEAST), other.softmax(1).clamp(min=_LEAST))]
    else:
        one, other = one.log_softmax(1), other.log_softmax(1)
        middle = torch.logaddexp(one, other) - math.log(2)
        parts = [functional.kl_div(middle, log, reduction="none", log_target=True) for log in (one, other)]
    return (parts[0] + parts[1]).sum() / max(2 * len(first), 1)


def _wide(scores: Tensor) -> Tensor:
    return scores.to(torch.promote_types(scores.dtype, torch.float32))
