"""stsbench: sentence embeddings, trained by named recipes and measured under named protocols.

    from stsbench import compare, evaluate, load_encoder, train

Whatever the command line does is a function here; it prints nothing, and what a user must know is a StsbenchWarning. The
names load on first use, so that importing the package stays quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what an editor and mypy see; the same names as below
    from stsbench import methods as methods
    from stsbench.encoders.load import load_encoder as load_encoder
    from stsbench.evaluation.api import evaluate as evaluate
    from stsbench.evaluation.compare import compare as compare
    from stsbench.evaluation.run_file import load_records as load_records
    from stsbench.experiments.plan import run_plan as run_plan
    from stsbench.experiments.sweep import sweep as sweep
    from stsbench.experiments.train import train as train
    from stsbench.training.recipes.by_name import load_recipe as load_recipe

_PUBLIC = {
    "compare": "stsbench.evaluation.compare",
    "evaluate": "stsbench.evaluation.api",
    "load_encoder": "stsbench.encoders.load",
    "load_records": "stsbench.evaluation.run_file",
    "load_recipe": "stsbench.training.recipes.by_name",
    "run_plan": "stsbench.experiments.plan",
    "sweep": "stsbench.experiments.sweep",
    "train": "stsbench.experiments.train",
}


def __getattr__(name: str) -> Any:
    if name == "methods":
        return import_module("stsbench.methods")
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'stsbench' has no attribute '{name}'")


__all__ = ["compare", "evaluate", "load_encoder", "load_recipe", "load_records", "methods", "run_plan",
           "sweep", "train"]


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
