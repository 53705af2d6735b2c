"""Losses of ranking and distillation: a student should order the sentences of a batch as a teacher does, consistently in its
two views (RankCSE), or have the teacher's vectors or cosines; and losses with margins: triplets, and SNCSE's bidirectional
margin of soft negatives."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn import functional

from stsbench.losses.arguments import check_positive, check_rows, check_weights, nan_unless_finite, unit, wide
from stsbench.losses.choices import DISTIL_LOSSES, Consistency, DistilLoss, DistilObjective, Ranks
from stsbench.losses.contrastive import info_nce

_LEAST = 1e-7  # the community code clamps probabilities from below at this


def cosines(vectors: Tensor, others: Tensor) -> Tensor:
    """Return the (n, m) cosines of n and m vectors, (n, d) and (m, d), in float32 at least."""
    product: Tensor = unit(vectors) @ unit(others).T
    return product


def without_own(scores: Tensor, start: int) -> Tensor:
    """Return (n, N - 1), the scores (n, N) of a batch without those of each row's own positive, in column start + row."""
    rows = torch.arange(len(scores), device=scores.device)
    kept = torch.ones_like(scores, dtype=torch.bool)
    kept[rows, rows + start] = False
    return scores[kept].reshape(len(scores), max(scores.shape[1] - 1, 0))


def listnet(student: Tensor, teacher: Tensor) -> Tensor:
    """Return ListNet's cross-entropy of the probabilities of being ranked first.

        mean over rows of - sum_j softmax(teacher)_j log softmax(student)_j

    student, teacher: (n, N) similarities over their temperatures. No row gives 0. Computed in float32 at least.
    Sources: Cao et al. (2007), ListNet, its top-one probabilities; Liu et al. (2023), RankCSE.
    """
    student, teacher = wide(student), wide(teacher)
    return -(teacher.softmax(1) * student.log_softmax(1)).sum() / max(len(student), 1)


def listmle(student: Tensor, teacher: Tensor, *, eps: float = 0.0, ranks: Ranks = "sum") -> Tensor:
    """Return ListMLE: the negative log-likelihood of the teacher's order under the Plackett-Luce model of the student.

        mean over rows of sum_k [ log sum_{m >= k} exp(s_m) - s_k ],   s the student's scores from the teacher's best on

    student, teacher: (n, N) similarities over their temperatures; only the order of the teacher's counts, and tied columns
    stay in their order. eps: added inside the logarithm after the row's maximum is subtracted, as in the community code
    (1e-7): tails below it are flat. ranks: the sum over k, or their mean. No row gives 0. Computed in float32 at least.
    Sources: Xia et al. (2008), ListMLE; Liu et al. (2023), RankCSE.
    """
    check_weights(eps=eps)
    order = teacher.argsort(dim=1, descending=True, stable=True)
    scores = wide(student).gather(1, order)
    if eps:
        scores = scores - scores.amax(1, keepdim=True)
        tails = (scores.exp().flip(1).cumsum(1).flip(1) + eps).log()
    else:
        tails = scores.flip(1).logcumsumexp(1).flip(1)
    total = (tails - scores).sum() / max(len(scores), 1) + nan_unless_finite(teacher=teacher)
    return total if ranks == "sum" else total / max(scores.shape[1], 1)


def consistency(first: Tensor, second: Tensor, kind: Consistency = "js") -> Tensor:
    """Return RankCSE's consistency of two rankings, their Jensen-Shannon divergence in nats.

        mean over rows of [ KL(P || M) + KL(Q || M) ] / 2,   P = softmax(first), Q = softmax(second), M = (P + Q) / 2

    first, second: (n, N), scores of a row's first view with all second views, and of its second view with all first views.
    kind "entropy": what the community code computes instead, -(H(P) + H(Q)) / 2, which is lowered by flattening both,
    whether they agree or not. No row gives 0. Computed in float32 at least.
    Source: Liu et al. (2023), RankCSE, ranking consistency; perceptiveshawty/RankCSE@17c5226, for "entropy".
    """
    one, other = wide(first), wide(second)
    if kind == "entropy":  # the community code clamps the mixture's logarithm to at least 1e-7: it is always 1e-7
        parts = [p * (p.log() - _LEAST) for p in (one.softmax(1).clamp(min=_LEAST), other.softmax(1).clamp(min=_LEAST))]
    else:
        one, other = one.log_softmax(1), other.log_softmax(1)
        middle = torch.logaddexp(one, other) - math.log(2)
        parts = [functional.kl_div(middle, log, reduction="none", log_target=True) for log in (one, other)]
    return (parts[0] + parts[1]).sum() / max(2 * len(first), 1)


