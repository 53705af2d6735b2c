"""A first training without any file: what `--sample` puts in the place of a recipe's backbone, texts and length."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from stsbench.data.fetch.sources import NAMED
from stsbench.data.sets.catalog import entries
from stsbench.errors import StsbenchError
from stsbench.training.recipes.recipe import Recipe
from stsbench.wording import counted

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
        settings |= _texts("data", recipe.data.file)
    if uses & {"only", "with"}:
        settings |= _texts("labelled", recipe.labelled.file if recipe.labelled else None)
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


def _texts(section: str, file: str | None) -> Mapping[str, Any]:
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
