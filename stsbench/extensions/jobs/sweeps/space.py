"""A search space: for each setting of a recipe the values to try, or a range."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from pathlib import Path
from typing import Annotated, Any

from pydantic import Discriminator, Tag, model_validator

from stsbench.config import parse_yaml, read_yaml, validate
from stsbench.errors import StsbenchError
from stsbench.registry import did_you_mean
from stsbench.settings import Settings, setting
from stsbench.training.recipes.methods import find_method

LARGEST = 2**53  # beyond it not every whole number is a float, and optuna computes with these
Value = None | bool | int | float | str
Values = Mapping[str, Value]


class Range(Settings):
    """All numbers from low to high, both included; whole numbers where both are."""

    low: int | float = setting(..., "the lowest")
    high: int | float = setting(..., "the highest")
    log: bool = setting(False, "orders of magnitude are as likely as one another")

    @model_validator(mode="after")
    def _goes_up(self) -> Range:
        if max(abs(self.low), abs(self.high)) > LARGEST:
            raise ValueError(f"low and high must be numbers between -{LARGEST:g} and {LARGEST:g}")
        if not self.low < self.high:
            raise ValueError(f"low {self.low} is not below high {self.high}")
        if self.log and self.low <= 0:
            raise ValueError(f"log needs low above 0, not {self.low}")
        return self


def _kind(among: Any) -> str:
    return "range" if isinstance(among, dict | Range) else "values"


Among = Annotated[Annotated[list[Value], Tag("values")] | Annotated[Range, Tag("range")], Discriminator(_kind)]


class Space(Settings):
    """A space file."""

    space: dict[str, Among] = setting(..., "dotted key of the recipe -> list of values, or low, high, log", min_length=1)
    source: str = setting("", "where it is from")

    @model_validator(mode="after")
    def _has_choices(self) -> Space:
        for key, among in self.space.items():
            if isinstance(among, list) and (not among or len({repr(value) for value in among}) < len(among)):
                raise ValueError(f"space.{key} must be a list of different values")
        return self

    @property
    def finite(self) -> bool:
        """Whether it is a grid."""
        return all(isinstance(among, list) for among in self.space.values())

    @property
    def points(self) -> int:
        """How many combinations a finite space has."""
        return prod(len(among) for among in self.space.values() if isinstance(among, list))

    def grid(self) -> Iterator[dict[str, Value]]:
        """Every combination of a finite space, the last key fastest."""
        among = [values if isinstance(values, list) else [] for values in self.space.values()]
        for values in product(*among):
            yield dict(zip(self.space, values, strict=True))


def read_space(method: str, name: str) -> Space:
    """A space file, or one that the method brings in spaces/. Raises StsbenchError, one line that names file and key."""
    folder = find_method(method).folder / "spaces"
    shipped, path = folder / f"{name}.yaml", Path(name).expanduser()
    if shipped.is_file():
        path = shipped
    elif not path.is_file():
        known = sorted(file.stem for file in folder.glob("*.yaml"))
        hint = did_you_mean(name, known) if known else f"; the method {method} brings none by name"
        raise StsbenchError(f"--space {name}: there is no such file{hint}")
    return validate(Space, read_yaml(path), str(path))


def space_of_grid(words: Sequence[str]) -> Space:
    """The space of --grid KEY=VALUE,VALUE words. Raises StsbenchError for a word that is not one."""
    space: dict[str, Any] = {}
    for word in words:
        key, equals, listed = word.partition("=")
        values = [value.strip() for value in listed.split(",")]
        if not equals or not all(values):
            raise StsbenchError(f"--grid {word}: write it as KEY=VALUE,VALUE")
        if key in space:
            raise StsbenchError(f"--grid {word}: {key} is there twice")
        space[key] = [parse_yaml(value, f"--grid {word}") for value in values]
    return validate(Space, {"space": space}, "--grid")
