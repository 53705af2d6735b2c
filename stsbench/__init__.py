"""stsbench: sentence embeddings, trained by named recipes and measured under named protocols.

    from stsbench import compare, evaluate, load_encoder, train

Every command of the command line is a function here. Functions print nothing; what a user must know is a StsbenchWarning.
Names are imported on first use, so that importing the package stays quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # editors and mypy cannot follow lazy names: the same as below, and those of extensions
    from stsbench import leaderboard as leaderboard
    from stsbench import losses as losses
    from stsbench import methods as methods
    from stsbench.comparison.compare import compare as compare
    from stsbench.data.fetch.sources import load_data as load_data
    from stsbench.data.sets.catalog import list_data as list_data
    from stsbench.encoders.cache.mteb import to_mteb as to_mteb
    from stsbench.encoders.load import load_encoder as load_encoder
    from stsbench.evaluation.api import evaluate as evaluate
    from stsbench.evaluation.plan import list_protocols as list_protocols
    from stsbench.evaluation.rescore import score as score
    from stsbench.evaluation.run_file import load_records as load_records
    from stsbench.extensions.functions import *  # noqa: F403
    from stsbench.training.engine.callbacks import TrainingCallback as TrainingCallback
    from stsbench.training.recipes.named import load_recipe as load_recipe
    from stsbench.training.recipes.recipes import list_methods as list_methods
    from stsbench.training.recipes.recipes import list_recipes as list_recipes
    from stsbench.training.runs.trained import load as load
    from stsbench.training.runs.trained import train as train

_GROUP = "stsbench.functions"  # the entry points of functions that extensions add
_MEANT = {  # names that people try -> what to write
    "benchmark": "evaluate", "encoder": "load_encoder", "find_threshold": 'evaluate(model, protocol="pairs:FILE")',
    "list_encoders": "`stsbench list encoders`", "list_models": "`stsbench list encoders`", "load_dataset": "load_data",
    "load_model": "load_encoder", "quantize": "measure_variants(..., quantise=)", "sample_size": "power",
    "search": "neighbours", "semantic_search": "neighbours", "threshold": 'evaluate(model, protocol="pairs:FILE")',
}
_PACKAGES = ("leaderboard", "losses", "methods")
_PUBLIC = {
    "TrainingCallback": "stsbench.training.engine.callbacks",
    "compare": "stsbench.comparison.compare",
    "evaluate": "stsbench.evaluation.api",
    "list_data": "stsbench.data.sets.catalog",
    "list_methods": "stsbench.training.recipes.recipes",
    "list_protocols": "stsbench.evaluation.plan",
    "list_recipes": "stsbench.training.recipes.recipes",
    "load": "stsbench.training.runs.trained",
    "load_data": "stsbench.data.fetch.sources",
    "load_encoder": "stsbench.encoders.load",
    "load_recipe": "stsbench.training.recipes.named",
    "load_records": "stsbench.evaluation.run_file",
    "score": "stsbench.evaluation.rescore",
    "to_mteb": "stsbench.encoders.cache.mteb",
    "train": "stsbench.training.runs.trained",
}


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"stsbench.{name}")
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    if name == "__all__" or not name.startswith("_"):
        from stsbench.registry import did_you_mean, names, resolve

        extensions = names(_GROUP)
        if name == "__all__":
            return sorted([*_PACKAGES, *_PUBLIC, *extensions])
        if name in extensions:
            return resolve(_GROUP, name)
        known = [*_PACKAGES, *_PUBLIC, *extensions]
        hint = f"; write {_MEANT[name]}" if name in _MEANT else did_you_mean(name, known, otherwise="")
        text = f"module 'stsbench' has no attribute '{name}'{hint}"
        raise AttributeError(text, name=name, obj=None)  # without an object Python adds no suggestion of its own
    raise AttributeError(f"module 'stsbench' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*__getattr__("__all__"), *(name for name in globals() if name.startswith("__"))])
