"""The base class of a method's options, and options that several methods share. Imports no torch, so that recipes are
checked and listed quickly."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from stsbench.options import GIVEN, POSITIVE
from stsbench.settings import Settings, setting


class Options(Settings):
    """A method's options, a recipe's section `options`, and its stages; an unknown key is an error."""

    stages: ClassVar[tuple[str, ...]] = ("main",)  # the stages that a run may have, in their order
    default_recipe: ClassVar[str | None] = None  # recipes/NAME.yaml or NAME.yaml beside the module


def check_shares(options: Any) -> Any:
    """Return the options. Raises ValueError if the shares `masked` and `random` of the chosen tokens add up to more than
    1."""
    if options.masked + options.random > 1:
        shares = f"masked {options.masked:g} and random {options.random:g}"
        raise ValueError(f"{shares} are shares of the chosen tokens: their sum may not exceed 1")
    return options


CleanUp = Literal["prompteol", "added", "none"]  # how texts are cleaned before a test


def template_setting(**rules: Any) -> Any:
    """Return the setting `template` of a method that puts texts into a template (api/method.py, TemplateMethod)."""
    return setting(
        None, "what stands around every text, {} in its place; the last token is read (backbone.pooler last), and a text is "
        "cut at backbone.max_length tokens of its own and decoded again; null: nothing",
        "PromptEOL (Jiang et al. 2023)", **rules,
    )


def full_stop_setting() -> Any:
    """Return the setting `full_stop`, which goes with `template`."""
    return setting(
        "prompteol", "what is done to a text before a test: a full stop behind one that ends in none of . ? \" ', and of "
        "prompteol ' for each \", a full stop for a ? at its end", "evaluation.py", goes_with={"template": GIVEN},
    )


class Repetition(Settings):
    """Repetition of some sub-words, or words, in every view but the first (Wu et al. 2022, ESimCSE): api/views.py."""

    unit: Literal["subword", "word"] = setting(
        "subword", "subword: token ids, after the text was cut at max_length; word: between blanks, before it is tokenised",
    )
    rate: float = setting(0.32, "the share that is repeated at most", gt=0, lt=1)
    count: Literal["released", "paper"] = setting(
        "released", "how many are, and which may be: as in the released code, or as in the paper",
    )


class Queue(Settings):
    """A queue of a momentum encoder's vectors of earlier batches as negatives (Wu et al. 2022, ESimCSE): contrasting.py."""

    size: int = setting(160, "vectors held", ge=1)
    momentum: float = setting(
        0.995, "mu of theta_m = mu theta_m + (1 - mu) theta before each forward pass; 0: the encoder itself", ge=0, lt=1,
    )
    start: Literal["copy", "random"] = setting(
        "copy", "what theta_m starts from: a copy of the encoder, or, as in the released code, random weights",
    )


_RANKED = {"gamma": POSITIVE}
_LISTMLE = (_RANKED, {"loss": "listmle"})


class Teacher(Options):
    """One teacher: an encoder that is not trained."""

    model: str = setting(..., "the encoder, as after --model")
    settings: dict[str, str | int | bool | None] = setting({}, "further arguments of load_encoder, e.g. {pooler: cls}")
    weight: float = setting(1.0, "of its cosines beside those of other teachers; their sum counts as 1", gt=0)

    @model_validator(mode="after")
    def _runs_no_code(self) -> Self:
        """Refuse a teacher that is code: a recipe may come from somebody else, so a model that it names may not run code."""
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
