"""Options of distillation: what the student learns, and how vectors of other widths are projected. Imports no torch."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from stsbench.losses.choices import DISTIL_LOSSES, DistilLoss, DistilObjective
from stsbench.settings import setting
from stsbench.training.api.options import Options, Teacher

_VECTORS, _BY_PCA = {"objective": "vectors"}, {"projection": ("auto", "pca")}


class DistilOptions(Options):
    """Defaults: as in sentence-transformers' example. The teachers have no default."""

    default_recipe = "layers-4"

    teachers: tuple[Teacher, ...] = setting((), "the encoders that teach, each with the weight of its cosines; one at least")
    objective: DistilObjective = setting(
        "vectors", "what is learnt: the vectors, the cosines between the texts of a batch, or their order",
        "vectors: Reimers and Gurevych (2020); ranks: RankCSE (Liu et al. 2023)",
    )
    loss: DistilLoss = setting(
        "mse", "vectors: mse, cosine, contrastive (its teacher's vector among those of the batch); similarities: mse, kl; "
        "ranks: listmle, listnet", "mse: Reimers and Gurevych (2020); contrastive: tokenlearn's code",
    )
    projection: Literal["auto", "pca", "linear", "none"] = setting(
        "auto", "pca: the teachers' to the student's width; linear: the student's to the teachers', trained, for the "
        "training alone; none: widths are equal; auto: pca where the teachers' are wider, none where they are equal",
        "pca: model_distillation.py; linear: EmbedDistillLoss(projection_dim)", goes_with=_VECTORS,
    )
    pca_texts: int = setting(
        40_000, "so many rows of the training text, drawn by the seed, are what PCA is of", "model_distillation.py", ge=2,
        goes_with=(_VECTORS, _BY_PCA),
    )
    center: bool = setting(
        False, "PCA subtracts the mean; the example's code leaves it in", "true: scikit-learn's PCA",
        goes_with=(_VECTORS, _BY_PCA),
    )
    teacher_temperature: float = setting(
        0.05, "divides the teachers' cosines, of which listmle knows only the order", gt=0,
        goes_with={"loss": ("kl", "listnet")},
    )
    student_temperature: float = setting(
        0.05, "divides the student's cosines", gt=0, goes_with={"loss": ("contrastive", "kl", "listnet", "listmle")},
    )

    @model_validator(mode="after")
    def _teachers_and_loss(self) -> Self:
        if not self.teachers:
            raise ValueError("teachers is empty: name an encoder, [{model: NAME}]")
        if len(self.teachers) == 1 and self.teachers[0].weight != 1:
            raise ValueError("teachers: the weight of a single teacher has no effect: leave it at 1")
        if self.loss not in (losses := DISTIL_LOSSES[self.objective]):
            to = " or ".join(losses)
            raise ValueError(f"loss {self.loss} does not go with objective {self.objective}: set it to {to}")
        return self
