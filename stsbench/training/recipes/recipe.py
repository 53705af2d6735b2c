"""A training run's recipe: its sections, its checks, and what it says of what was changed in it. Imports no torch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from stsbench.config import apply_sets, dump_yaml, flatten, put, shown, validate
from stsbench.errors import StsbenchError
from stsbench.files import atomic_write
from stsbench.registry import did_you_mean
from stsbench.training.api.ranking_options import RankingOptions
from stsbench.training.recipes.methods import options_of, short_name
from stsbench.training.recipes.optimisation import check_optimisation
from stsbench.training.recipes.sections import (
    CHANNELS as CHANNELS,
)
from stsbench.training.recipes.sections import (
    MOST as MOST,
)
from stsbench.training.recipes.sections import (
    BackboneSettings as BackboneSettings,
)
from stsbench.training.recipes.sections import (
    DataSettings as DataSettings,
)
from stsbench.training.recipes.sections import (
    LabelledSettings as LabelledSettings,
)
from stsbench.training.recipes.sections import (
    MeanCNNSettings as MeanCNNSettings,
)
from stsbench.training.recipes.sections import (
    Published as Published,
)
from stsbench.training.recipes.sections import (
    SearchSettings as SearchSettings,
)
from stsbench.training.recipes.sections import (
    Section as Section,
)
from stsbench.training.recipes.sections import (
    SelectionSettings as SelectionSettings,
)
from stsbench.training.recipes.sections import (
    SemiSettings as SemiSettings,
)
from stsbench.training.recipes.sections import (
    Source as Source,
)
from stsbench.training.recipes.sections import (
    TextCNNSettings as TextCNNSettings,
)
from stsbench.training.recipes.sections import (
    TrainingSettings as TrainingSettings,
)
from stsbench.training.recipes.wrappers import GuideSettings, MatryoshkaSettings

OWN = ("name", "description", "source", "published")  # said of one recipe: what extends it has other values
OPERATIONAL = {"checkpoint_minutes"}  # changes nothing in what is trained, and is in no digest
# changing one leaves a recipe what it was; so does another folder of data.file
FREE = {"seed", "checkpoint_every", *OPERATIONAL}
# What `_noted` writes, in a source's note and in the description.
_NOTE = re.compile(r"(?:^| )Changed from (.+?): ([^:]+)\.$")
_DESCRIPTION = re.compile(r"(.+?) with other ([^ ]+(?:, [^ ]+)*)")


class Recipe(Section):
    """A training run in full. `stages` overrides `data` and `training` stage by stage."""

    name: str
    method: str
    description: str = ""
    source: Source | None = None
    published: list[Published] = Field(default=[])
    backbone: BackboneSettings
    options: dict[str, Any] = Field(default={})  # the method's own
    data: DataSettings = DataSettings()
    labelled: LabelledSettings | None = None
    ranking: RankingOptions | None = None  # RankCSE's terms beside those of any contrastive method
    matryoshka: MatryoshkaSettings | None = None  # its contrastive term on the first numbers of every vector, too
    guide: GuideSettings | None = None  # its contrastive term without the negatives that a frozen encoder finds too near
    semi: SemiSettings | None = None  # makes any method that needs no labels a semi-supervised one
    training: TrainingSettings = TrainingSettings()
    stages: dict[str, dict[str, Any]] = Field(default={})  # stage -> {"data": {...}, "training": {...}}
    selection: SelectionSettings = SelectionSettings()
    precision: Literal["float32", "bf16", "fp16"] = "float32"
    seed: int = Field(default=42, ge=0, le=2**32 - 1)
    checkpoint_every: int | None = Field(default=None, ge=1)  # steps; null: at every dev evaluation
    checkpoint_minutes: float | None = Field(default=10, gt=0)  # also so long after the last one; null: by steps alone
    search: SearchSettings | None = None  # of a recipe that `stsbench sweep` wrote

    @model_validator(mode="after")
    def _stages_are_whole(self) -> Recipe:
        for name in self.stages:
            self.stage_data(name), self.stage_training(name)
        return self

    def stage_data(self, stage: str) -> DataSettings:
        """The data of one stage."""
        return DataSettings(**{**self.data.model_dump(), **self.stages.get(stage, {}).get("data", {})})

    def stage_training(self, stage: str) -> TrainingSettings:
        """The optimisation of one stage."""
        return TrainingSettings(**{**self.training.model_dump(), **self.stages.get(stage, {}).get("training", {})})

    def with_settings(self, settings: Mapping[str, Any]) -> Recipe:
        """Another recipe, with these values in the place of its own: dotted key -> value, None being null.

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


def checked(raw: Mapping[str, Any], where: str) -> Recipe:
    """`raw` as a Recipe, the method's options checked and complete too. Raises StsbenchError beginning with `where`."""
    recipe = checked_but_for_options(raw, where)
    options = validate(options_of(recipe.method), recipe.options, where, "options.")
    return recipe.model_copy(update={"options": options.model_dump(mode="json")})


def checked_but_for_options(raw: Mapping[str, Any], where: str) -> Recipe:
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


def changed_recipe(
    recipe: Recipe, raw: Mapping[str, Any], sets: Sequence[str], overrides: Mapping[str, Any] | None
) -> Recipe:
    """The recipe that the mapping `raw` is of, with `sets` ("a.b=c"), then `overrides` (see `recipes.load_recipe`)."""
    changed = apply_sets(raw, sets)
    where = "--set" if sets else "options"
    for key, value in (overrides or {}).items():
        put(changed, key, value, where)
    if changed["method"] != recipe.method:
        raise StsbenchError(f"{where}: method must be '{recipe.method}', not {shown(changed['method'])}")
    return _noted(recipe, note_shortened(recipe, checked(changed, where)))


def note_shortened(before: Recipe, after: Recipe) -> Recipe:
    """`after`, made of `before` by a user's settings, with warmup_of wherever max_steps is less than there."""
    training = after.training.model_copy(update={"warmup_of": _warmup_of(before.training, after.training)})
    shortened, stages = after.model_copy(update={"training": training}), dict(after.stages)
    for name in {*before.stages, *after.stages}:
        of = _warmup_of(before.stage_training(name), after.stage_training(name))
        if shortened.stage_training(name).warmup_of != of:
            part = stages.get(name, {})
            stages[name] = {**part, "training": {**part.get("training", {}), "warmup_of": of}}
    return shortened.model_copy(update={"stages": stages})


def _warmup_of(before: TrainingSettings, after: TrainingSettings) -> int | Literal["epochs"] | None:
    if after.warmup_of is not None or after.warmup < 1 or after.warmup != before.warmup or after.max_steps is None:
        return after.warmup_of
    if before.max_steps is None:
        return "epochs"
    return before.max_steps if after.max_steps < before.max_steps else None


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
