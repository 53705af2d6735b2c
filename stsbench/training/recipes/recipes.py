"""Where a method's recipes lie, and from a name, a file and `--set` to a checked Recipe. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from stsbench.config import load_config, read_yaml, shorten, validate
from stsbench.data.fetch.sources import NAMED
from stsbench.data.sets.catalog import entries
from stsbench.errors import StsbenchError
from stsbench.registry import did_you_mean, names, namesakes
from stsbench.training.recipes.methods import GROUP, canonical, find_method, options_class
from stsbench.training.recipes.recipe import OWN, Recipe, changed_recipe, checked
from stsbench.wording import counted


def recipe_folders(method: str) -> list[Path]:
    """Return where the method's recipes are looked for: recipes/ beside its module, then beside it."""
    folder = find_method(method).folder
    return [folder / "recipes", folder]


def recipe_names(method: str) -> list[str]:
    """Return the names of a method's recipes, sorted. Files that begin with _ are parts of others."""
    paths = (find_method(method).folder / "recipes").glob("*.yaml")
    return sorted(path.stem for path in paths if not path.name.startswith("_"))


def list_methods() -> list[str]:
    """Return the methods that `train` takes by name.

    >>> import stsbench
    >>> stsbench.list_methods()[:3]
    ['angle', 'cmlm', 'consert']
    """
    return names(GROUP)


def list_recipes(method: str | None = None) -> list[str]:
    """Return METHOD/NAME of all recipes, or of a method's. Raises StsbenchError for an unknown method.

    >>> import stsbench
    >>> "simcse/unsup-bert-base" in stsbench.list_recipes("simcse")
    True
    """
    chosen = list_methods() if method is None else [canonical(method)]
    return [f"{holder}/{name}" for holder in chosen for name in recipe_names(holder)]


def default_recipe(method: str) -> str:
    """Return the name of the recipe that is taken where none is given: the options' `default_recipe`."""
    label, name = find_method(method).label, options_class(method).default_recipe
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
    """Return the method's recipe of this name; None where there is none."""
    if name.startswith("_") or "/" in name:
        return None
    paths = (folder / f"{name}.yaml" for folder in recipe_folders(method))
    return next((path for path in paths if path.is_file()), None)


def find_recipe(method: str, name_or_path: str) -> tuple[Recipe, dict[str, Any]]:
    """Return a shipped recipe by name, or a recipe file: checked, and as a mapping with everything that it extends.

    Raises StsbenchError, one line, for an unknown name and for the first thing that is wrong in a file.
    """
    method = canonical(method)
    path = _path(method, name_or_path)
    raw = load_config(path, not_inherited=OWN, folders=recipe_folders(method))
    raw = {"name": path.stem, "method": method, **raw}
    if raw["method"] != method and canonical(str(raw["method"]), path.parent) != method:
        raise StsbenchError(f"{path} is a recipe of method {shorten(raw['method'])}, not of '{method}'")
    raw["method"] = method
    return checked(raw, str(path)), raw


def shipped_recipe(name: str) -> Recipe:
    """Return the recipe METHOD/NAME that an installed method brings, whoever wrote `name`: neither a file nor code is looked
    for.

    Raises StsbenchError, one line, where there is none.
    """
    method, _, short = name.partition("/")
    if method not in names(GROUP) or _shipped(method, short) is None:
        raise StsbenchError(f"no installed method brings a recipe {shorten(name)}")
    return find_recipe(method, short)[0]


def check_whole(path: Path) -> Path:
    """Return the recipe file of a run folder. Raises StsbenchError for one that extends another file, as no training
    writes it."""
    if (other := read_yaml(path).get("extends")) is not None:
        raise StsbenchError(f"{path}: the recipe of a run is whole, and this one extends {shorten(other)}")
    return path


def stored_recipe(run: Path) -> Recipe:
    """Return the recipe by which a run folder was trained, as data: whoever wrote the folder, nothing that is named in it is
    imported or read. The options of an installed method are checked and complete; others stay as they stand.

    Raises StsbenchError, one line that names the file.
    """
    path = check_whole(run / "recipe.yaml")
    raw = read_yaml(path)
    if raw.get("method") in names(GROUP):
        return checked(raw, str(path))
    return validate(Recipe, raw, str(path))


