"""Options of a training, which change its recipe or say how it is run, and the recipe that `stsbench train` and
`stsbench.train` make of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from stsbench.errors import StsbenchError, UsageError
from stsbench.options import GIVEN, OptionGroup, SetOptions, Where, option

if TYPE_CHECKING:
    from stsbench.training.recipes.recipe import Recipe

# Option -> the recipe's key that it sets.
KEYS = {"backbone": "backbone.model", "data": "data.file", "labelled": "labelled.file", "seed": "seed",
        "max_steps": "training.max_steps", "dtype": "precision"}


@dataclass(frozen=True, kw_only=True)
class RecipeOptions(OptionGroup):
    """The recipe of a training, and changes to it."""

    recipe: str | None = option(
        None, "A recipe's name (`stsbench list recipes`) or a YAML file. Default: the method's own.",
    )
    backbone: str | None = option(
        None, "Model to start from: Hub id, folder, minilm, or a training run. Sets backbone.model.",
        renamed={"model": "backbone", "model_name_or_path": "backbone"},
    )
    data: str | None = option(
        None, "Training text: .txt (a sentence a line), .csv, .tsv or .jsonl; or stsb/train. Sets data.file.",
        renamed={"train_file": "data", "texts": "data", "sentences": "data"},
    )
    labelled: str | None = option(
        None, "Labelled rows (NLI), where a stage uses them. Sets labelled.file.", metavar="FILE",
    )
    max_steps: int | None = option(
        None, "So many steps at most in each stage: a shorter run and schedule. Sets training.max_steps.", least=1,
    )
    sets: Sequence[str] = option(
        list, "Any value of the recipe (`stsbench show recipe NAME` shows them), such as training.batch_size=64 or "
        "training.learning_rate=3e-5; repeatable.", flag="--set",
        metavar="KEY.SUB=VALUE", renamed={
            "lr": "set training.learning_rate=VALUE", "learning_rate": "set training.learning_rate=VALUE",
            "batch_size": "set training.batch_size=VALUE", "epochs": "set training.epochs=VALUE",
            "num_train_epochs": "set training.epochs=VALUE", "temperature": "set options.temperature=VALUE",
            "temp": "set options.temperature=VALUE", "pooler": "set backbone.pooler=VALUE",
            "max_seq_length": "set backbone.max_length=VALUE", "max_length": "set backbone.max_length=VALUE",
            "per_device_train_batch_size": "set training.batch_size=VALUE", "warmup": "set training.warmup=VALUE",
        },
    )
    dtype: str | None = option(
        None, "Precision of the training. Sets precision.", choices=("float32", "bf16", "fp16"),
        renamed={"fp16": "dtype=fp16", "bf16": "dtype=bf16", "float16": "dtype=fp16", "bfloat16": "dtype=bf16"},
    )


@dataclass(frozen=True, kw_only=True)
class RunOptions(SetOptions):
    """How a recipe is run. Of these options only the source of the development data affects which weights are kept."""

    stage: str | int | None = option(
        None, "Train this stage alone, of a method with several (`stsbench show method`).", metavar="N|NAME",
    )
    start_from: Path | None = option(
        None, "The run whose weights --stage starts with: of the stage before. Without --recipe by its recipe.",
        flag="--from", metavar="RUN",
        goes_with=Where(lambda run: run.stage is not None or run.resume, "--stage N, which starts with its weights"),
    )
    resume: bool = option(False, "Go on where the run in --output was stopped.", goes_with={"output": GIVEN})
    device: str | None = option(None, "cpu, cuda or mps. Default: the accelerator, else cpu.")
    evaluate: Sequence[str] = option(
        (), "Test the best afterwards, as `stsbench eval` does.", flag="--eval", metavar="PROTOCOL,...",
    )
    data_dir: Path | None = option(None, "Development and test data in SentEval's layout.")
    sample: bool = option(
        False, "A first training without any file: minilm, a few steps on texts inside the package. With texts of your own: "
        "development and test data from the package alone.", excludes=("data_dir",),
    )
    trackers: Sequence[str] = option(
        list, "Log there, too; repeatable.", flag="--track", metavar="tensorboard|wandb",
    )
    offline: bool = option(False, "Never touch the network.")
    command: Sequence[str] = ()


_naming, _named = Lock(), set[Path]()  # run folders already named by this process


@dataclass(frozen=True)
class TrainOptions(RunOptions):
    """A recipe, its run folder, and the options of the run."""

    recipe: Recipe
    output: Path


@dataclass(frozen=True)
class TrainRequest(RunOptions):
    """A training as requested on the command line or by `stsbench.train`; `resolve` turns it into TrainOptions.

    recipe: a name, a file or a Recipe; None: that of the resumed or earlier run, else the method's default. output: None:
    runs/<time>-<method>-<recipe>. settings: dotted key -> value, for keys with an option of their own; training.max_steps
    also applies to every stage that sets more steps. sets: values of any other keys, as "key.sub=value"; values: such
    values, too, as dotted key -> value.
    """

    method: str
    recipe: str | Recipe | None = None
    output: Path | None = option(None, "Run folder; default runs/<time>-<method>-<recipe>.")
    settings: Mapping[str, Any] = field(default_factory=dict)
    sets: Sequence[str] = ()
    values: Mapping[str, Any] = field(default_factory=dict)


def resolve(request: TrainRequest, log: Callable[[str], None]) -> tuple[TrainOptions, bool]:
    """Return the recipe and the options of the requested run, and whether it trains on the package's sample.

    `log` gets a line for each choice made for the user: minilm where the recipe's backbone is unavailable, the sample's
    texts, float32 instead of fp16. Raises StsbenchError, one line, for settings that are unknown or have no effect, and
    UsageError for options that exclude or require each other.
    """
    from stsbench.training.recipes.methods import canonical, find_method

    _check_usage(request)
    method, words = canonical(request.method), list(request.sets)
    find_method(method)  # an unknown name raises before the imports below, which take long as they load torch
    from stsbench.training.recipes.recipes import (
        is_of_sample,
        load_for_device,
        load_recipe,
        of_the_users_own,
        sample_settings,
        shadowed_recipes,
    )
    from stsbench.training.rows.files import SetPlace, backbone_at_hand, check_texts

    settings = {**request.values, **request.settings}
    set_keys = [*(word.partition("=")[0] for word in words), *request.values]
    stored = _started_recipe(request.output) if request.resume and request.output else None
    resumed = stored if request.recipe is None else None
    recipe = resumed if request.recipe is None else request.recipe
    if recipe is None and request.start_from is not None:
        from stsbench.training.runs.warm_start import earlier_recipe

        recipe = str(earlier_recipe(request.start_from, settings.get("seed")))
    load, keys = partial(load_recipe, method, recipe, words), {*settings, *set_keys}
    on_sample = request.sample and not (stored or request.start_from or of_the_users_own(recipe, keys))
    if on_sample:
        settings |= sample_settings(load(settings), keys, log)
    elif recipe is None and "backbone.model" not in keys and (
        model := backbone_at_hand(load(settings), request.offline, log)
    ):
        settings["backbone.model"] = model
    chosen = load(settings)
    if "data.file" in keys:
        check_texts(chosen, method, SetPlace(request.data_dir, request.sample, request.offline))
    _refuse_overridden(chosen, set_keys)
    if steps := request.settings.get("training.max_steps"):
        longest = {f"stages.{name}.training.max_steps": part.get("training", {}).get("max_steps") or 0
                   for name, part in chosen.stages.items()}
        settings |= {key: steps for key, most in longest.items() if most > steps and key not in set_keys}
    kept = resumed or "precision" in set_keys  # the precision must stay, even if it is an error
    chosen = load(settings) if kept else load_for_device(load, settings, request.device, log)
    for line in shadowed_recipes(method, recipe) if isinstance(recipe, str) else ():
        log(line)
    how = {entry.name: getattr(request, entry.name) for entry in fields(RunOptions)}
    folder = request.output or _unused(f"{method.rpartition(':')[2].lower()}-{chosen.name}")
    options = TrainOptions(recipe=chosen, output=folder, **how)
    return options, bool(on_sample) or is_of_sample(chosen)


def _unused(name: str) -> Path:
    """Return runs/<time>-NAME, with a number where another training of the same second, maybe in another thread, has that
    folder."""
    folder = first = Path("runs") / f"{datetime.now():%Y%m%d-%H%M%S}-{name}"
    with _naming:
        number = 1
        while folder.exists() or folder.absolute() in _named:
            number += 1
            folder = first.with_name(f"{first.name}-{number}")
        _named.add(folder.absolute())
    return folder


def _check_usage(request: TrainRequest) -> None:
    """Raise UsageError for a key that is set twice, as one of the values would be ignored, and for several processes
    without --output, as they need a common folder."""
    if request.output is None and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UsageError("several processes need --output, one folder for all of them")
    if twice := sorted({*request.settings} & {*request.values}):
        raise UsageError(f"{twice[0]} is set twice: in settings, and by an option of its own")
    keys = {*request.settings, *request.values}
    for word in request.sets:
        if (key := word.partition("=")[0]) in keys:
            raise UsageError(f"--set {word}: {key} is set twice: by another --set, or by the option of its own")
        keys.add(key)


def _started_recipe(folder: Path) -> str | None:
    """Return the recipe file of a resumed run, of several seeds or subsets the first; None where the run was killed before
    it wrote one."""
    from stsbench.training.recipes.recipes import check_whole

    several = (*folder.glob("seed-*/recipe.yaml"), *folder.glob("subset-*/seed-*/recipe.yaml"))
    seeds = sorted(several, key=lambda path: [(len(part), part) for part in path.parts])
    paths = [path for path in (folder / "recipe.yaml", *seeds) if path.is_file()]
    return str(check_whole(paths[0])) if paths else None


def _refuse_overridden(recipe: Recipe, keys: Sequence[str]) -> None:
    """Raise StsbenchError for a --set of training.X or data.X that every stage overrides."""
    from stsbench.training.recipes.method_plan import load_plan

    if not keys:
        return
    names = load_plan(recipe).stages
    for part, _, key in (dotted.partition(".") for dotted in keys):
        setting = [name for name in names if key in recipe.stages.get(name, {}).get(part, {})]
        if part in ("training", "data") and key and len(setting) == len(names):
            better = " or ".join(f"stages.{name}.{part}.{key}" for name in setting)
            raise StsbenchError(f"--set {part}.{key} has no effect: each stage sets it itself; set {better}")
