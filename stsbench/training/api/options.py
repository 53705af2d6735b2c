"""The base of a method's own choices, and their checks. Imports no torch: recipes can be checked and listed quickly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from stsbench.errors import StsbenchError


class Options(BaseModel):
    """A method's choices, as in a recipe's `options`, with its stages; an unknown key is an error."""

    stages: ClassVar[tuple[str, ...]] = ("main",)  # all that there may be, in their order
    default_recipe: ClassVar[str | None] = None  # recipes/NAME.yaml or NAME.yaml beside the module

    model_config = ConfigDict(extra="forbid", frozen=True)


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
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
