"""How a recipe is run: where to, on which device, with which development data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stsbench.training.recipes.recipe import Recipe


@dataclass
class TrainOptions:
    """How a recipe is run. Of these only the place of the development data has an effect on which weights are kept."""

    recipe: Recipe
    output: Path
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
