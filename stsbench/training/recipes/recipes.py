"""Where a method's recipes lie, and from a name, a file and `--set` to a checked Recipe. Imports no torch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stsbench.config import apply_sets, dump_yaml, flatten, load_config, put, read_yaml, shown, validate
from stsbench.errors import StsbenchError
from stsbench.registry import did_you_mean, names, namesakes
from stsbench.training.recipes.methods import GROUP, canonical, find_method, options_of
from stsbench.training.recipes.optimisation import check_optimisation, note_shortened
from stsbench.training.recipes.recipe import DataSettings, Recipe, Section, TrainingSettings

OWN = ("name", "description", "source", "published")  # said of one recipe: what extends it has other values
FREE = {"seed", "checkpoint_every"}  # changing one leaves a recipe what it was; so does another folder of data.file
# What `_noted` writes, in a source's note and in the description.
_NOTE = re.compile(r"(?:^| )Changed from (.+?): ([^:]+)\.$")
_DESCRIPTION = re.compile(r"(.+?) with other ([^ ]+(?:, [^ ]+)*)")


def recipe_folders(method: str) -> list[Path]:
    """Where the method's recipes are looked for: recipes/ beside its module, then beside it."""
    folder = find_method(method).folder
    return [folder / "recipes", folder]


def recipe_names(method: str) -> list[str]:
    """The names of a method's recipes, sorted. Files that begin with _ are parts of others."""
    paths = (find_method(method).folder / "recipes").glob("*.yaml")
    return sorted(path.stem for path in paths if not path.name.startswith("_"))


def default_recipe(method: str) -> str:
    """The name of the recipe that is taken where none is given: the options' `default_recipe`."""
    label, name = find_method(method).label, options_of(method).default_recipe
    if name is None:
        raise StsbenchError(
            f"{label} has no default recipe: give one by --recipe NAME|FILE.yaml, or name it in its default_recipe"
        )
    if _shipped(method, name) is None:
        known = recipe_names(method)
        hint = did_you_mean(name, known) if known else ""
        folders = " or ".join(map(str, reversed(recipe_folders(method))))
        raise StsbenchError(f"{label}: default_recipe '{name}': there is no {name}.yaml in {folders}{hint}")
    return name


def _shipped(method: str, name: str) -> Path | None:
    """The method's recipe of this name; None where there is none."""
    if name.startswith("_") or "/" in name:
        return None
    paths = (folder / f"{name}.yaml" for folder in recipe_folders(method))
    return next((path for path in paths if path.is_file()), None)


def find_recipe(method: str, name_or_path: str) -> tuple[Recipe, dict[str, Any]]:
    """A shipped recipe by name, or a recipe file: checked, and as a mapping with everything that it extends.

    Raises StsbenchError, one line, for an unknown name and for the first thing that is wrong in a file.
    """
    method = canonical(method)
    path = _path(method, name_or_path)
    raw = load_config(path, not_inherited=OWN, folders=recipe_folders(method))
    raw = {"name": path.stem, "method": method, **raw}
    if raw["method"] != method and canonical(str(raw["method"]), path.parent) != method:
        raise StsbenchError(f"{path} is a recipe of method {shown(raw['method'])}, not of '{method}'")
    raw["method"] = method
    return checked(raw, str(path)), raw


def shipped_recipe(name: str) -> Recipe:
    """The recipe METHOD/NAME that an installed method brings, whoever wrote `name`: neither a file nor code is looked for.

    Raises StsbenchError, one line, where there is none.
    """
    method, _, short = name.partition("/")
    if method not in names(GROUP) or _shipped(method, short) is None:
        raise StsbenchError(f"no installed method brings a recipe {shown(name)}")
    return find_recipe(method, short)[0]


def check_whole(path: Path) -> Path:
    """The recipe file of a run folder. Raises StsbenchError for one that extends another file, as no training writes it."""
    if (other := read_yaml(path).get("extends")) is not None:
        raise StsbenchError(f"{path}: the recipe of a run is whole, and this one extends {shown(other)}")
    return path


def stored_recipe(run: Path) -> Recipe:
    """The recipe by which a run folder was trained, as data: whoever wrote the folder, nothing that is named in it is
    imported or read. The options of an installed method are checked and complete; others stay as they stand.

    Raises StsbenchError, one line that names the file.
    """
    path = check_whole(run / "recipe.yaml")
    raw = read_yaml(path)
    if raw.get("method") in names(GROUP):
        return checked(raw, str(path))
    return _checked_but_for_options(raw, str(path))


def load_recipe(
    method: str, name_or_path: str | None = None, sets: Sequence[str] = (), overrides: Mapping[str, Any] | None = None
) -> Recipe:
    """The recipe to train by: `name_or_path` (default: the method's), then `sets` ("a.b=c"), then `overrides`.

    overrides: dotted key -> value, None being null. A recipe changed in more than FREE loses its `published` scores; its
    name (NAME-changed, unless `sets` give another), description and source say so. What is loaded from the file of a
    changed recipe, with the same `sets` or none, is equal to it. Raises StsbenchError as `find_recipe` does.
    """
    method = canonical(method)
    recipe, raw = find_recipe(method, name_or_path or default_recipe(method))
    if not sets and not overrides:
        return recipe
    raw = apply_sets(raw, sets)
    where = "--set" if sets else "options"
    for key, value in (overrides or {}).items():
        put(raw, key, value, where)
    if raw["method"] != method:
        raise StsbenchError(f"{where}: method must be '{method}', not {shown(raw['method'])}")
    return _noted(recipe, note_shortened(recipe, checked(raw, where)))


