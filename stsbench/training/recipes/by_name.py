"""A recipe as a user names it: METHOD, METHOD/NAME or a file."""

from __future__ import annotations

from os import PathLike, fspath
from pathlib import Path

from stsbench.config import read_yaml, shown
from stsbench.errors import StsbenchError
from stsbench.registry import did_you_mean, names
from stsbench.training.recipes import recipes
from stsbench.training.recipes.methods import GROUP, is_file_method
from stsbench.training.recipes.recipe import Recipe


def load_recipe(recipe: str | PathLike[str], *, method: str | None = None) -> Recipe:
    """A recipe as an object, to be read, changed (`with_settings`), saved and trained by (`train`).

    recipe: METHOD/NAME as `stsbench list recipes` shows it, METHOD for the method's own, or a YAML file, such as the
    recipe.yaml of a run folder. method: of a file that names another file's class as its method, FILE.py:CLASS, which is
    read only where it is named here. Raises StsbenchError, one line.

    >>> import stsbench
    >>> recipe = stsbench.load_recipe("simcse/unsup-bert-base")
    >>> recipe.training.learning_rate, recipe.backbone.model
    (3e-05, 'google-bert/bert-base-uncased')
    """
    name = fspath(recipe)
    if method is not None:
        return recipes.load_recipe(method, name)
    if name in names(GROUP) or is_file_method(name):
        return recipes.load_recipe(name)
    if (named := name.partition("/")[0]) in names(GROUP) and not Path(name).is_file():
        return recipes.load_recipe(named, name)
    if not Path(name).expanduser().is_file():
        raise StsbenchError(f"there is no recipe {shown(name)}{did_you_mean(name, _known())}, and no such file")
    stored = read_yaml(Path(name).expanduser()).get("method")
    if not isinstance(stored, str):
        raise StsbenchError(f"{name} does not name its method: method=... here, or a line 'method: ...' in it")
    if is_file_method(stored):
        raise StsbenchError(f"{name} is of {stored}, a Python file, which is run only where it is named: method='{stored}'")
    return recipes.load_recipe(stored, name)


def _known() -> list[str]:
    by_method = {method: recipes.recipe_names(method) for method in names(GROUP)}
    return [*by_method, *(f"{method}/{name}" for method, listed in by_method.items() for name in listed)]
