"""The whole method that a finished training gave: what `best/` exports, and all that is dropped for testing, too."""

from __future__ import annotations

from pathlib import Path

from stsbench.encoders.transformer.find import trained_model
from stsbench.encoders.transformer.parts import choose_device
from stsbench.errors import DataError, StsbenchError
from stsbench.registry import names
from stsbench.torch_random import forked
from stsbench.training.api.method import Method
from stsbench.training.engine.checkpoint import Checkpoints, Position, newest_whole
from stsbench.training.engine.objective import make_objective
from stsbench.training.recipes.method_plan import plan_of
from stsbench.training.recipes.methods import GROUP, is_file_method
from stsbench.training.recipes.recipe import Recipe
from stsbench.training.recipes.recipes import load_recipe, stored_recipe
from stsbench.training.runs.prepare import fixed_inputs, make_backbone
from stsbench.training.runs.report import read_summary


def load_trained(run: Path, device: str | None = None, method: str | None = None) -> Method:
    """The method of the training run in `run`, in eval mode, with the weights and buffers that the run kept.

    Those are the best of its last stage (with selection.over all, of all), or the last where nothing was selected. No
    training text is read: what `Method.prepare` learnt from it has to be in buffers. device: by default the GPU where there
    is one. method: FILE.py:CLASS, for a run of such a method: no file is imported because a run folder, which may be
    somebody else's, names it. Raises StsbenchError, one line: no finished training, several seeds, a checkpoint that is gone
    or damaged, another backbone, tokenizer or further input than the run began with.
    """
    if trained_model(run) == run:
        raise StsbenchError(f"{run} is not a run folder of `stsbench train`: it has no recipe.yaml")
    recipe = _recipe(run, method)
    position, weights = _kept(run)
    plan = plan_of(recipe)
    with forked():  # what starts at random is read below
        trained = plan.kind(make_backbone(recipe), plan.options)
    make_objective(plan, trained)  # recipe.semi gives the method a classifier
    _check_inputs(run, recipe, position, trained)
    try:
        Checkpoints.load_weights(weights, trained)
    except (RuntimeError, OSError) as error:
        first = " ".join(str(error).split())[:200]
        raise StsbenchError(f"{weights} does not fit the method {recipe.method} as it is installed: {first}") from error
    trained.to(choose_device(device)).eval()
    return trained


def _recipe(run: Path, method: str | None) -> Recipe:
    """The run's recipe, complete. Raises StsbenchError where it names a Python file that the caller did not."""
    stored = stored_recipe(run)
    if method is None and stored.method not in names(GROUP):
        file = is_file_method(stored.method)
        raise StsbenchError(
            f"{run} was trained by {stored.method}, " + ("a Python file, which is run only where it is named: method="
            "'FILE.py:CLASS', or --method FILE.py:CLASS" if file else "which is not installed: install it")
        )
    return load_recipe(method or stored.method, str(run / "recipe.yaml"))


def _kept(run: Path) -> tuple[Position, Path]:
    """The end of the run, and the folder with the weights that it kept. Raises StsbenchError, see `load_trained`."""
    summary = read_summary(run)
    if summary is None:
        raise StsbenchError(f"{run} has not finished training: go on with --resume")
    try:
        stages, best = summary["stages"], summary["best"]
        stage, steps = list(stages.items())[-1]
        stage, step = (best["stage"], best["step"]) if best else (stage, steps)
    except (KeyError, IndexError) as error:
        raise DataError(f"{run / 'train.json'} holds no summary of a run: {error!r}") from error
    folder = run / "checkpoints"
    newest = newest_whole(folder)
    if newest is None:
        raise StsbenchError(f"{folder} holds no sound checkpoint: only the encoder in {run / 'best'} is left")
    position, path = newest
    kept = position.best.step if position.best else position.step
    where = (position.best and position.best.stage) or position.stage
    if (where, kept, bool(position.best)) != (stage, step, bool(best)):
        raise StsbenchError(f"{folder} lacks a sound checkpoint of the weights that were kept, {stage} step {step}")
    return position, folder / position.best.folder if position.best else path


def _check_inputs(run: Path, recipe: Recipe, position: Position, method: Method) -> None:
    """Raises StsbenchError where the method would be put together from other files than it was trained with."""
    for name, sha in {**fixed_inputs(recipe, method.backbone), **method.inputs()}.items():
        if position.inputs.get(name, sha) != sha:
            raise StsbenchError(f"{run}: the {name} is not what it was trained with: put it back")
