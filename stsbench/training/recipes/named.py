"""Recipes by the name that a user gives, in Python or on the command line: METHOD, METHOD/NAME, NAME or a file."""

from __future__ import annotations

from itertools import chain
from os import PathLike, fspath
from pathlib import Path

from stsbench.config import find_parent, read_yaml, shorten
from stsbench.errors import StsbenchError
from stsbench.registry import did_you_mean, is_file_class, match_name, names
from stsbench.training.recipes import recipes
from stsbench.training.recipes.methods import GROUP, find_method
from stsbench.training.recipes.recipe import Recipe
from stsbench.training.recipes.recipes import default_recipe, find_recipe, recipe_names


def named_recipe(name: str, method: str | None = None) -> Recipe:
    """Return the recipe METHOD/NAME, the recipe in a file, or the recipe NAME that a single method has. method: the method
    of a recipe file that does not name one.

    Raises StsbenchError where no recipe has the name, or recipes of several methods have it.
    """
    if method:
        return find_recipe(method, name)[0]
    is_yaml = name.endswith((".yaml", ".yml"))
    if is_yaml and (path := Path(name).expanduser()).is_file():
        return find_recipe(_method(path), str(path))[0]
    holder, slash, rest = name.partition("/")
    if is_yaml and holder not in names(GROUP):
        raise StsbenchError(f"{name}: there is no such file")
    if slash:
        return find_recipe(holder, rest)[0]
    if name in names(GROUP):
        raise StsbenchError(f"'{name}' is a method: name one of its recipes, e.g. {name}/{default_recipe(name)}")
    shipped = _shipped()
    holders = [holder for holder in shipped if name in shipped[holder]]
    if len(holders) > 1:
        raise StsbenchError(f"several methods have a recipe '{name}': {', '.join(f'{holder}/{name}' for holder in holders)}")
    if not holders:
        hint = did_you_mean(name, chain.from_iterable(shipped.values()), otherwise="; see stsbench list recipes")
        raise StsbenchError(f"no method has a recipe '{name}'{hint}")
    return find_recipe(holders[0], name)[0]


def _method(path: Path) -> str:
    """Return the method of a recipe file: its `method:`, else that of the recipe it extends, or the method that ships this.

    Raises StsbenchError for a file with neither key, and where several methods have a recipe of the extended name.
    """
    shipped = {(find_method(holder).folder / "recipes").resolve(): holder for holder in names(GROUP)}
    visited: set[Path] = set()
    while path.resolve() not in visited and path.resolve().parent not in shipped:
        visited.add(path.resolve())
        data = read_yaml(path)
        if isinstance(method := data.get("method"), str):
            if is_file_class(method):
                raise StsbenchError(
                    f"{path}: its method {method} is a Python file, which is run only where the command names it: --method "
                    "FILE.py:CLASS"
                )
            return method
        if "extends" not in data:
            raise StsbenchError(
                f"{path}: says neither 'method: NAME' nor 'extends: RECIPE' (see stsbench list recipes): add one, or "
                "--method NAME, for a method of your own --method FILE.py:CLASS"
            )
        parent = find_parent(path, data["extends"], tuple(shipped))
        holders = [shipped[folder] for folder in shipped if (folder / parent.name).is_file()]
        if parent.parent in shipped and len(holders) > 1:
            several = f"several methods have a recipe '{parent.stem}' ({', '.join(holders)})"
            raise StsbenchError(f"{path}: {several}; add the line 'method: NAME'")
        path = parent
    return shipped.get(path.resolve().parent, next(iter(shipped.values())))  # files extend each other: find_recipe raises


def load_recipe(recipe: str | PathLike[str], *, method: str | None = None) -> Recipe:
    """Return a recipe as an object, which can be read, changed (`with_settings`), saved and passed to `train`.

    recipe: METHOD/NAME as `stsbench list recipes` shows it, METHOD for its default recipe, or a YAML file, such as the
    recipe.yaml of a run folder. method: FILE.py:CLASS, for a recipe file whose method is such a class: the Python file runs
    only where it is named here. Raises StsbenchError, one line.

    >>> import stsbench
    >>> recipe = stsbench.load_recipe("simcse/unsup-bert-base")
    >>> recipe.training.learning_rate, recipe.backbone.model
    (3e-05, 'google-bert/bert-base-uncased')
    """
    name = fspath(recipe)
    if method is not None:
        return recipes.load_recipe(method, name)
    if is_file_class(name):
        return recipes.load_recipe(name)
    holder, slash, rest = name.partition("/")
    if (holder := match_name(holder, names(GROUP))) in names(GROUP) and not Path(name).is_file():
        return recipes.load_recipe(holder, rest if slash else None)
    if not Path(name).expanduser().is_file():
        words = chain(_shipped(), (f"{holder}/{one}" for holder, listed in _shipped().items() for one in listed))
        raise StsbenchError(f"there is no recipe {shorten(name)}{did_you_mean(name, words)}, and no such file")
    stored = read_yaml(Path(name).expanduser()).get("method")
    if not isinstance(stored, str):
        raise StsbenchError(f"{name} does not name its method: method=... here, or a line 'method: ...' in it")
    if is_file_class(stored):
        raise StsbenchError(f"{name} is of {stored}, a Python file, which is run only where it is named: method='{stored}'")
    return recipes.load_recipe(stored, name)


def _shipped() -> dict[str, list[str]]:
    """Return method -> the names of the recipes that it ships."""
    return {method: recipe_names(method) for method in names(GROUP)}
