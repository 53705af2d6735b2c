"""Training sentence encoders: a method (api), a recipe (recipes), rows of text (rows), the loop (engine), a run (runs).

    from stsbench.training import Method, Recipe, TrainingCallback

The names load on first use; stsbench.training.api is all that a method's author needs.
"""

from stsbench.registry import lazy_names

NAMES = {  # module -> its public names
    "stsbench.training.api.method": ("Method",), "stsbench.training.recipes.recipe": ("Recipe",),
    "stsbench.training.engine.callbacks": ("TrainingCallback",), "stsbench.training.runs.trained": ("train",),
}
__getattr__, __dir__, __all__ = lazy_names(__name__, NAMES)