def load_recipe(
    method: str, name_or_path: str | Recipe | None = None, sets: Sequence[str] = (),
    overrides: Mapping[str, Any] | None = None,
) -> Recipe:
    """Return the recipe to train by: `name_or_path` (default: the method's), then `sets` ("a.b=c"), then `overrides`.

    name_or_path: a Recipe is what a file would be that it was saved to; None: the method's default recipe; for a class
    without recipes the defaults of every value, from MiniLM.
    overrides: dotted key -> value, None being null. A recipe changed in more than FREE loses its `published` scores; its
    name (NAME-changed, unless `sets` give another), description and source say so. What is loaded from the file of a
    changed recipe, with the same `sets` or none, is equal to it. Raises StsbenchError as `find_recipe` does.
    """
    method = canonical(method)
    if isinstance(name_or_path, Recipe):
        recipe, raw = _at_hand(method, name_or_path)
    elif name_or_path is None and options_class(method).default_recipe is None and not recipe_names(method):
        settings = {**dict(word.partition("=")[::2] for word in sets), **(overrides or {})}
        recipe, raw = _defaults(method, settings.get("backbone.model", "minilm"), "backbone.pooler" in settings)
    else:
        recipe, raw = find_recipe(method, name_or_path or default_recipe(method))
    if not sets and not overrides:
        return recipe
    return changed_recipe(recipe, raw, sets, overrides)


def lacks_fp16(device: str | None) -> bool:
    """Return whether fp16 cannot be trained in here: it takes a CUDA device. device: as --device, None for the best there
    is."""
    import torch

    return device == "cpu" or not torch.cuda.is_available()


def load_for_device(
    load: Callable[[Mapping[str, Any]], Recipe], overrides: Mapping[str, Any], device: str | None,
    log: Callable[[str], None],
) -> Recipe:
    """Return the recipe, in float32 where it says fp16 and there is no CUDA device: one line of `log` says so, and the
    recipe is another one from then on (`load_recipe`), in its name, its note and all records of the run.

    A precision among the `overrides` is what the user wants, and stays.
    """
    recipe = load(overrides)
    if recipe.precision != "fp16" or "precision" in overrides or not lacks_fp16(device):
        return recipe
    log("the recipe says fp16, which needs a CUDA device: float32 here (--dtype bf16 where the processor has it)")
    return load({**overrides, "precision": "float32"})


def _defaults(method: str, backbone: str, pooled: bool) -> tuple[Recipe, dict[str, Any]]:
    """Return the recipe of a class that names none: every default, from MiniLM with its own pooler.

    Raises StsbenchError where training is to start from another backbone without a pooler, which no default can know.
    """
    start = {"model": "minilm", "pooler": "mean"}
    if backbone != start["model"] and not pooled:
        raise StsbenchError(
            f"{find_method(method).label} has no recipe that says how the tokens of {backbone} are pooled: "
            "add --set backbone.pooler=mean (or cls, ...), or name a recipe by --recipe NAME|FILE.yaml"
        )
    raw = {"name": "defaults", "method": method, "description": "the defaults of a class without a recipe",
           "backbone": start}
    return checked(raw, f"the defaults of {method}"), raw


def _at_hand(method: str, recipe: Recipe) -> tuple[Recipe, dict[str, Any]]:
    """Return a Recipe, checked and as a mapping. StsbenchError where it is another method's."""
    if canonical(recipe.method) != method:
        raise StsbenchError(f"the recipe {recipe.name} is of method {shorten(recipe.method)}, not of '{method}'")
    raw = {**recipe.model_dump(mode="json"), "method": method}
    return checked(raw, f"the recipe {recipe.name}"), raw


def shadowed_recipes(method: str, name: str) -> tuple[str, ...]:
    """Return a line where a file of the working folder is called as the shipped recipe that is taken."""
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
    hint = did_you_mean(name, recipe_names(method), otherwise=f"; see stsbench list recipes --method {method}")
    raise StsbenchError(f"the method '{method}' has no recipe '{name}'{hint}")


TEXTS = Path(__file__).resolve().parents[2] / "data" / "sample" / "train"
BACKBONE = "minilm"
STEPS, BATCH = 20, 16  # each stage's, or as many rows as a method takes together: seconds on a CPU
SENTENCES, DOCUMENTS, LABELLED_PAIRS = "wiki_sentences.txt", "documents.txt", "nli_pairs.tsv"
# What stands in the recipes -> the sample's file of that form. Sentences stand in for every other text.
FORMS = {
    "nli_for_simcse.csv": "nli_for_simcse.csv", "nli_and_anli_for_simcse.csv": "nli_for_simcse.csv",
    "AllNLI.tsv": LABELLED_PAIRS, "AllNLI_with_SNLI_dev_test.tsv": LABELLED_PAIRS, "nli_pairs.tsv": LABELLED_PAIRS,
    "wiki_documents.txt": DOCUMENTS, "openwebtext.txt": DOCUMENTS,
}
LINES = 12  # the longest document of the sample
WARNING = "warning: trained on the package's sample: it shows that training works, and its scores prove nothing"


