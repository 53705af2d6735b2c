"""Training sentence encoders: a method (api), a recipe (recipes), rows of text (rows), the loop (engine), a run (runs).

    from stsbench.training import Method, Recipe, TrainingCallback

The names load on first use; stsbench.training.api is all that a method's author needs.
"""

from importlib import import_module
from typing import Any

_PUBLIC = {
    "Method": "stsbench.training.api.method",
    "Recipe": "stsbench.training.recipes.recipe",
    "TrainingCallback": "stsbench.training.engine.callbacks",
    "train": "stsbench.experiments.train",
}
__all__ = ["Method", "Recipe", "TrainingCallback", "train"]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'stsbench.training' has no attribute '{name}'")
