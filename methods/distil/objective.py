"""What a student's vectors lack of its teachers', as a function of vectors, for a training loop of one's own."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from stsbench.training.losses.ranking import cosines, listmle, listnet, without_own
from stsbench.training.losses.rows import check_positive, check_rows, nan_unless_finite

from .options import LOSSES

Objective = Literal["vectors", "similarities", "ranks"]
Loss = Literal["mse", "cosine", "kl", "listmle", "listnet"]


def loss(
    student: Tensor, teacher: Tensor, *, objective: Objective = "vectors", loss: Loss = "mse",
    teacher_temperature: float = 0.05, student_temperature: float = 0.05,
) -> Tensor:
    """How far a student's vectors are from what a teacher says of the same texts, a scalar with a gradient, in float32 at
    least.

    student: (n, d). teacher: for vectors (n, d), by mse, the mean over all numbers, or cosine, the mean of 1 - cos; for
    similarities and ranks (n, n), its cosines between the texts, of which each row's own is left out: by mse, kl (the
    student's softmax from the teacher's), listmle or listnet. Raises ValueError for other shapes, or a loss of another
    objective.
    Sources: Reimers and Gurevych (2020) for the mse of vectors; Liu et al. (2023), RankCSE, for ranks.

    >>> import torch
    >>> from stsbench import methods
    >>> z = torch.eye(4)
    >>> float(methods.distil.loss(z, torch.zeros(4, 4)))
    0.25
    """
    if loss not in LOSSES[objective]:
        raise ValueError(f"objective {objective} has the losses {', '.join(LOSSES[objective])}, and not {loss}")
    check_positive(teacher_temperature=teacher_temperature, student_temperature=student_temperature)
    nan_unless_finite(teacher=teacher)
    if objective == "vectors":
        check_rows(student=student, teacher=teacher)
        return vector_loss(student, teacher, loss)
    check_rows(student=student)
    if tuple(teacher.shape) != (len(student), len(student)):
        raise ValueError(f"teacher must be (n, n) cosines, n = {len(student)}: it is {tuple(teacher.shape)}")
    rows = without_own(cosines(student, student), 0), without_own(teacher, 0)
    return row_loss(*rows, loss, teacher_temperature, student_temperature)


def vector_loss(student: Tensor, teacher: Tensor, kind: Loss) -> Tensor:
    """mse: the mean over all numbers of (n, d) vectors; cosine: the mean over rows of 1 - cos. No row gives 0."""
    student, teacher = _wide(student, teacher)
    if kind == "mse":
        return (student - teacher).square().sum() / max(student.numel(), 1)
    return (1 - functional.cosine_similarity(student, teacher, dim=1)).sum() / max(len(student), 1)


def row_loss(student: Tensor, teacher: Tensor, kind: Loss, teacher_temperature: float, student_temperature: float) -> Tensor:
    """student, teacher: (n, C) cosines of n texts to C others, a row's own left out.

    mse: the mean over all of them; kl: the mean over rows of sum_j P_j (log P_j - log Q_j), P and Q the softmax of the
    teacher's and the student's over their temperatures; listmle, listnet: of losses/ranking.py. No row gives 0.
    """
    student, teacher = _wide(student, teacher)
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


def _wide(student: Tensor, teacher: Tensor) -> tuple[Tensor, Tensor]:
    """Both in the student's type, which is float32 at least."""
    student = student.to(torch.promote_types(student.dtype, torch.float32))
    return student, teacher.to(student.dtype)
