"""How published rows are made here, as leaderboard/reproductions/PAPER.yaml states it: by a recipe, a command, or not."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import ValidationError, model_validator

from stsbench.errors import StsbenchError
from stsbench.leaderboard.publications.model import PublishedModel, Text
from stsbench.leaderboard.records.paths import REPRODUCTIONS
from stsbench.parsing import MOST_YAML, load_yaml, read_text


class Way(PublishedModel):
    """How a row is made.

    recipe: METHOD/NAME, or one for each column that has its own; eval: options of `stsbench eval`, where nothing is trained
    or where what the recipe trained is tested with them; checkpoint: those for the weights that the authors released, a
    second way to the row beside its recipe; missing: why the row has neither; not_held: why the recipe does not
    hold the row's figures as its published ones, or that by column; note: what a reader must know of the command.
    """

    recipe: Text | dict[str, Text] | None = None
    eval: Text | None = None
    checkpoint: Text | None = None
    missing: Text | None = None
    not_held: Text | dict[str, Text] | None = None
    note: Text | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.missing is None) == (self.recipe is None and self.eval is None):
            raise ValueError("needs recipe, eval or both, or else missing")
        if self.eval is not None and ("--model" in shlex.split(self.eval)) == (self.recipe is not None):
            raise ValueError("eval names its --model, unless a recipe trains it")
        if self.checkpoint is not None and (self.recipe is None or "--model" not in shlex.split(self.checkpoint)):
            raise ValueError("checkpoint names a --model, beside a recipe; without a recipe it is eval")
        for name in self.recipes:
            if name.count("/") != 1:
                raise ValueError(f"'{name}' is not METHOD/RECIPE")
        return self

    @property
    def recipes(self) -> tuple[str, ...]:
        """The recipes of all columns, each once."""
        if isinstance(self.recipe, dict):
            return tuple(dict.fromkeys(self.recipe.values()))
        return () if self.recipe is None else (self.recipe,)

    @property
    def model(self) -> str | None:
        """The --model of `eval` or `checkpoint`."""
        words = shlex.split(self.checkpoint or self.eval or "")
        return words[words.index("--model") + 1] if "--model" in words[:-1] else None

    def recipe_of(self, column: str) -> str | None:
        """The recipe that a column's figure is of."""
        return self.recipe.get(column) if isinstance(self.recipe, dict) else self.recipe

    def holds(self, column: str) -> bool:
        """Whether that recipe has the figure among its published ones."""
        return self.not_held is None or (isinstance(self.not_held, dict) and column not in self.not_held)


def load_ways(folder: Path | None = None) -> dict[str, Way]:
    """Row id ("simcse:5:7") -> its way, of all files of `folder` (the shipped ones by default).

    Raises StsbenchError naming file, table and row of the first mistake.
    """
    stated: dict[str, Way] = {}
    for path in sorted((folder or REPRODUCTIONS).glob("*.yaml")):
        try:
            tables = load_yaml(read_text(path, MOST_YAML))
        except (yaml.YAMLError, ValueError) as error:
            raise StsbenchError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
        for table, rows in _mapping(tables, str(path)).items():
            for row, raw in _mapping(rows, f"{path}: table {table}").items():
                stated[f"{path.stem}:{table}:{row}"] = _way(raw, f"{path}: table {table}, row {row}")
    return stated


def _mapping(raw: Any, where: str) -> Mapping[Any, Any]:
    if not isinstance(raw, dict):
        raise StsbenchError(f"{where}: needs a mapping")
    return raw


def _way(raw: Any, where: str) -> Way:
    try:
        return Way.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        field = "".join(f"{part}: " for part in first["loc"])
        raise StsbenchError(f"{where}: {field}{first['msg'].removeprefix('Value error, ')}") from error
