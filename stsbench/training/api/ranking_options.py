"""What a student learns of teachers' rankings: a recipe's section `ranking`, and options of RankCSE. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from stsbench.errors import StsbenchError
from stsbench.training.api.options import Options, refuse_idle

_OF_LISTMLE = ("eps", "ranks")
_OF_TEACHERS = ("loss", "teacher_temperature", "self_column", *_OF_LISTMLE)


class Teacher(Options):
    """One teacher: an encoder that is not trained."""

    model: str  # as after --model
    settings: dict[str, str | int | bool | None] = Field(default={})  # further arguments of load_encoder, e.g. {pooler: cls}
    weight: float = Field(default=1.0, gt=0)  # of its cosines beside those of other teachers; their sum counts as 1


class RankingOptions(Options):
    """gamma * L_rank + beta * L_consistency (Liu et al. 2023, RankCSE), added to a contrastive loss."""

    teachers: tuple[Teacher, ...] = ()
    loss: Literal["listmle", "listnet"] = "listmle"
    gamma: float = Field(default=1.0, ge=0)  # weight of the ranking by the teachers; 0: none, and no teacher
    teacher_temperature: float = Field(default=0.05, gt=0)  # divides the teachers' cosines; listmle knows only their order
    student_temperature: float = Field(default=0.05, gt=0)  # divides the student's, in both terms
    self_column: Literal["auto", "in", "out"] = "auto"  # a row's own positive in its list; auto: in for listmle, else out
    eps: float = Field(default=0.0, ge=0)  # listmle: added inside the logarithm (community code: 1e-7)
    ranks: Literal["sum", "mean"] = "sum"  # listmle: over the places of a list
    # of the two views' rankings: the paper's divergence, or the entropy that the community code has in its place
    consistency: Literal["js", "entropy", "none"] = "js"
    beta: float = Field(default=1.0, ge=0)  # weight of the consistency


def check_ranking(options: RankingOptions, section: str) -> None:
    """Raises StsbenchError, one line, for options without an effect. section: where they stand, "options" or "ranking"."""
    try:
        refuse_code(options.teachers)
        _refuse_idle(options)
    except StsbenchError as error:
        raise StsbenchError(str(error).replace("options.", f"{section}.")) from error


def refuse_code(teachers: Sequence[Teacher]) -> None:
    """A recipe may be somebody else's: what it names runs no code. StsbenchError, one line, for a teacher that would."""
    for teacher in teachers:
        if teacher.model.startswith("python:") or teacher.settings.get("trust_remote_code"):
            raise StsbenchError(
                f"options.teachers: {teacher.model} would run code that a recipe names: teachers are models, without "
                "python: and trust_remote_code"
            )


def _refuse_idle(options: RankingOptions) -> None:
    if options.gamma > 0 and not options.teachers:
        raise StsbenchError("options.teachers is empty: name an encoder, [{model: NAME}], or set options.gamma to 0")
    if options.gamma == 0:
        refuse_idle(options, ("teachers", *_OF_TEACHERS), "options.gamma is 0")
    if options.loss != "listmle":
        refuse_idle(options, _OF_LISTMLE, "options.loss is not listmle")
    elif options.gamma:
        refuse_idle(options, ("teacher_temperature",), "listmle knows only the order of the teachers' similarities")
    if len(options.teachers) == 1 and options.teachers[0].weight != 1:
        raise StsbenchError("options.teachers: the weight of a single teacher has no effect: leave it at 1")
    if options.consistency == "none":
        refuse_idle(options, ("beta",), "options.consistency is none")
    elif options.beta == 0:
        raise StsbenchError("options.beta 0: set options.consistency to none")
