"""The recipe of a training run: its sections, how it is checked, and how changes to it are noted. Imports no torch."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, model_validator

from stsbench.config import apply_sets, dump_yaml, flatten, model_in, parse, put, shorten, validate
from stsbench.errors import StsbenchError
from stsbench.files import atomic_write
from stsbench.registry import did_you_mean
from stsbench.settings import Described, Settings, described, sections, setting, setting_defaults
from stsbench.training.api.options import RankingOptions
from stsbench.training.recipes.methods import options_class, short_name
from stsbench.training.recipes.sections import (
    AdaptiveLayersSettings,
    BackboneSettings,
    ContrastSettings,
    DataSettings,
    GORSettings,
    GuideSettings,
    LabelledSettings,
    MatryoshkaSettings,
    Published,
    SearchSettings,
    SelectionSettings,
    SemiSettings,
    Source,
    TrainingSettings,
)

OWN = ("name", "description", "source", "published")  # keys that a recipe does not inherit from the one it extends
# Settings added after the first records and plans. At these values they are left out of digests, so that old digests hold.
LATER: dict[str, Any] = {
    "ranking": None, "data.min_characters": 0, "labelled.min_characters": 0, "options.guide": "frozen",
    "options.repeat": None, "options.queue": None, "backbone.layers": None, "matryoshka": None, "guide": None,
    "matryoshka.per_step": None, "training.average": None,
    "training.chunk": None, "backbone.attention": "own", "backbone.lora": None, "options.predict": "own",
    "backbone.lora.base": "whole", "options.mask_token": None, "gor": None, "contrast": None, "adaptive_layers": None,
    "options.template": None, "options.full_stop": "prompteol", "options.positive_word": None,
    "options.mean_over": "text", "backbone.gradient_checkpointing": "none",
}
# Sections that add terms to any method's loss: make_objective (engine/objective.py) reads them.
AROUND = ("ranking", "matryoshka", "guide", "contrast", "gor", "adaptive_layers")
CHANGED = ("-changed", "-swept")  # endings of the names of recipes that were changed before training
OPERATIONAL = {"checkpoint_minutes"}  # has no effect on the weights, and is in no digest
# A recipe with other values of these, or with data.file in another folder, still counts as unchanged.
FREE = {"seed", "checkpoint_every", *OPERATIONAL}
# The sentences that `_noted` writes into a source's note and into the description.
_NOTE = re.compile(r"(?:^| )Changed from (.+?): ([^:]+)\.$")
_DESCRIPTION = re.compile(r"(.+?) with other ([^ ]+(?:, [^ ]+)*)")


class Recipe(Settings):
    """All settings of a training run. `stages` overrides `data` and `training` for single stages."""

    name: str = setting(..., "of the recipe; a file without one has that of the file")
    method: str = setting(..., "an installed method, or FILE.py:CLASS")
    description: str = setting("", "one line of what differs from the recipe that it extends")
    source: Source | None = setting(None, "where the values come from")
    published: list[Published] = setting([], "what the paper prints of a model trained by it")
    backbone: BackboneSettings = setting(..., "the model that training starts from")
    options: dict[str, Any] = setting({}, "the method's own")
    data: DataSettings = setting(DataSettings(), "the training text")
    labelled: LabelledSettings | None = setting(None, "labelled rows beside it, or of a stage")
    ranking: RankingOptions | None = setting(None, "RankCSE's terms beside those of any contrastive method")
    matryoshka: MatryoshkaSettings | None = setting(
        None, "the contrastive term of any method on the first numbers of every vector, too",
    )
    guide: GuideSettings | None = setting(
        None, "the contrastive term of any method without the negatives that a frozen encoder finds too near",
    )
    contrast: ContrastSettings | None = setting(
        None, "the contrastive term of any method in further directions, or with hard negatives that weigh more",
    )
    gor: GORSettings | None = setting(None, "a regulariser beside the contrastive term of any method")
    adaptive_layers: AdaptiveLayersSettings | None = setting(None, "the loss of any method at layers before the last, too")
    semi: SemiSettings | None = setting(None, "makes any method that needs no labels a semi-supervised one")
    training: TrainingSettings = setting(TrainingSettings(), "the optimisation")
    stages: dict[str, dict[str, Any]] = setting({}, "stage -> {data: {...}, training: {...}}, over those of the recipe")
    selection: SelectionSettings = setting(SelectionSettings(), "which checkpoint is kept as the best")
    precision: Literal["float32", "bf16", "fp16"] = setting("float32", "of the forward passes' numbers")
    seed: int = setting(42, "of every random number of the training", ge=0, le=2**32 - 1)
    checkpoint_every: int | None = setting(None, "steps; null: at every dev evaluation", ge=1)
    checkpoint_minutes: float | None = setting(10, "also so long after the last checkpoint; null: by steps alone", gt=0)
    search: SearchSettings | None = setting(None, "of a recipe that `stsbench sweep` wrote")

    @model_validator(mode="after")
    def _stages_are_whole(self) -> Self:
        """Check each stage's values together with those that it inherits, as settings of one stage depend on each other."""
        parts: dict[str, Settings] = {"data": self.data, "training": self.training}
        for name, stage in self.stages.items():
            for part, values in stage.items():
                key = f"stages.{name}.{part}"
                if part not in parts:
                    raise ValueError(f"unknown key '{key}'{did_you_mean(part, parts)}")
                if not isinstance(values, Mapping):
                    raise ValueError(f"{key} must be a mapping, not {shorten(values)}")
                parse(type(parts[part]), {**parts[part].model_dump(mode="json"), **values}, f"{key}.")
        return self

    def stage_data(self, stage: str) -> DataSettings:
        """Return the data settings of a stage."""
        return DataSettings(**{**self.data.model_dump(), **self.stages.get(stage, {}).get("data", {})})

    def stage_training(self, stage: str) -> TrainingSettings:
        """Return the optimisation settings of a stage."""
        return TrainingSettings(**{**self.training.model_dump(), **self.stages.get(stage, {}).get("training", {})})

    def with_settings(self, settings: Mapping[str, Any]) -> Recipe:
        """Return a copy of the recipe with other values. settings: dotted key -> value, None being null.

        The copy is checked as a recipe file is. If a value other than those of FREE differs, its name (NAME-changed), its
        description and its source say so, and published scores are dropped. Raises StsbenchError, one line, for an unknown
        key or an invalid value.

        >>> import stsbench
        >>> recipe = stsbench.load_recipe("simcse/unsup-bert-base")
        >>> recipe.with_settings({"training.learning_rate": 1e-5, "options.temperature": 0.1})
        <Recipe unsup-bert-base-changed of simcse: options.temperature, training.learning_rate changed>
        """
        return changed_recipe(self, self.model_dump(mode="json"), (), settings)

    def save(self, path: str | Path) -> Path:
        """Write every value as YAML to `path`, a file for `stsbench train METHOD --recipe PATH`, and return the path."""
        with atomic_write(Path(path)) as stream:
            stream.write(resolved_yaml(self))
        return Path(path)

    def __repr__(self) -> str:
        before = changes(self)
        keys = f": {', '.join(before[1])} changed" if before else ""
        return f"<Recipe {self.name} of {short_name(self.method)}{keys}>"

    def __str__(self) -> str:
        return resolved_yaml(self)


