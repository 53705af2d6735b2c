"""What a student learns of its teachers, and how their vectors come to its width. Imports no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stsbench.training.api.options import Options
from stsbench.training.api.ranking_options import Teacher


class DistilOptions(Options):
    """Defaults: those of sentence-transformers' example, but for the teachers, which have to be named."""

    default_recipe = "layers-4"

    teachers: tuple[Teacher, ...] = ()
    objective: Literal["vectors", "similarities", "ranks"] = "vectors"
    # vectors: mse, cosine; similarities: mse, kl; ranks: listmle, listnet
    loss: Literal["mse", "cosine", "kl", "listmle", "listnet"] = "mse"
    # vectors only. pca: the teachers' to the student's width; linear: the student's to the teachers', trained, for the
    # training alone; none: widths are equal; auto: pca where the teachers' are wider, none where they are equal
    projection: Literal["auto", "pca", "linear", "none"] = "auto"
    pca_texts: int = Field(default=40_000, ge=2)  # so many rows of the training text, drawn by the seed, are what PCA is of
    center: bool = False  # PCA subtracts the mean; the example's code leaves it in
    teacher_temperature: float = Field(default=0.05, gt=0)  # kl, listnet: divides the teachers' cosines
    student_temperature: float = Field(default=0.05, gt=0)  # kl, listnet, listmle: divides the student's
