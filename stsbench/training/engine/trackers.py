"""TensorBoard and Weights & Biases, through accelerate's trackers: what is installed, and a log line as scalars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from stsbench.config import flatten
from stsbench.errors import StsbenchError
from stsbench.registry import did_you_mean

# name -> the modules any of which accelerate can write with, the package that brings one first
_MODULES = {"tensorboard": ("tensorboard", "tensorboardX"), "wandb": ("wandb",)}
_OWN = ("kind", "stage", "step")


def trackers(names: Sequence[str]) -> list[str]:
    """The names for accelerate's `log_with`, each once. Raises StsbenchError for one unknown or not installed.

    accelerate itself passes over a tracker that is not installed without a word.
    """
    chosen = list(dict.fromkeys(names))
    for name in chosen:
        if name not in _MODULES:
            raise StsbenchError(f"unknown tracker '{name}'{did_you_mean(name, _MODULES)}; there are {', '.join(_MODULES)}")
        if not any(map(_installed, _MODULES[name])):
            raise StsbenchError(f"the tracker {name} is not installed: pip install {_MODULES[name][0]}")
    return chosen


def _installed(module: str) -> bool:
    # W&B writes into a folder named wandb/, which in the working folder looks like a package without a file of its own.
    spec = find_spec(module)
    return spec is not None and spec.origin is not None


def to_scalars(line: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a train or dev line for `Accelerator.log(values, step)`, named STAGE/loss, STAGE/terms/NAME, ...

    A dev score stands under its name, its blanks as dashes: main/sts-b-dev; a method's own numbers beside it under theirs.
    {} for other lines. Steps start again in every stage, and W&B drops what is logged for an earlier step: add the steps
    of the stages before.
    """
    if line["kind"] == "dev":
        more = {name: value for name, value in line.items() if name not in (*_OWN, "name", "score", "best")}
        scores = flatten({line["name"].replace(" ", "-"): line["score"], **more}, joint="/")
        return {f"{line['stage']}/{name}": float(value) for name, value in scores.items() if isinstance(value, int | float)}
    if line["kind"] != "train":
        return {}
    return {f"{line['stage']}/{name}": float(value) for name, value in flatten(line, joint="/").items()
            if name not in _OWN and isinstance(value, int | float) and not isinstance(value, bool)}


def flat_config(recipe: Mapping[str, Any]) -> dict[str, int | float | str | bool]:
    """A nested recipe as one level, training.learning_rate and so on, for `Accelerator.init_trackers`.

    TensorBoard takes numbers, strings and booleans only: a list is written as text, null is left out.
    """
    return {name: value if isinstance(value, int | float | str) else str(value)
            for name, value in flatten(recipe).items() if value is not None}
