"""One stage of a method at a time: which stages run, and the earlier run that a later stage goes on from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any

from stsbench.config import flatten, read_yaml
from stsbench.errors import StsbenchError
from stsbench.registry import did_you_mean
from stsbench.training.api.method import Method
from stsbench.training.engine.checkpoint import Position, end_of_stage
from stsbench.training.engine.loop import Stage
from stsbench.training.recipes.recipe import Recipe
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.rows.stage_rows import LABELLED, LABELS
from stsbench.training.runs.run_folder import Begun, stored_begun


def stage_name(kind: type[Method], stage: str | int | None) -> str | None:
    """The name of a stage given as a number from 1 or by name; None, all stages, for None. Raises StsbenchError."""
    stages = kind.stages
    if stage is None or stage in stages:
        return None if stage is None else str(stage)
    if str(stage).isdecimal():
        if 1 <= int(stage) <= len(stages):
            return stages[int(stage) - 1]
        raise StsbenchError(f"--stage {stage}: {kind.name} has {len(stages)} of them: {', '.join(stages)}")
    raise StsbenchError(f"--stage {stage}: {kind.name} has no such stage{did_you_mean(str(stage), stages)}")


def counted_stages(recipe: Recipe, kind: type[Method], running: Sequence[str]) -> list[str]:
    """The stages whose steps the schedules of the running ones count (training.schedule_of). StsbenchError for others."""
    for name in kind.stages:
        other = recipe.stage_training(name).schedule_of
        if other is not None and other not in kind.stages:
            hint = did_you_mean(other, kind.stages)
            raise StsbenchError(f"training.schedule_of {other} of stage {name}: {kind.name} has no such stage{hint}")
    return [other for name in running if (other := recipe.stage_training(name).schedule_of) is not None]


def set_schedules(stages: Mapping[str, Stage], running: Sequence[str]) -> None:
    """Let the running stages' schedules count the steps of the stages they name. Raises StsbenchError where a stage would
    be trained on at a rate of 0."""
    for name in running:
        stage = stages[name]
        other = stage.settings.schedule_of
        if other is None:
            continue
        own, stage.schedule = stage.batches.steps, stages[other].batches.steps
        if stage.settings.schedule == "linear" and own > stage.schedule:
            raise StsbenchError(
                f"training.schedule_of {other}: the learning rate of stage {name} is 0 after the {stage.schedule} steps of "
                f"stage {other}, and it has {own}: set stages.{name}.training.max_steps={stage.schedule}, or less"
            )


def needs_origin(kind: type[Method], stage: str | None) -> bool:
    """Whether a run of this stage alone goes on from another run."""
    return stage is not None and kind.stages.index(stage) > 0


def check_given(kind: type[Method], stage: str | None, given: str | None) -> None:
    """Raises StsbenchError where a later stage has nothing to go on from, or --from is given to what begins anew."""
    if needs_origin(kind, stage) == (given is not None):
        return
    if given is not None:
        what = "all stages begin anew" if stage is None else f"stage {stage} is the first"
        raise StsbenchError(f"--from {given} goes with --stage and a later stage of {kind.name}: {what}")
    number = kind.stages.index(str(stage))
    raise StsbenchError(
        f"--stage {stage} goes on from stage {kind.stages[number - 1]}: train that with --stage {number} --output RUN, then "
        f"this with --stage {number + 1} --from RUN; without --stage all stages run"
    )


def earlier_run(given: Path, seed: int | None = None) -> Path:
    """The run that `--from` names: a run folder itself, or of a folder of several seeds the run of this seed.

    seed None: the first of them. Raises StsbenchError where there is none.
    """
    if (given / "recipe.yaml").is_file():
        return given
    seeds = sorted(given.glob("seed-*/recipe.yaml"), key=lambda path: (len(path.parent.name), path))
    if subsets := earlier_subsets(given):
        there = ", ".join(path.name for path in subsets)
        raise StsbenchError(f"--from {given} holds {there}: name one of them, or go on from each with --subsets")
    if not seeds:
        raise StsbenchError(f"--from {given} is no run folder of `stsbench train`: it has no recipe.yaml")
    if seed is None:
        return seeds[0].parent
    if not (given / f"seed-{seed}" / "recipe.yaml").is_file():
        there = ", ".join(path.parent.name for path in seeds)
        raise StsbenchError(f"--from {given} holds no run of seed {seed}, but {there}: name one of them to go on from it")
    return given / f"seed-{seed}"


def earlier_subsets(given: Path) -> list[Path]:
    """The folders subset-K, in order of K, of runs on several subsets that `--from` names; [] for other runs."""
    found = {path.parent.parent for path in given.glob("subset-*/seed-*/recipe.yaml")}
    return sorted(found, key=lambda path: (len(path.name), path.name))


def earlier_recipe(given: Path, seed: int | None = None) -> Path:
    """The recipe of the run that `--from` names, of several seeds as `earlier_run` says, of several subsets the first's.

    Raises StsbenchError where there is none.
    """
    return earlier_run(next(iter(earlier_subsets(given)), given), seed) / "recipe.yaml"


@dataclass(frozen=True)
class Origin:
    """The end of the stage before, in an earlier run."""

    run: Path
    recipe: Recipe  # by which it was trained
    position: Position
    folder: Path  # of the checkpoint
    begun: Begun

    @property
    def weights(self) -> str:
        """sha256 of the weights, as the checkpoint stores them."""
        return self.position.files["model.safetensors"]


def find_origin(run: Path, kind: type[Method], stage: str, recipe: Recipe) -> Origin:
    """What `stage` goes on from in the folder `run`. Raises StsbenchError, one line, unless it fits this recipe.

    Method, its options, the backbone's settings and `semi` have to be equal; the backbone itself is compared by
    `check_inputs`.
    """
    number = kind.stages.index(stage)
    before = kind.stages[number - 1]
    path = run / "recipe.yaml"
    method = str(read_yaml(path).get("method"))
    if method != recipe.method:
        raise StsbenchError(f"--from {run} was trained by the method {method}, not by {recipe.method}")
    theirs = load_recipe(method, str(path))
    _check_settings(run, stage, before, theirs, recipe, kind.later_options)
    found = end_of_stage(run / "checkpoints", number - 1)
    if found is None:
        raise StsbenchError(f"--from {run}: {_lacking(run, before, number)}")
    return Origin(run, theirs, *found, stored_begun(run))


def check_inputs(origin: Origin, inputs: Mapping[str, str], model: str) -> None:
    """Raises StsbenchError where backbone, tokenizer or a method's further files are not those the origin began with.

    inputs: name -> sha256; model: the backbone's name here.
    """
    known = origin.position.inputs
    for name, sha in inputs.items():
        if known.get(name, sha) != sha:
            was = f": {origin.recipe.backbone.model} there, {model} here" if name == "backbone" else ""
            raise StsbenchError(f"--from {origin.run} began with another {name}{was}; its weights go on with their own only")


def began_with(origin: Origin | None, recipe: Recipe) -> str:
    """What to add to an error about a backbone that another recipe names than the origin's; "" where they name the same."""
    if origin is None or origin.recipe.backbone.model == recipe.backbone.model:
        return ""
    return f"; --from {origin.run} began with {origin.recipe.backbone.model}: --backbone names it"


