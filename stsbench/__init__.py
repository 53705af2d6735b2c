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
    from stsbench.training.engine.sentence_transformers_loss import (
        as_sentence_transformers_loss as as_sentence_transformers_loss,
    )
    from stsbench.training.runs.api import train as train

_PUBLIC = {
    "as_sentence_transformers_loss": "stsbench.training.engine.sentence_transformers_loss",
    "compare": "stsbench.evaluation.compare",
    "evaluate": "stsbench.evaluation.api",
    "load_encoder": "stsbench.encoders.load",
    "load_records": "stsbench.evaluation.run_file",
    "train": "stsbench.training.runs.api",
}


def __getattr__(name: str) -> Any:
    if name == "methods":
        return import_module("stsbench.methods")
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'stsbench' has no attribute '{name}'")


__all__ = ["as_sentence_transformers_loss", "compare", "evaluate", "load_encoder", "load_records", "methods", "train"]


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
