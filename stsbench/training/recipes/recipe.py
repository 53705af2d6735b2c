"""A training run's recipe: its sections, its checks, and what it says of what was changed in it. Imports no torch."""

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

OWN = ("name", "description", "source", "published")  # said of one recipe: what extends it has other values
# Settings that came after the first records and plans: at these values a digest is what it was before there was the setting.
LATER: dict[str, Any] = {
    "ranking": None, "data.min_characters": 0, "labelled.min_characters": 0, "options.guide": "frozen",
    "options.repeat": None, "options.queue": None, "backbone.layers": None, "matryoshka": None, "guide": None,
    "matryoshka.per_step": None, "training.average": None,
    "training.chunk": None, "backbone.attention": "own", "backbone.lora": None, "options.predict": "own",
    "backbone.lora.base": "whole", "options.mask_token": None, "gor": None, "contrast": None, "adaptive_layers": None,
    "options.template": None, "options.full_stop": "prompteol", "options.positive_word": None,
    "options.mean_over": "text", "backbone.gradient_checkpointing": "none",
}
# What stands around a method's loss: dotted keys of sections that make_objective (engine/objective.py) reads.
AROUND = ("ranking", "matryoshka", "guide", "contrast", "gor", "adaptive_layers")
CHANGED = ("-changed", "-swept")  # how the name of a recipe ends that was changed before it trained
OPERATIONAL = {"checkpoint_minutes"}  # changes nothing in what is trained, and is in no digest
# changing one leaves a recipe what it was; so does another folder of data.file
FREE = {"seed", "checkpoint_every", *OPERATIONAL}
# What `_noted` writes, in a source's note and in the description.
_NOTE = re.compile(r"(?:^| )Changed from (.+?): ([^:]+)\.$")
_DESCRIPTION = re.compile(r"(.+?) with other ([^ ]+(?:, [^ ]+)*)")


class Recipe(Settings):
    """A training run in full. `stages` overrides `data` and `training` stage by stage."""

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
        """Read each stage's values with those that it takes over: what goes together is asked of the whole stage."""
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
        """Return the data of one stage."""
        return DataSettings(**{**self.data.model_dump(), **self.stages.get(stage, {}).get("data", {})})

    def stage_training(self, stage: str) -> TrainingSettings:
        """Return the optimisation of one stage."""
        return TrainingSettings(**{**self.training.model_dump(), **self.stages.get(stage, {}).get("training", {})})

    def with_settings(self, settings: Mapping[str, Any]) -> Recipe:
        """Return another recipe, with these values in the place of its own: dotted key -> value, None being null.

        It is checked as a recipe file is. Where it is no longer the same recipe, its name (NAME-changed), its description
        and its source say so, and it has no published scores. Raises StsbenchError, one line, for a key that there is not
        and a value that cannot be.

        >>> import stsbench
        >>> recipe = stsbench.load_recipe("simcse/unsup-bert-base")
        >>> recipe.with_settings({"training.learning_rate": 1e-5, "options.temperature": 0.1})
        <Recipe unsup-bert-base-changed of simcse: options.temperature, training.learning_rate changed>
        """
        return changed_recipe(self, self.model_dump(mode="json"), (), settings)

    def save(self, path: str | Path) -> Path:
        """Write every value as YAML to `path`, which `stsbench train METHOD --recipe PATH` trains by; gives the path."""
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
    """Return the keys of one of SECTIONS, without those that are sections themselves. Raises StsbenchError, one line."""
    if section not in SECTIONS:
        raise StsbenchError(f"a recipe has no section '{section}'{did_you_mean(section, SECTIONS)}")
    rows = described(SECTIONS[section], setting_defaults(SECTIONS[section]))
    return [row for row in rows if (row.name if section == "recipe" else f"{section}.{row.name}") not in SECTIONS]


def checked(raw: Mapping[str, Any], where: str) -> Recipe:
    """Return `raw` as a Recipe, the method's options checked and complete too. Raises StsbenchError beginning with
    `where`."""
    for key in raw.keys() - Recipe.model_fields.keys():
        if full := _leaf_meant(key, str(raw.get("method"))):
            raise StsbenchError(f"{where}: unknown key '{key}'; did you mean {full}?")
    recipe = validate(Recipe, raw, where)
    options = validate(options_class(recipe.method), recipe.options, where, "options.")
    return recipe.model_copy(update={"options": options.model_dump(mode="json")})


def _leaf_meant(key: str, method: str) -> str | None:
    """Return the key that is meant by one typed without its section or misspelt, as options.temperature by temprature; None
    where it is nearer to a section's name, or to nothing."""
    models = {name: model_in(field.annotation) for name, field in Recipe.model_fields.items()}
    owners = {"training": models["training"], **models, "options": options_class(method)}
    owners = {"options": owners.pop("options"), **owners}  # a leaf of two sections is that of the first
    leaves: dict[str, str] = {}
    for name, owner in owners.items():
        for leaf in getattr(owner, "model_fields", ()):
            leaves.setdefault(leaf, f"{name}.{leaf}")
    initials = {"".join(word[0] for word in leaf.split("_")): leaf for leaf in reversed(leaves)}  # lr
    if key in initials:
        return leaves[initials[key]]
    if key not in leaves and did_you_mean(key, Recipe.model_fields, otherwise=""):
        return None
    return next((leaves[match] for match in difflib.get_close_matches(key, leaves, n=1, cutoff=0.7)), None)


def changes(recipe: Recipe) -> tuple[str, list[str]] | None:
    """Return the name of the recipe that this one was changed from by `load_recipe`, and the keys; None for an unchanged
    one."""
    match = _NOTE.search(recipe.source.note or "") if recipe.source else None
    match = match or _DESCRIPTION.fullmatch(recipe.description)
    keys = match[2].split(", ") if match else []
    return (match[1], keys) if match and all(key.split(".")[0] in Recipe.model_fields for key in keys) else None


def resolved_yaml(recipe: Recipe) -> str:
    """Return every value of a recipe as YAML; `find_recipe` on a file that holds it gives an equal Recipe."""
    return dump_yaml(recipe.model_dump(mode="json"))


def changed_recipe(
    recipe: Recipe, raw: Mapping[str, Any], sets: Sequence[str], overrides: Mapping[str, Any] | None
) -> Recipe:
    """Return the recipe that the mapping `raw` is of, with `sets` ("a.b=c"), then `overrides` (see
    `recipes.load_recipe`)."""
    changed = apply_sets(raw, sets)
    where = "--set" if sets else "options"
    for key, value in (overrides or {}).items():
        put(changed, key, value, where)
    if changed["method"] != recipe.method:
        raise StsbenchError(f"{where}: method must be '{recipe.method}', not {shorten(changed['method'])}")
    return _noted(recipe, note_shortened(recipe, checked(changed, where)))


def note_shortened(before: Recipe, after: Recipe) -> Recipe:
    """Return `after`, made of `before` by a user's settings, with warmup_of wherever max_steps is less than there."""
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
    """Return `changed`, without published scores that are another recipe's, and saying in three places what differs."""
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
    """Return whether one is the other in another folder; a recipe without a file leaves it open."""
    return recipes is None or (chosen is not None and Path(recipes).name == Path(chosen).name)