def check_labels(who: str, known: Mapping[str, str], inputs: Mapping[str, str]) -> None:
    """Raises StsbenchError where the labelled rows' classes are not those that the classifier in `who` has.

    known, inputs: what `who` and this run read; runs of older versions did not keep the classes.
    """
    there, here = known.get(LABELS), inputs.get(LABELS)
    if there is not None and here is not None and there != here:
        raise StsbenchError(
            f"{who} tells the labels {shorten(there, 200)} apart, and the labelled rows are of {shorten(here, 200)} here: "
            "give rows with the same labels"
        )


def check_best(origin: Origin, dev: str) -> None:
    """Raises StsbenchError where the origin's best cannot be compared with this run's (selection.over all).

    dev: sha256 of this run's development data.
    """
    over = "selection.over all compares the best of all stages"
    if origin.position.inputs.get("dev data") != dev:
        raise StsbenchError(f"{over}, and --from {origin.run} was not scored on this run's development data")
    if origin.position.number > 0 and origin.recipe.selection.over != "all":
        raise StsbenchError(f"{over}, and --from {origin.run} kept that of stage {origin.position.stage} alone")


def describe_origin(origin: Origin, kind: type[Method], recipe: Recipe) -> dict[str, Any]:
    """What a run says of its origin: run (folder name), stage, step, seed, recipe, weights (sha256), stages (steps), data.

    differs: what of the earlier stages' settings was another in the origin than in `recipe`, with the origin's values;
    from: the same of the run that the origin itself went on from, or None.
    """
    begun, position = origin.begun, origin.position
    own = [name for name in kind.stages[: position.number + 1] if begun.stage in (None, name)]
    options = kind.Options(**origin.recipe.options)
    labelled = [LABELLED] if any(kind.labelled(options, name) != "none" for name in own) else []
    mine, theirs = (_stage_settings(kind, each, own) for each in (recipe, origin.recipe))
    steps = _steps(origin)
    return {
        "run": origin.run.resolve().name, "stage": position.stage, "step": position.step, "seed": origin.recipe.seed,
        "recipe": origin.recipe.name, "weights": origin.weights,
        "stages": {name: steps[name] for name in own},
        "data": {name: data for name, data in begun.data.items() if name in (*own, *labelled)},
        "differs": {key: value for key, value in theirs.items() if mine.get(key) != value},
        "from": begun.origin,
    }  # fmt: skip