def sample_settings(recipe: Recipe, chosen: Collection[str], log: Callable[[str], None]) -> dict[str, Any]:
    """Return dotted key -> value, of what a training on the package's sample changes in a recipe.

    chosen: the keys that the user set, which stay. `log` gets one line that says so. Names of data
    (stsb/train, sts-texts) stay: they are read from the sample by themselves. Raises StsbenchError for texts of a form that
    the sample has none of.
    """
    from stsbench.training.recipes.method_plan import load_plan  # imports torch

    plan = load_plan(recipe)
    settings: dict[str, Any] = {"backbone.model": BACKBONE}
    uses = {plan.labelled(stage) for stage in plan.stages}
    if uses != {"only"}:
        settings |= _sample_file("data", recipe.data.file)
    if uses & {"only", "with"}:
        settings |= _sample_file("labelled", recipe.labelled.file if recipe.labelled else None)
    if recipe.data.sample is not None:
        settings["data.sample"] = None
    if recipe.data.held_out:
        settings["data.held_out"] = BATCH
    group = plan.needs.group_size
    settings |= _length(recipe, plan.stages, max(1, BATCH // group) * group)
    settings |= plan.kind.sample_settings
    if "training.max_steps" in chosen:  # is meant for every stage
        settings = {key: value for key, value in settings.items() if not key.endswith("training.max_steps")}
    settings = {key: value for key, value in settings.items() if key not in chosen}
    steps = settings.get("training.max_steps", recipe.training.max_steps)
    length = f"at most {counted(steps, 'step')} a stage" if steps else "every step"
    log(f"--sample: {settings.get('backbone.model', recipe.backbone.model)}, {length}, texts made up for the package")
    return settings


def of_the_users_own(recipe: str | Path | Recipe | None, keys: Collection[str]) -> bool:
    """Return whether a training has texts of the user's own: then the sample means the development data alone. keys:
    those that the user set."""
    is_file = isinstance(recipe, Recipe) or bool(recipe and Path(recipe).is_file())
    return is_file or any(key.endswith(("data.file", "labelled.file")) for key in keys)


def is_of_sample(recipe: Recipe) -> bool:
    """Return whether a recipe trains on the sample's texts, as that of a run goes on to do: resumed, or in a further
    stage."""
    sections = [recipe.data, recipe.labelled, *(recipe.stage_data(stage) for stage in recipe.stages)]
    files = [section.file for section in sections if section is not None and section.file is not None]
    return any(Path(file).parent == TEXTS for file in files)


def _sample_file(section: str, file: str | None) -> Mapping[str, Any]:
    """Return the settings of a section of the recipe that name the sample's file."""
    named = file in NAMED or any(item.id == file for item in entries("senteval"))
    if file is not None and (named or Path(file).expanduser().is_file()):
        return {}
    form = FORMS.get(Path(file or "").name)
    if form is None and file is not None and Path(file).suffix != ".txt":
        raise StsbenchError(f"the sample has no rows like {file}, which the recipe trains on: choose another --recipe")
    form = form or (LABELLED_PAIRS if section == "labelled" else SENTENCES)
    joined = {f"{section}.lines_per_row": LINES} if file == "openwebtext.txt" else {}
    return {f"{section}.file": str(TEXTS / form), **joined}


def _length(recipe: Recipe, stages: Collection[str], batch: int) -> dict[str, Any]:
    """Return few steps, small batches, and a development score before and after them."""
    settings: dict[str, Any] = {"training.max_steps": STEPS, "training.batch_size": batch, "training.epochs": 1000}
    for stage in stages:
        part = recipe.stages.get(stage, {}).get("training", {})
        settings |= {f"stages.{stage}.training.{key}": settings[f"training.{key}"]
                     for key in ("max_steps", "batch_size", "epochs") if key in part}
    if recipe.labelled is not None:
        settings["labelled.batch_size"] = batch
    return {**settings, "selection.every": STEPS, "selection.at_end": True}
