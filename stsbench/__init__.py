"""stsbench: sentence embeddings, trained by named recipes and measured under named protocols.

    from stsbench import compare, evaluate, load_encoder, train

Whatever the command line does is a function here; it prints nothing, and what a user must know is a StsbenchWarning. The
names load on first use, so that importing the package stays quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what an editor and mypy see; the same names as below
    from stsbench.encoders.load import load_encoder as load_encoder
    from stsbench.encoders.store.encode import encode as encode
    from stsbench.encoders.store.neighbours import neighbours as neighbours
    from stsbench.evaluation.api import evaluate as evaluate
    from stsbench.evaluation.compare import compare as compare
    from stsbench.evaluation.rescore import score as score
    from stsbench.evaluation.run_file import load_records as load_records
    from stsbench.installation.report import doctor as doctor
    from stsbench.jobs.load import load as load
    from stsbench.plots.draw import plot as plot
    from stsbench.training.export.fitted import fit as fit
    from stsbench.training.export.programs import export as export
    from stsbench.training.runs.api import train as train

_PUBLIC = {
    "compare": "stsbench.evaluation.compare",
    "doctor": "stsbench.installation.report",
    "encode": "stsbench.encoders.store.encode",
    "evaluate": "stsbench.evaluation.api",
    "export": "stsbench.training.export.programs",
    "fit": "stsbench.training.export.fitted",
    "load": "stsbench.jobs.load",
    "load_encoder": "stsbench.encoders.load",
    "load_records": "stsbench.evaluation.run_file",
    "neighbours": "stsbench.encoders.store.neighbours",
    "plot": "stsbench.plots.draw",
    "score": "stsbench.evaluation.rescore",
    "train": "stsbench.training.runs.api",
}


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'stsbench' has no attribute '{name}'")


__all__ = [
    "compare", "doctor", "encode", "evaluate", "export", "fit", "load", "load_encoder", "load_records", "neighbours", "plot",
    "score", "train",
]


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