def _steps(origin: Origin) -> dict[str, int]:
    """The origin's own stages and their steps, from its log."""
    from stsbench.training.runs.report import read_log

    return {line["stage"]: line["steps"] for line in read_log(origin.run / "log.jsonl") if line["kind"] == "start"}


def _lacking(run: Path, before: str, number: int) -> str:
    """Why there is no sound checkpoint at the end of stage `before`, the `number`-th."""
    begun = stored_begun(run)
    if begun.stage not in (None, before):
        hint = f" (it began from {begun.origin['run']})" if begun.origin else ""
        return f"it trained stage {begun.stage} alone{hint}; name the run that trained stage {before}"
    if any((run / "checkpoints").glob(f"{number - 1}-*")) and not any((run / "checkpoints").glob(f"{number}-*")):
        return f"it has not finished stage {before}, or that end's checkpoint is damaged: go on there with --resume"
    return f"{run / 'checkpoints'} holds no sound checkpoint of the end of stage {before}"


def _check_settings(
    run: Path, stage: str, before: str, theirs: Recipe, mine: Recipe, later: tuple[str, ...]
) -> None:  # fmt: skip
    """Method options, backbone settings but for the model's place, and semi: the first that differs is named."""
    there, here = _comparable(theirs, later), _comparable(mine, later)
    for key in here | there:
        if there.get(key) != here.get(key):
            raise StsbenchError(
                f"--from {run}: {key} was {there.get(key)!r} there and is {here.get(key)!r} here: stage {stage} goes on "
                f"with stage {before}'s; set it so, or train stage {before} anew"
            )


def _comparable(recipe: Recipe, later: tuple[str, ...]) -> dict[str, Any]:
    found = recipe.model_dump(mode="json", include={"options", "backbone", "semi"})
    found["backbone"].pop("model")
    for name in later:  # acts in no stage that the run has been through
        found["options"].pop(name, None)
    return flatten(found)


def _stage_settings(kind: type[Method], recipe: Recipe, stages: Sequence[str]) -> dict[str, Any]:
    """How a recipe trains these stages: dotted key -> value; of files the names."""
    options = kind.Options(**recipe.options)
    found: dict[str, Any] = {"precision": recipe.precision}
    for name in stages:
        use = kind.labelled(options, name)
        found[f"stages.{name}.training"] = recipe.stage_training(name).model_dump(mode="json")
        if use != "instead":
            found[f"stages.{name}.data"] = recipe.stage_data(name).model_dump(mode="json")
        if use != "none" and recipe.labelled is not None:
            found["labelled"] = recipe.labelled.model_dump(mode="json")
    flat = flatten(found)
    return {key: Path(value).name if key.endswith(".file") and value else value for key, value in flat.items()}