SECTIONS: dict[str, type[BaseModel]] = {"recipe": Recipe, **sections(Recipe)}  # by dotted key, the recipe's own keys first


def describe_keys(section: str) -> list[Described]:
    """Return the keys of a section, without its subsections. Raises StsbenchError, one line, for an unknown section."""
    if section not in SECTIONS:
        raise StsbenchError(f"a recipe has no section '{section}'{did_you_mean(section, SECTIONS)}")
    rows = described(SECTIONS[section], setting_defaults(SECTIONS[section]))
    return [row for row in rows if (row.name if section == "recipe" else f"{section}.{row.name}") not in SECTIONS]


def checked(raw: Mapping[str, Any], where: str) -> Recipe:
    """Return `raw` as a Recipe, with the method's options checked and completed by their defaults. Raises StsbenchError,
    whose message begins with `where`."""
    for key in raw.keys() - Recipe.model_fields.keys():
        if full := _leaf_meant(key, str(raw.get("method"))):
            raise StsbenchError(f"{where}: unknown key '{key}'; did you mean {full}?")
    recipe = validate(Recipe, raw, where)
    options = validate(options_class(recipe.method), recipe.options, where, "options.")
    return recipe.model_copy(update={"options": options.model_dump(mode="json")})


def _leaf_meant(key: str, method: str) -> str | None:
    """Return the full key for one that lacks its section or is misspelt, such as options.temperature for temprature; None
    where the key resembles the name of a section more, or no key at all."""
    models = {name: model_in(field.annotation) for name, field in Recipe.model_fields.items()}
    owners = {"training": models["training"], **models, "options": options_class(method)}
    owners = {"options": owners.pop("options"), **owners}  # where several sections have a key, the first one counts
    leaves: dict[str, str] = {}
    for name, owner in owners.items():
        for leaf in getattr(owner, "model_fields", ()):
            leaves.setdefault(leaf, f"{name}.{leaf}")
    initials = {"".join(word[0] for word in leaf.split("_")): leaf for leaf in reversed(leaves)}  # such as lr
    if key in initials:
        return leaves[initials[key]]
    if key not in leaves and did_you_mean(key, Recipe.model_fields, otherwise=""):
        return None
    return next((leaves[match] for match in difflib.get_close_matches(key, leaves, n=1, cutoff=0.7)), None)


