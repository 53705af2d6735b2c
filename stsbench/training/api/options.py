"""The base of a method's own choices, and their checks. Imports no torch: recipes can be checked and listed quickly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from stsbench.errors import StsbenchError


class Options(BaseModel):
    """A method's choices, as in a recipe's `options`, with its stages; an unknown key is an error."""

    stages: ClassVar[tuple[str, ...]] = ("main",)  # all that there may be, in their order
    default_recipe: ClassVar[str | None] = None  # recipes/NAME.yaml or NAME.yaml beside the module

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Repetition(BaseModel):
    """Some sub-words, or words, of every view but the first stand twice (Wu et al. 2022, ESimCSE): api/repetition.py.

    unit: subword: token ids, after the text was cut at max_length; word: between blanks, before it is tokenised. rate: the
    share that is repeated at most. count: how many are, and which may be: as in the released code, or as in the paper.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    unit: Literal["subword", "word"] = "subword"
    rate: float = Field(default=0.32, gt=0, lt=1)
    count: Literal["released", "paper"] = "released"


class Queue(BaseModel):
    """Vectors of earlier batches as further negatives, by a momentum encoder (Wu et al. 2022, ESimCSE): api/queue.py.

    size: vectors held. momentum: mu of theta_m = mu theta_m + (1 - mu) theta before each forward pass; 0: the encoder
    itself. start: what theta_m starts from: a copy of the encoder, or, as in the released code, random weights.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    size: int = Field(default=160, ge=1)
    momentum: float = Field(default=0.995, ge=0, lt=1)
    start: Literal["copy", "random"] = "copy"


def changed(options: Options, name: str) -> bool:
    """Whether an option is not at its default."""
    return bool(getattr(options, name) != type(options).model_fields[name].default)


def refuse_idle(options: Options, names: Sequence[str], why: str) -> None:
    """StsbenchError for the first of these options that is not at its default, though it has no effect. why: the reason."""
    for name in names:
        if changed(options, name):
            value, default = getattr(options, name), type(options).model_fields[name].default
            raise StsbenchError(f"options.{name} {spelled(value)} has no effect: {why}; leave it at {spelled(default)}")


def spelled(value: object) -> str:
    """As a recipe spells it."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(spelled, value))}]"
    if isinstance(value, BaseModel):
        return f"{{{', '.join(f'{name}: {spelled(inner)}' for name, inner in value)}}}"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
