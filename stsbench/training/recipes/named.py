"""A recipe as `stsbench show recipe` is asked for it: by its name, or a file of the user's own."""

from __future__ import annotations

from pathlib import Path

from stsbench.config import parent_of, read_yaml
from stsbench.errors import StsbenchError
from stsbench.registry import did_you_mean, names
from stsbench.training.recipes.methods import GROUP, find_method, is_file_method
from stsbench.training.recipes.recipe import Recipe
from stsbench.training.recipes.recipes import default_recipe, find_recipe, recipe_names


def named_recipe(name: str, method: str | None = None) -> Recipe:
    """The recipe METHOD/NAME, a file's, or the one NAME of any method. method: whose it is, of a file that names none.

    Raises StsbenchError for none and one of several.
    """
    if method:
        return find_recipe(method, name)[0]
    is_yaml = name.endswith((".yaml", ".yml"))
    if is_yaml and (path := Path(name).expanduser()).is_file():
        return find_recipe(_method_of(path), str(path))[0]
    holder, slash, rest = name.partition("/")
    if is_yaml and holder not in names(GROUP):
        raise StsbenchError(f"{name}: there is no such file")
    if slash:
        return find_recipe(holder, rest)[0]
    if name in names(GROUP):
        raise StsbenchError(f"'{name}' is a method: name one of its recipes, e.g. {name}/{default_recipe(name)}")
    known = {holder: recipe_names(holder) for holder in names(GROUP)}
    holders = [holder for holder in known if name in known[holder]]
    if len(holders) > 1:
        raise StsbenchError(f"several methods have a recipe '{name}': {', '.join(f'{holder}/{name}' for holder in holders)}")
    if not holders:
        hint = did_you_mean(name, [one for every in known.values() for one in every])
        hint = hint if hint.startswith("; did") else "; see stsbench list recipes"
        raise StsbenchError(f"no method has a recipe '{name}'{hint}")
    return find_recipe(holders[0], name)[0]


def _method_of(path: Path) -> str:
    """The method of a recipe file: its `method:`, else that of what it extends, else the one whose recipe that is.

    Raises StsbenchError for a file that says neither, and for a recipe of none or of several methods.
    """
    shipped = {(find_method(holder).folder / "recipes").resolve(): holder for holder in names(GROUP)}
    visited: set[Path] = set()
    while path.resolve() not in visited and path.resolve().parent not in shipped:
        visited.add(path.resolve())
        data = read_yaml(path)
        if isinstance(method := data.get("method"), str):
            if is_file_method(method):
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
        parent = parent_of(path, data["extends"], tuple(shipped))
        holders = [shipped[folder] for folder in shipped if (folder / parent.name).is_file()]
        if parent.parent in shipped and len(holders) > 1:
            several = f"several methods have a recipe '{parent.stem}' ({', '.join(holders)})"
            raise StsbenchError(f"{path}: {several}; add the line 'method: NAME'")
        path = parent
    return shipped.get(path.resolve().parent, next(iter(shipped.values())))  # a circle: find_recipe says where it runs
