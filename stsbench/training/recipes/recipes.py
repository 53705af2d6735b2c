"""Recipe files of methods, and a checked Recipe from a name, a file and `--set`. Imports torch only where it is used."""

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
    """Return the folders that are searched for the method's recipes: recipes/ beside its module, then the module's own."""
    folder = find_method(method).folder
    return [folder / "recipes", folder]


def recipe_names(method: str) -> list[str]:
    """Return the names of a method's recipes, sorted. Files whose name begins with _ are only there to be extended."""
    paths = (find_method(method).folder / "recipes").glob("*.yaml")
    return sorted(path.stem for path in paths if not path.name.startswith("_"))


def list_methods() -> list[str]:
    """Return the names of all installed training methods.

    >>> import stsbench
    >>> stsbench.list_methods()[:3]
    ['angle', 'cmlm', 'consert']
    """
    return names(GROUP)


def list_recipes(method: str | None = None) -> list[str]:
    """Return METHOD/NAME of all recipes, or of those of a method. Raises StsbenchError for an unknown method.

    >>> import stsbench
    >>> "simcse/unsup-bert-base" in stsbench.list_recipes("simcse")
    True
    """
    chosen = list_methods() if method is None else [canonical(method)]
    return [f"{holder}/{name}" for holder in chosen for name in recipe_names(holder)]


def default_recipe(method: str) -> str:
    """Return the name of the method's default recipe. Raises StsbenchError where its options name none, or it is missing."""
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
    """Return the path of the method's recipe of this name; None where there is none."""
    if name.startswith("_") or "/" in name:
        return None
    paths = (folder / f"{name}.yaml" for folder in recipe_folders(method))
    return next((path for path in paths if path.is_file()), None)


def find_recipe(method: str, name_or_path: str) -> tuple[Recipe, dict[str, Any]]:
    """Return a recipe by name or file, as a checked Recipe and as a mapping that includes all that it extends.

    Raises StsbenchError, one line, for an unknown name and for the first fault in a file.
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
    """Return the recipe METHOD/NAME of an installed method. `name` may be untrusted: it is not looked up as a file or a
    class.

    Raises StsbenchError, one line, where there is no such recipe.
    """
    method, _, short = name.partition("/")
    if method not in names(GROUP) or _shipped(method, short) is None:
        raise StsbenchError(f"no installed method brings a recipe {shorten(name)}")
    return find_recipe(method, short)[0]


def check_whole(path: Path) -> Path:
    """Return `path`, the recipe file of a run folder. Raises StsbenchError where it extends another file, as training never
    writes such a recipe."""
    if (other := read_yaml(path).get("extends")) is not None:
        raise StsbenchError(f"{path}: the recipe of a run is whole, and this one extends {shorten(other)}")
    return path


def stored_recipe(run: Path) -> Recipe:
    """Return the recipe of a run folder as data. The folder may be untrusted: no file that it names is imported or read.
    The options of an installed method are checked and completed; those of another method stay as they are.

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
    """Return the recipe `name_or_path`, changed by `sets` ("a.b=c"), then by `overrides`.

    name_or_path: a Recipe counts as the file that it would be saved to. None: the method's default recipe, or, for a class
    without recipes, the default of every setting, with MiniLM as the backbone.
    overrides: dotted key -> value, None being null. A recipe in which more than FREE changed loses its `published` scores;
    its name (NAME-changed, unless `sets` give another), description and source say so. Saved and loaded again, with the
    same `sets` or none, a changed recipe stays equal. Raises StsbenchError as `find_recipe` does.
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
    """Return whether training in fp16 is impossible because there is no CUDA device. device: as --device, None for the best
    available."""
    import torch

    return device == "cpu" or not torch.cuda.is_available()


def load_for_device(
    load: Callable[[Mapping[str, Any]], Recipe], overrides: Mapping[str, Any], device: str | None,
    log: Callable[[str], None],
) -> Recipe:
    """Return the recipe, in float32 where it says fp16 and there is no CUDA device. `log` gets a line about it, and the
    recipe counts as changed (`load_recipe`) in its name, its note and all records of the run.

    A precision among the `overrides` was set by the user and stays.
    """
    recipe = load(overrides)
    if recipe.precision != "fp16" or "precision" in overrides or not lacks_fp16(device):
        return recipe
    log("the recipe says fp16, which needs a CUDA device: float32 here (--dtype bf16 where the processor has it)")
    return load({**overrides, "precision": "float32"})


def _defaults(method: str, backbone: str, pooled: bool) -> tuple[Recipe, dict[str, Any]]:
    """Return the recipe of a class without recipes: the default of every setting, with MiniLM and its mean pooling.

    Raises StsbenchError for another backbone without a pooler, as poolers differ between models.
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
    """Return `recipe`, checked, and as a mapping. Raises StsbenchError where it belongs to another method."""
    if canonical(recipe.method) != method:
        raise StsbenchError(f"the recipe {recipe.name} is of method {shorten(recipe.method)}, not of '{method}'")
    raw = {**recipe.model_dump(mode="json"), "method": method}
    return checked(raw, f"the recipe {recipe.name}"), raw


