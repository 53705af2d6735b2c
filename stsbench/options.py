"""Fields of a dataclass that are options of a command, too: default, help and bounds of each stand there alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any


def option(
    default: Any, help: str, *, flag: str | None = None, metavar: str | None = None, least: int | None = None,
    choices: Sequence[str] = (), required: bool = False,
) -> Any:
    """A field; cli/options.py makes the option of it. default: a type such as dict stands for what it makes.

    flag: where it is not the field's name; metavar: of its value; least: of a number; choices: all values that it may have;
    required: on the command line.
    """
    known = {"help": help, "flag": flag, "metavar": metavar, "least": least, "choices": choices, "required": required}
    return field(default_factory=default, metadata=known) if isinstance(default, type) else field(
        default=default, metadata=known
    )
