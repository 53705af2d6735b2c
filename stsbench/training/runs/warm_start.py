"""Warm starts: a run of a later stage that starts from the weights of an earlier run (--from), and checks that they fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import shorten
from typing import Any

from stsbench.config import flatten, read_yaml
from stsbench.errors import StsbenchError
from stsbench.training.engine.checkpoint import AVERAGE, Position, end_of_stage
from stsbench.training.recipes.method_plan import MethodPlan
from stsbench.training.recipes.recipe import AROUND, Recipe
from stsbench.training.recipes.recipes import check_whole, load_recipe
from stsbench.training.rows.files import LABELLED
from stsbench.training.rows.stage_rows import LABELS
from stsbench.training.runs.report import LOG, read_log
from stsbench.training.runs.run_folder import RunManifest, read_manifest


def check_start(plan: MethodPlan, stage: str | None, start_from: str | None) -> None:
    """Raise StsbenchError for a later stage without --from, and for --from with the first stage or with all stages."""
    later = stage is not None and plan.stages.index(stage) > 0
    if later == (start_from is not None):
        return
    if start_from is not None:
        what = "all stages begin anew" if stage is None else f"stage {stage} is the first"
        raise StsbenchError(f"--from {start_from} goes with --stage and a later stage of {plan.name}: {what}")
    number = plan.stages.index(str(stage))
    raise StsbenchError(
        f"--stage {stage} starts with the weights of stage {plan.stages[number - 1]}: train that with --stage {number} "
        f"--output RUN, then this with --stage {number + 1} --from RUN; without --stage all stages run"
    )


def earlier_run(folder: Path, seed: int | None = None) -> Path:
    """Return the run folder for `--from`: `folder` itself, or the run of `seed` (None: the first) in a folder of several
    seeds. Raises StsbenchError where there is none.
    """
    if (folder / "recipe.yaml").is_file():
        return folder
    seeds = sorted(folder.glob("seed-*/recipe.yaml"), key=lambda path: (len(path.parent.name), path))
    if subsets := earlier_subsets(folder):
        there = ", ".join(path.name for path in subsets)
        raise StsbenchError(f"--from {folder} holds {there}: name one of them, or go on from each with --subsets")
    if not seeds:
        raise StsbenchError(f"--from {folder} is not a run folder of `stsbench train`: it has no recipe.yaml")
    if seed is None:
        return seeds[0].parent
    if not (folder / f"seed-{seed}" / "recipe.yaml").is_file():
        there = ", ".join(path.parent.name for path in seeds)
        raise StsbenchError(f"--from {folder} holds no run of seed {seed}, but {there}: name one of them to go on from it")
    return folder / f"seed-{seed}"


def earlier_subsets(folder: Path) -> list[Path]:
    """Return the folders subset-K of a training on several subsets, in order of K; [] for other folders."""
    subsets = {path.parent.parent for path in folder.glob("subset-*/seed-*/recipe.yaml")}
    return sorted(subsets, key=lambda path: (len(path.name), path.name))


def earlier_recipe(folder: Path, seed: int | None = None) -> Path:
    """Return the recipe file of the run for `--from`, chosen as in `earlier_run`; of several subsets the first one's.

    Raises StsbenchError where there is no such run, or its recipe extends another file.
    """
    return check_whole(earlier_run(next(iter(earlier_subsets(folder)), folder), seed) / "recipe.yaml")


@dataclass(frozen=True)
class WarmStart:
    """The checkpoint of an earlier run, at the end of a stage, that the next stage starts from."""

    run: Path
    recipe: Recipe  # of the earlier run
    position: Position
    folder: Path  # of the checkpoint
    manifest: RunManifest

    @property
    def weights(self) -> str:
        """Return the sha256 of the checkpoint's file of weights, or of their mean (training.average) where it has one."""
        return self.position.files.get(AVERAGE) or self.position.files["model.safetensors"]


def find_warm_start(run: Path, plan: MethodPlan, stage: str, recipe: Recipe) -> WarmStart:
    """Return the checkpoint in the run folder `run` that `stage` starts from. Raises StsbenchError, one line, unless it fits
    the recipe.

    Method, its options, the backbone's settings, `semi` and the sections of AROUND must be equal; `check_inputs` compares
    the backbone itself.
    """
    number = plan.stages.index(stage)
    before = plan.stages[number - 1]
    path = run / "recipe.yaml"
    method = str(read_yaml(path).get("method"))
    if method != recipe.method:
        raise StsbenchError(f"--from {run} was trained by the method {method}, not by {recipe.method}")
    earlier = load_recipe(method, str(check_whole(path)))
    _check_settings(run, stage, before, earlier, recipe, plan.kind.later_options)
    end = end_of_stage(run / "checkpoints", number - 1)
    if end is None:
        raise StsbenchError(f"--from {run}: {_lacking(run, before, number)}")
    if end[0].stage != before:
        raise StsbenchError(f"--from {run} trained stage {end[0].stage}: name the run that trained stage {before}")
    return WarmStart(run, earlier, *end, read_manifest(run))


def check_inputs(warm_start: WarmStart, inputs: Mapping[str, str], model: str) -> None:
    """Raise StsbenchError where backbone, tokenizer or further files of the method differ from those of the earlier run.

    inputs: name -> sha256 in this run; model: the name of this run's backbone.
    """
    known = warm_start.position.inputs
    for name, sha in inputs.items():
        if known.get(name, sha) != sha:
            was = f": {warm_start.recipe.backbone.model} there, {model} here" if name == "backbone" else ""
            raise StsbenchError(f"--from {warm_start.run} began with another {name}{was}; its weights go on with that only")