def changes(recipe: Recipe) -> tuple[str, list[str]] | None:
    """Return the name of the recipe that this one was made from by changing settings, and the changed keys; None for an
    unchanged recipe."""
    match = _NOTE.search(recipe.source.note or "") if recipe.source else None
    match = match or _DESCRIPTION.fullmatch(recipe.description)
    keys = match[2].split(", ") if match else []
    return (match[1], keys) if match and all(key.split(".")[0] in Recipe.model_fields for key in keys) else None


def resolved_yaml(recipe: Recipe) -> str:
    """Return every value of a recipe as YAML; `find_recipe` reads an equal Recipe from a file with this text."""
    return dump_yaml(recipe.model_dump(mode="json"))


def changed_recipe(
    recipe: Recipe, raw: Mapping[str, Any], sets: Sequence[str], overrides: Mapping[str, Any] | None
) -> Recipe:
    """Return `recipe`, whose values are the mapping `raw`, changed by `sets` ("a.b=c"), then by `overrides` (dotted key ->
    value). Raises StsbenchError, one line, for another method, an unknown key or an invalid value."""
    changed = apply_sets(raw, sets)
    where = "--set" if sets else "options"
    for key, value in (overrides or {}).items():
        put(changed, key, value, where)
    if changed["method"] != recipe.method:
        raise StsbenchError(f"{where}: method must be '{recipe.method}', not {shorten(changed['method'])}")
    return _noted(recipe, note_shortened(recipe, checked(changed, where)))


def note_shortened(before: Recipe, after: Recipe) -> Recipe:
    """Return `after`, which a user's settings made of `before`, with warmup_of set wherever max_steps became smaller."""
    training = after.training.model_copy(update={"warmup_of": _shorten_warmup(before.training, after.training)})
    shortened, stages = after.model_copy(update={"training": training}), dict(after.stages)
    for name in {*before.stages, *after.stages}:
        of = _shorten_warmup(before.stage_training(name), after.stage_training(name))
        if shortened.stage_training(name).warmup_of != of:
            part = stages.get(name, {})
            stages[name] = {**part, "training": {**part.get("training", {}), "warmup_of": of}}
    return shortened.model_copy(update={"stages": stages})


def _shorten_warmup(before: TrainingSettings, after: TrainingSettings) -> int | Literal["epochs"] | None:
    if after.warmup_of is not None or after.warmup < 1 or after.warmup != before.warmup or after.max_steps is None:
        return after.warmup_of
    if before.max_steps is None:
        return "epochs"
    return before.max_steps if after.max_steps < before.max_steps else None


def _noted(recipe: Recipe, changed: Recipe) -> Recipe:
    """Return `changed` without the published scores of `recipe`; its name, description and source say what differs."""
    before, after = (
        flatten(version.model_dump(mode="json"), whole=("columns", "where"))  # these mappings are values, not sections
        for version in (recipe, changed)
    )
    differing = {key for key in {**before, **after} if before.get(key) != after.get(key)}
    differing = {key for key in differing if key not in FREE and key.partition(".")[0] not in OWN}
    differing = {key for key in differing if not key.endswith(".warmup_of")}  # it follows from max_steps, which is listed
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
    if recipe.search is not None:  # a sweep's name and description hold for its best trial alone
        return changed.model_copy(update=update | (_no_trial(recipe, changed, differing) if differing else {}))
    if changed.name == original:
        update["name"] = f"{original.removesuffix('-changed')}-changed"
    users = earlier and not _DESCRIPTION.fullmatch(recipe.description)  # the user set it with an earlier change
    if changed.description == recipe.description and not users:
        update["description"] = f"{original} with other {keys}"
    return changed.model_copy(update=update)


def _no_trial(recipe: Recipe, changed: Recipe, differing: set[str]) -> dict[str, str]:
    """Return a new name and description for a changed recipe of a sweep, without those that the user set."""
    name, update = recipe.name.removesuffix("-changed"), {}
    if changed.name == recipe.name:
        update["name"] = f"{name}-changed"
    if changed.description == recipe.description:
        before = _DESCRIPTION.fullmatch(recipe.description)
        keys = {*differing, *(before[2].split(", ") if before else [])}
        update["description"] = f"{name} with other {', '.join(sorted(keys))}"
    return update


def _same_file(recipes: str | None, chosen: str | None) -> bool:
    """Return whether both paths have one file name, whatever the folder; also true where the recipe names no file."""
    return recipes is None or (chosen is not None and Path(recipes).name == Path(chosen).name)
