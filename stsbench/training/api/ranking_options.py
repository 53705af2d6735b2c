"""What a student learns of teachers' rankings: a recipe's section `ranking`, and options of RankCSE. Imports no torch."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from stsbench.options import POSITIVE
from stsbench.settings import setting
from stsbench.training.api.options import Options

_RANKED = {"gamma": POSITIVE}
_LISTMLE = (_RANKED, {"loss": "listmle"})


class Teacher(Options):
    """One teacher: an encoder that is not trained."""

    model: str = setting(..., "the encoder, as after --model")
    settings: dict[str, str | int | bool | None] = setting({}, "further arguments of load_encoder, e.g. {pooler: cls}")
    weight: float = setting(1.0, "of its cosines beside those of other teachers; their sum counts as 1", gt=0)

    @model_validator(mode="after")
    def _runs_no_code(self) -> Self:
        """Refuse a teacher that is code: a recipe may be somebody else's, and what it names runs none."""
        if self.model.startswith("python:") or self.settings.get("trust_remote_code"):
            raise ValueError(f"{self.model} would run code that a recipe names: teachers are models, without python: and "
                             "trust_remote_code")
        return self


class RankingOptions(Options):
    """gamma * L_rank + beta * L_consistency (Liu et al. 2023, RankCSE), added to a contrastive loss."""

    teachers: tuple[Teacher, ...] = setting(
        (), "the encoders by whose cosines a batch is ranked", goes_with=_RANKED, needed=True,
        why="name an encoder, [{model: NAME}], or set gamma to 0",
    )
    loss: Literal["listmle", "listnet"] = setting(
        "listmle", "listmle: the probability of the teachers' order; listnet: those of being first in it",
        goes_with=_RANKED,
    )
    gamma: float = setting(1.0, "weight of the ranking by the teachers; 0: none, and no teacher", "community README", ge=0)
    teacher_temperature: float = setting(
        0.05, "divides the teachers' cosines; listmle knows only their order", "community code", gt=0,
        goes_with=(_RANKED, {"loss": "listnet"}),
    )
    student_temperature: float = setting(0.05, "divides the student's cosines, in both terms", "community code", gt=0)
    self_column: Literal["auto", "in", "out"] = setting(
        "auto", "a row's own positive in its list; auto: in for listmle, else out", "community code", goes_with=_RANKED,
    )
    eps: float = setting(
        0.0, "added inside the logarithm of listmle", "the community code has 1e-7", ge=0, goes_with=_LISTMLE,
    )
    ranks: Literal["sum", "mean"] = setting(
        "sum", "over the places of a list of listmle", "community code at 17c5226; mean: another version of it",
        goes_with=_LISTMLE,
    )
    consistency: Literal["js", "entropy", "none"] = setting(
        "js", "of the two views' rankings: the paper's divergence, or the entropy that the community code has in its place",
    )
    beta: float = setting(
        1.0, "weight of the consistency", "community README, whose code does not multiply by it", ge=0,
        goes_with={"consistency": ("js", "entropy")},
    )

    @model_validator(mode="after")
    def _weights_have_an_effect(self) -> Self:
        if len(self.teachers) == 1 and self.teachers[0].weight != 1:
            raise ValueError("teachers: the weight of a single teacher has no effect: leave it at 1")
        if self.beta == 0:
            raise ValueError("beta 0 leaves no consistency: set consistency to none")
        return self
