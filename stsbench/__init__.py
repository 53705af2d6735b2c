"""stsbench: sentence embeddings, trained by named recipes and measured under named protocols.

    from stsbench import compare, evaluate, load_encoder, load_records, train

The names load on first use, so that importing the package stays quick.
"""

from importlib import import_module
from typing import Any

_PUBLIC = {
    "compare": "stsbench.evaluation.compare",
    "evaluate": "stsbench.evaluation.api",
    "load_encoder": "stsbench.encoders.load",
    "load_records": "stsbench.evaluation.run_file",
    "train": "stsbench.training.runs.api",
}
__all__ = ["compare", "evaluate", "load_encoder", "load_records", "train"]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'stsbench' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*_PUBLIC, *(name for name in globals() if name.startswith("__"))])