def rankcse(
    first: Tensor, second: Tensor, teacher: Tensor, *, loss: Literal["listmle", "listnet"] = "listmle",
    student_temperature: float = 0.05, teacher_temperature: float = 0.05, eps: float = 0.0, ranks: Ranks = "sum",
) -> Tensor:
    """Return RankCSE's ranking by a teacher: `listmle` or `listnet` of a batch's cosines over their temperatures.

        student_ij = cos(first_i, second_j) / student_temperature,   teacher_ij / teacher_temperature

    first, second: (n, d), row by row the two views of a sentence; teacher: (n, n), its cosines between the sentences.
    listmle: the negative log-likelihood of the teacher's order, in which a row's own second view is one of the n; listnet:
    the cross-entropy of the probabilities of being ranked first, without the own second view. eps, ranks: of `listmle`.
    Gives a scalar with a gradient, in float32 at least.
    Source: Liu et al. (2023), RankCSE, ranking distillation.

    >>> import torch
    >>> from stsbench import losses
    >>> z = torch.eye(4)  # a student that tells no two other sentences apart: ln 3 for the first of three
    >>> round(float(losses.rankcse(z, z, torch.eye(4), loss="listnet")), 4)
    1.0986
    """
    check_rows(first=first, second=second)
    if tuple(teacher.shape) != (len(first), len(first)):
        raise ValueError(f"teacher must be (n, n) cosines, n = {len(first)}: it is {tuple(teacher.shape)}")
    check_positive(teacher_temperature=teacher_temperature, student_temperature=student_temperature)
    nan_unless_finite(teacher=teacher)
    student = cosines(first, second) / student_temperature
    teacher = teacher.to(student.dtype) / teacher_temperature
    if loss == "listnet":
        return listnet(without_own(student, 0), without_own(teacher, 0))
    return listmle(student, teacher, eps=eps, ranks=ranks)


def distil(
    student: Tensor, teacher: Tensor, *, objective: DistilObjective = "vectors", loss: DistilLoss = "mse",
    teacher_temperature: float = 0.05, student_temperature: float = 0.05,
) -> Tensor:
    """Return a distillation loss: how far a student is from its teacher's vectors or cosines of the same texts.

        mse: mean of (student - teacher)^2;   cosine: mean over rows of 1 - cos(student, teacher);
        contrastive: mean over rows i of -log softmax_j(cos(student_i, teacher_j) / t)_i, t the student's temperature;
        kl: mean over rows of sum_j P_j (log P_j - log Q_j), P and Q the softmax of teacher's and student's cosines

    student: (n, d). teacher: for the objective vectors (n, d), with the losses mse, cosine and contrastive (a text's vector
    should be nearest to the teacher's vector of that text); for similarities and ranks (n, n), the teacher's cosines between
    the texts, whose diagonal is left out, with the losses mse and kl, or listmle and listnet. Raises ValueError for other
    shapes, or a loss of another objective. Gives a scalar with a gradient, in float32 at least.
    Sources: Reimers and Gurevych (2020) for the mse of vectors; Liu et al. (2023), RankCSE, for ranks; tokenlearn (Tulkens
    and van Dongen 2025) for contrastive.

    >>> import torch
    >>> from stsbench import losses
    >>> z = torch.eye(4)
    >>> float(losses.distil(z, torch.zeros(4, 4)))
    0.25
    """
    if loss not in DISTIL_LOSSES[objective]:
        raise ValueError(f"objective {objective} has the losses {', '.join(DISTIL_LOSSES[objective])}, and not {loss}")
    check_positive(teacher_temperature=teacher_temperature, student_temperature=student_temperature)
    nan_unless_finite(teacher=teacher)
    if objective == "vectors":
        check_rows(student=student, teacher=teacher)
        return vector_loss(student, teacher, loss, temperature=student_temperature)
    check_rows(student=student)
    if tuple(teacher.shape) != (len(student), len(student)):
        raise ValueError(f"teacher must be (n, n) cosines, n = {len(student)}: it is {tuple(teacher.shape)}")
    rows = without_own(cosines(student, student), 0), without_own(teacher, 0)
    return row_loss(*rows, loss, teacher_temperature, student_temperature)


def vector_loss(
    student: Tensor, teacher: Tensor, kind: DistilLoss, first: int = 0, temperature: float = 0.05
) -> Tensor:
    """Return the distance of (n, d) vectors: mse, the mean of squares, or cosine, the mean of 1 - cos. No row gives 0.

    contrastive: the mean cross-entropy of each row's cosines with all N vectors of the teacher, (N, d), over `temperature`;
    the target of row i is the teacher's row `first` + i.
    """
    student = wide(student)
    teacher = teacher.to(student.dtype)
    if kind == "contrastive":
        targets = torch.arange(first, first + len(student), device=student.device)
        logits = cosines(student, teacher) / temperature
        return functional.cross_entropy(logits, targets, reduction="sum") / max(len(student), 1)
    if kind == "mse":
        return (student - teacher).square().sum() / max(student.numel(), 1)
    return (1 - functional.cosine_similarity(student, teacher, dim=1)).sum() / max(len(student), 1)


