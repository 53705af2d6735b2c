"""How a recipe is run: where to, on which device, with which development data; and how a user asks for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stsbench.training.recipes.recipe import Recipe


@dataclass(kw_only=True)
class RunOptions:
    """How a recipe is run. Of these only the place of the development data has an effect on which weights are kept."""

    resume: bool = False
    device: str | None = None
    data_dir: Path | None = None
    sample: bool = False
    offline: bool = False
    trackers: Sequence[str] = ()
    evaluate: Sequence[str] = ()  # protocols of the final test
    command: Sequence[str] = field(default_factory=list)
    stage: str | int | None = None  # the only stage to train, by name or number from 1; None: all
    start_from: Path | None = None  # the earlier run that a later stage goes on from: --from


@dataclass
class TrainOptions(RunOptions):
    """A recipe, and how it is run."""

    recipe: Recipe
    output: Path


@dataclass
class TrainRequest(RunOptions):
    """A training as the command line, or `stsbench.train`, asks for it; `resolve` makes TrainOptions of it.

    recipe: a name, a file or a Recipe; None: that of the run gone on from, else the method's own. output: None: runs/<time>-
    <method>-<recipe>. settings: dotted key -> value, in the place of the recipe's, of what has an option of its own; a
    training.max_steps is of every stage that has more. sets: any other values, as "key.sub=value"; values: the same, as
    dotted key -> value.
    """

    method: str
    recipe: str | Recipe | None = None
    output: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    sets: Sequence[str] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