def shadowed_recipes(method: str, name: str) -> tuple[str, ...]:
    """Return a line of warning where a file of the working folder has the name of the shipped recipe that is used."""
    return namesakes(name, f"a recipe of {method}") if _shipped(canonical(method), name) else ()


def _path(method: str, name: str) -> Path:
    if shipped := _shipped(method, name):
        return shipped
    path = Path(name).expanduser()
    if path.is_file():
        return path
    name = name.removeprefix(f"{method}/")  # the form in which `list recipes` prints it
    if shipped := _shipped(method, name):
        return shipped
    if name.endswith((".yaml", ".yml")) or "/" in name:
        raise StsbenchError(f"--recipe {name}: there is no such file")
    hint = did_you_mean(name, recipe_names(method), otherwise=f"; see stsbench list recipes --method {method}")
    raise StsbenchError(f"the method '{method}' has no recipe '{name}'{hint}")


TEXTS = Path(__file__).resolve().parents[2] / "data" / "sample" / "train"
BACKBONE = "minilm"
STEPS, BATCH = 20, 16  # of each stage, rounded to whole groups of rows: takes seconds on a CPU
SENTENCES, DOCUMENTS, LABELLED_PAIRS = "wiki_sentences.txt", "documents.txt", "nli_pairs.tsv"
# File name in the recipes -> the sample's file with rows of the same form. Any other text is replaced by sentences.
FORMS = {
    "nli_for_simcse.csv": "nli_for_simcse.csv", "nli_and_anli_for_simcse.csv": "nli_for_simcse.csv",
    "AllNLI.tsv": LABELLED_PAIRS, "AllNLI_with_SNLI_dev_test.tsv": LABELLED_PAIRS, "nli_pairs.tsv": LABELLED_PAIRS,
    "wiki_documents.txt": DOCUMENTS, "openwebtext.txt": DOCUMENTS,
}
LINES = 12  # in the longest document of the sample
WARNING = "warning: trained on the package's sample: it shows that training works, and its scores prove nothing"


def sample_settings(recipe: Recipe, chosen: Collection[str], log: Callable[[str], None]) -> dict[str, Any]:
    """Return the settings, dotted key -> value, that a training on the package's sample changes in a recipe.

    chosen: the keys that the user set, which stay. `log` gets one line that describes the training. Names of data
    (stsb/train, sts-texts) stay, as the sample has data of these names. Raises StsbenchError where the recipe trains on a
    kind of rows that the sample lacks.
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
    if "training.max_steps" in chosen:  # the user's number applies to every stage
        settings = {key: value for key, value in settings.items() if not key.endswith("training.max_steps")}
    settings = {key: value for key, value in settings.items() if key not in chosen}
    steps = settings.get("training.max_steps", recipe.training.max_steps)
    length = f"at most {counted(steps, 'step')} a stage" if steps else "every step"
    log(f"--sample: {settings.get('backbone.model', recipe.backbone.model)}, {length}, texts made up for the package")
    return settings


def of_the_users_own(recipe: str | Path | Recipe | None, keys: Collection[str]) -> bool:
    """Return whether a training uses the user's own texts: then --sample applies to the development data alone. keys: the
    keys that the user set."""
    is_file = isinstance(recipe, Recipe) or bool(recipe and Path(recipe).is_file())
    return is_file or any(key.endswith(("data.file", "labelled.file")) for key in keys)


def is_of_sample(recipe: Recipe) -> bool:
    """Return whether a recipe trains on the sample's texts, as the stored recipe of a run on the sample does when the run
    is resumed or a later stage starts from it."""
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
    """Return settings for a short training: few steps, small batches, development scores before and after it."""
    settings: dict[str, Any] = {"training.max_steps": STEPS, "training.batch_size": batch, "training.epochs": 1000}
    for stage in stages:
        part = recipe.stages.get(stage, {}).get("training", {})
        settings |= {f"stages.{stage}.training.{key}": settings[f"training.{key}"]
                     for key in ("max_steps", "batch_size", "epochs") if key in part}
    if recipe.labelled is not None:
        settings["labelled.batch_size"] = batch
    return {**settings, "selection.every": STEPS, "selection.at_end": True}
