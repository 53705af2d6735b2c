"""RankCSE's ranking by a teacher as a function of vectors, for a training loop of one's own."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from stsbench.training.losses.ranking import Ranks, cosines, listmle, listnet, without_own
from stsbench.training.losses.rows import check_positive, check_rows, nan_unless_finite


def loss(
    first: Tensor, second: Tensor, teacher: Tensor, *, loss: Literal["listmle", "listnet"] = "listmle",
    student_temperature: float = 0.05, teacher_temperature: float = 0.05, eps: float = 0.0, ranks: Ranks = "sum",
) -> Tensor:
    """How far the student's ranking of a batch is from a teacher's, a scalar with a gradient, in float32 at least.

    first, second: (n, d), row by row the two views of a sentence; teacher: (n, n), its cosines between the sentences.
    listmle: -log of the probability of the teacher's order by Plackett and Luce, a row's own second view among the n;
    listnet: the cross-entropy of the probabilities of being first, without it. eps, ranks: of listmle, as options.eps and
    options.ranks.
    Source: Liu et al. (2023), RankCSE, ranking distillation.

    >>> import torch
    >>> from stsbench import methods
    >>> z = torch.eye(4)  # a student that tells no two other sentences apart: ln 3 for the first of three
    >>> round(float(methods.rankcse.loss(z, z, torch.eye(4), loss="listnet")), 4)
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