def row_loss(
    student: Tensor, teacher: Tensor, kind: DistilLoss, teacher_temperature: float, student_temperature: float
) -> Tensor:
    """Return a student's distance to its teacher, from both their (n, C) cosines of n texts with C other texts.

    mse: the mean over all cosines; kl: the mean over rows of sum_j P_j (log P_j - log Q_j), P and Q the softmax of the
    teacher's and the student's over their temperatures; listmle, listnet: the functions of these names. No row gives 0.
    """
    student = wide(student)
    teacher = teacher.to(student.dtype)
    if kind == "mse":
        return (student - teacher).square().sum() / max(student.numel(), 1)
    student, teacher = student / student_temperature, teacher / teacher_temperature
    if kind == "listmle":
        return listmle(student, teacher)
    if kind == "listnet":
        return listnet(student, teacher)
    return functional.kl_div(student.log_softmax(1), teacher.log_softmax(1), reduction="sum", log_target=True) / max(
        len(student), 1
    )


def triplet(anchors: Tensor, positives: Tensor, negatives: Tensor, *, margin: float = 1.0) -> Tensor:
    """Return Sentence-BERT's triplet loss, with Euclidean distances.

        mean over rows of max(|a - p| - |a - n| + margin, 0)

    anchors, positives, negatives: (n, d). Gives a scalar with a gradient, in float32 at least; no triplet (n = 0) gives 0.
    Source: Reimers and Gurevych (2019), Sentence-BERT, section 3, triplet objective.

    >>> import torch
    >>> from stsbench import losses
    >>> zero = torch.zeros(1, 2)
    >>> float(losses.triplet(zero, torch.tensor([[3.0, 4.0]]), torch.tensor([[0.0, 2.0]])))  # 5 - 2 + 1
    4.0
    """
    check_rows(anchors=anchors, positives=positives, negatives=negatives)
    check_positive(margin=margin)
    anchors = wide(anchors)
    gaps: Tensor = vector_norm(anchors - positives, dim=1) - vector_norm(anchors - negatives, dim=1)
    return (gaps + margin).clamp(min=0).sum() / max(len(gaps), 1)


def bidirectional_margin(anchors: Tensor, positives: Tensor, soft_negatives: Tensor, *, alpha: float, beta: float) -> Tensor:
    """Return SNCSE's bidirectional margin loss: a soft negative should be less similar than the positive, by alpha to beta.

        mean over i of relu(D_i + alpha) + relu(-D_i - beta),   D_i = cos(a_i, m_i) - cos(a_i, p_i)

    anchors a, positives p, soft negatives m: (n, d), row by row of one sentence. It is 0, without a gradient, where all D_i
    are in [-beta, -alpha], and does not depend on the vectors' lengths. No row gives 0, with a gradient. In float32 at
    least, also under autocast.
    Source: Wang et al. (2022), SNCSE, bidirectional margin loss.

    >>> import torch
    >>> from stsbench import losses
    >>> z = torch.eye(2)
    >>> round(float(losses.bidirectional_margin(z, z, z.flip(0), alpha=0.1, beta=0.3)), 4)  # D = -1
    0.7
    """
    if not (math.isfinite(alpha) and math.isfinite(beta)):
        raise ValueError(f"alpha and beta must be finite, not {alpha} and {beta}")
    with torch.autocast(anchors.device.type, enabled=False):
        a, p, m = (unit(vectors) for vectors in (anchors, positives, soft_negatives))
        difference = (a * m).sum(1) - (a * p).sum(1)
        return (functional.relu(difference + alpha) + functional.relu(-difference - beta)).sum() / max(len(difference), 1)


def sncse(
    anchors: Tensor, positives: Tensor, soft_negatives: Tensor, *, temperature: float = 0.05, alpha: float = 0.1,
    beta: float = 0.3, weight: float = 1e-3,
) -> Tensor:
    """Return SNCSE's loss: InfoNCE of two views, and `bidirectional_margin` with negations as soft negatives.

        mean over i of -log( exp(s(a_i, p_i)) / sum_j exp(s(a_i, p_j)) ) + weight * [ relu(D_i + alpha) + relu(-D_i - beta) ]

    anchors, positives, soft_negatives: (n, d), row by row a sentence in two templates and its negation. s is the cosine over
    `temperature`, D_i = cos(a_i, m_i) - cos(a_i, p_i). Soft negatives are not among InfoNCE's negatives. Gives a scalar with
    a gradient, in float32 at least. Raises ValueError for other shapes.
    Source: Wang et al. (2022), SNCSE, InfoNCE and the bidirectional margin loss.

    >>> import torch
    >>> from stsbench import losses
    >>> z = torch.eye(4)  # views at right angles to all others, negations equal to their sentences: ln(1 + 3 / e) + 0.1
    >>> round(float(losses.sncse(z, z, z, temperature=1.0, weight=1.0)), 4)
    0.8437
    """
    check_rows(anchors=anchors, positives=positives, soft_negatives=soft_negatives)
    check_weights(weight=weight)
    margin = bidirectional_margin(anchors, positives, soft_negatives, alpha=alpha, beta=beta)
    return info_nce(anchors, positives, temperature=temperature) + weight * margin