def began_with(warm_start: WarmStart | None, recipe: Recipe) -> str:
    """Return an addition to an error about the backbone, which names the earlier run's if it is another one; "" if not."""
    if warm_start is None or warm_start.recipe.backbone.model == recipe.backbone.model:
        return ""
    return f"; --from {warm_start.run} began with {warm_start.recipe.backbone.model}: --backbone names it"


def check_labels(run: str, known: Mapping[str, str], inputs: Mapping[str, str]) -> None:
    """Raise StsbenchError where the classes of the labelled rows differ from those of the classifier in `run`.

    known, inputs: the inputs of `run` and of this run; runs of older versions did not store the classes.
    """
    there, here = known.get(LABELS), inputs.get(LABELS)
    if there is not None and here is not None and there != here:
        raise StsbenchError(
            f"{run} was trained on the labels {shorten(there, 200)}, and the labelled rows have {shorten(here, 200)} here: "
            "give rows with the same labels"
        )


def check_best(warm_start: WarmStart, dev: str) -> None:
    """Raise StsbenchError where the earlier run's best score cannot be compared with this run's (selection.over all).

    dev: sha256 of this run's development data.
    """
    over = "selection.over all compares the best of all stages"
    if warm_start.position.inputs.get("dev data") != dev:
        raise StsbenchError(f"{over}, and --from {warm_start.run} was not scored on this run's development data")
    if warm_start.position.number > 0 and warm_start.recipe.selection.over != "all":
        raise StsbenchError(f"{over}, and --from {warm_start.run} kept that of stage {warm_start.position.stage} alone")


def describe_warm_start(warm_start: WarmStart, plan: MethodPlan, recipe: Recipe) -> dict[str, Any]:
    """Return the description of the earlier run that a run stores.

    run (folder name), stage, step, seed, recipe, weights (sha256), stages (steps), data; differs: settings of the earlier
    stages that differ from `recipe`, with the earlier run's values; from: the description of the run that the earlier run
    itself started from, or None.
    """
    manifest, position = warm_start.manifest, warm_start.position
    trained = [name for name in plan.stages[: position.number + 1] if manifest.stage in (None, name)]
    earlier = replace(plan, options=plan.kind.Options(**warm_start.recipe.options))
    labelled = [LABELLED] if any(earlier.labelled(name) != "none" for name in trained) else []
    here, there = _stage_settings(plan, recipe, trained), _stage_settings(earlier, warm_start.recipe, trained)
    log = read_log(warm_start.run / LOG)
    steps = {line["stage"]: line["steps"] for line in log if line["kind"] == "start"}
    return {
        "run": warm_start.run.resolve().name, "stage": position.stage, "step": position.step, "seed": warm_start.recipe.seed,
        "recipe": warm_start.recipe.name, "weights": warm_start.weights,
        "stages": {name: steps[name] for name in trained},
        "data": {name: data for name, data in manifest.data.items() if name in (*trained, *labelled)},
        "differs": {key: value for key, value in there.items() if here.get(key) != value},
        "from": manifest.warm_start,
    }


def _lacking(run: Path, before: str, number: int) -> str:
    """Return why `run` has no sound checkpoint at the end of stage `before`, the `number`-th (from 1), for an error."""
    manifest = read_manifest(run)
    if manifest.stage not in (None, before):
        hint = f" (it began from {manifest.warm_start['run']})" if manifest.warm_start else ""
        return f"it trained stage {manifest.stage} alone{hint}; name the run that trained stage {before}"
    if any((run / "checkpoints").glob(f"{number - 1}-*")) and not any((run / "checkpoints").glob(f"{number}-*")):
        return f"it has not finished stage {before}, or that end's checkpoint is damaged: go on there with --resume"
    return f"{run / 'checkpoints'} holds no sound checkpoint of the end of stage {before}"


def _check_settings(
    run: Path, stage: str, before: str, earlier: Recipe, recipe: Recipe, later: tuple[str, ...]
) -> None:
    """Raise StsbenchError, naming the first difference, where method options, backbone settings (except the model), `semi`
    or sections of AROUND differ. later: options without effect before `stage`, which may differ."""
    there, here = _comparable(earlier, later), _comparable(recipe, later)
    for key in here | there:
        if there.get(key) != here.get(key):
            raise StsbenchError(
                f"--from {run}: {key} was {there.get(key)!r} there and is {here.get(key)!r} here: stage {stage} goes on "
                f"with stage {before}'s; set it so, or train stage {before} anew"
            )


def _comparable(recipe: Recipe, later: tuple[str, ...]) -> dict[str, Any]:
    settings = recipe.model_dump(mode="json", include={"options", "backbone", "semi", *AROUND})
    settings["backbone"].pop("model")
    for name in later:  # options without effect in the stages that the earlier run trained
        settings["options"].pop(name, None)
    return flatten(settings)


def _stage_settings(plan: MethodPlan, recipe: Recipe, stages: Sequence[str]) -> dict[str, Any]:
    """Return the settings by which a recipe trains `stages`, dotted key -> value, with files reduced to their names."""
    settings: dict[str, Any] = {"precision": recipe.precision}
    for name in stages:
        use = plan.labelled(name)
        settings[f"stages.{name}.training"] = recipe.stage_training(name).model_dump(mode="json")
        if use != "only":
            settings[f"stages.{name}.data"] = recipe.stage_data(name).model_dump(mode="json")
        if use != "none" and recipe.labelled is not None:
            settings["labelled"] = recipe.labelled.model_dump(mode="json")
    return {key: Path(value).name if key.endswith(".file") and value else value for key, value in flatten(settings).items()}