def checked(raw: Mapping[str, Any], where: str) -> Recipe:
    """`raw` as a Recipe, the method's options checked and complete too. Raises StsbenchError beginning with `where`."""
    recipe = _checked_but_for_options(raw, where)
    options = validate(options_of(recipe.method), recipe.options, where, "options.")
    return recipe.model_copy(update={"options": options.model_dump(mode="json")})


def _checked_but_for_options(raw: Mapping[str, Any], where: str) -> Recipe:
    _check_stages(raw, where)
    recipe = validate(Recipe, raw, where)
    check_optimisation(recipe.training, where, "training")
    for stage in recipe.stages:
        check_optimisation(recipe.stage_training(stage), where, f"stages.{stage}.training")
    return recipe


def changes(recipe: Recipe) -> tuple[str, list[str]] | None:
    """The name of the recipe that this one was changed from by `load_recipe`, and the keys; None for an unchanged one."""
    match = _NOTE.search(recipe.source.note or "") if recipe.source else None
    match = match or _DESCRIPTION.fullmatch(recipe.description)
    keys = match[2].split(", ") if match else []
    return (match[1], keys) if match and all(key.split(".")[0] in Recipe.model_fields for key in keys) else None


def resolved_yaml(recipe: Recipe) -> str:
    """Every value of a recipe as YAML; `find_recipe` on a file that holds it gives an equal Recipe."""
    return dump_yaml(recipe.model_dump(mode="json"))


def namesakes_of(method: str, name: str) -> tuple[str, ...]:
    """A line where a file of the working folder is called as the shipped recipe that is taken."""
    return namesakes(name, f"a recipe of {method}") if _shipped(canonical(method), name) else ()


def _path(method: str, name: str) -> Path:
    if shipped := _shipped(method, name):
        return shipped
    path = Path(name).expanduser()
    if path.is_file():
        return path
    name = name.removeprefix(f"{method}/")  # as `list recipes` names it
    if shipped := _shipped(method, name):
        return shipped
    if name.endswith((".yaml", ".yml")) or "/" in name:
        raise StsbenchError(f"--recipe {name}: there is no such file")
    known = recipe_names(method)
    hint = did_you_mean(name, known) if known else ""
    hint = hint if hint.startswith("; did") else f"; see stsbench list recipes --method {method}"
    raise StsbenchError(f"the method '{method}' has no recipe '{name}'{hint}")


def _check_stages(raw: Mapping[str, Any], where: str) -> None:
    """Each stage's own values: on the sections that they override, so that an error names the key in full."""
    stages = raw.get("stages", {})
    if not isinstance(stages, Mapping):
        return  # the Recipe's own check says so
    parts: dict[str, type[Section]] = {"data": DataSettings, "training": TrainingSettings}
    for name, stage in stages.items():
        if not isinstance(stage, Mapping):
            raise StsbenchError(f"{where}: stages.{name} must be a mapping, not {shown(stage)}")
        for part, values in stage.items():
            if part not in parts:
                raise StsbenchError(f"{where}: unknown key 'stages.{name}.{part}'{did_you_mean(str(part), parts)}")
            if not isinstance(values, Mapping):
                raise StsbenchError(f"{where}: stages.{name}.{part} must be a mapping, not {shown(values)}")
            validate(parts[part], values, where, f"stages.{name}.{part}.")


def _noted(recipe: Recipe, changed: Recipe) -> Recipe:
    """`changed`, without published scores that are another recipe's, and saying in three places what differs."""
    before, after = (
        flatten(version.model_dump(mode="json"), whole=("columns", "where"))  # mappings that are values themselves
        for version in (recipe, changed)
    )
    differing = {key for key in {**before, **after} if before.get(key) != after.get(key)}
    differing = {key for key in differing if key not in FREE and key.partition(".")[0] not in OWN}
    differing = {key for key in differing if not key.endswith(".warmup_of")}  # max_steps, which it follows from, is there
    if _same_file(recipe.data.file, changed.data.file):
        differing.discard("data.file")
    if recipe.labelled and changed.labelled and _same_file(recipe.labelled.file, changed.labelled.file):
        differing.discard("labelled.file")
    original, earlier = changes(recipe) or (recipe.name, [])
    if not differing and not earlier:
        return changed
    keys = ", ".join(sorted({*earlier, *differing}))
    update: dict[str, Any] = {"published": []}
    if changed.source is not None:
        note = " ".join(filter(None, (_NOTE.sub("", changed.source.note or ""), f"Changed from {original}: {keys}.")))
        update["source"] = changed.source.model_copy(update={"note": note})
    if recipe.search is not None:  # what its name and its description say is true of the best trial alone
        return changed.model_copy(update=update | (_no_trial(recipe, changed, differing) if differing else {}))
    if changed.name == original:
        update["name"] = f"{original.removesuffix('-changed')}-changed"
    users = earlier and not _DESCRIPTION.fullmatch(recipe.description)  # the user's, set with an earlier change
    if changed.description == recipe.description and not users:
        update["description"] = f"{original} with other {keys}"
    return changed.model_copy(update=update)


def _no_trial(recipe: Recipe, changed: Recipe, differing: set[str]) -> dict[str, str]:
    """Name and description of what was changed from a sweep's recipe, but for those that the user set."""
    name, update = recipe.name.removesuffix("-changed"), {}
    if changed.name == recipe.name:
        update["name"] = f"{name}-changed"
    if changed.description == recipe.description:
        before = _DESCRIPTION.fullmatch(recipe.description)
        keys = {*differing, *(before[2].split(", ") if before else [])}
        update["description"] = f"{name} with other {', '.join(sorted(keys))}"
    return update


def _same_file(recipes: str | None, chosen: str | None) -> bool:
    """Whether one is the other in another folder; a recipe without a file leaves it open."""
    return recipes is None or (chosen is not None and Path(recipes).name == Path(chosen).name)
