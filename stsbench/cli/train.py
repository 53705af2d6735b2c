"""The command `stsbench train`: train a method by a recipe."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stsbench.cli.messages import is_quiet, log, tell_stopped
from stsbench.cli.options import Command, add_options
from stsbench.processes import exit_code
from stsbench.training.runs.options import KEYS, RecipeOptions, RunOptions

if TYPE_CHECKING:
    from stsbench.training.recipes.recipe import Recipe
    from stsbench.training.runs.options import TrainOptions


@click.command("train", cls=Command, also=("finetune",))
@click.argument("method", metavar="METHOD|FILE.py:CLASS")
@add_options(RecipeOptions, RunOptions)
@click.option("--output", type=click.Path(path_type=Path), help="Run folder; default runs/<time>-<method>-<recipe>.")
@click.option("--seed", type=click.IntRange(0), help="Seed of weights, order and dropout. Sets seed.")
@click.option("--seeds", type=click.IntRange(2, 1000), metavar="N", help="Train N times, with the seed and the N - 1 "
              "numbers after it, and report mean and standard deviation.")
@click.option("--subsets", type=click.IntRange(2, 1000), help="Few labels: draw the sampled rows (labelled.share, "
              "data.share) so many times anew, with --seeds M each M runs; report mean and standard deviation.")
def train(seeds: int | None, subsets: int | None, evaluate: str | None, **options: Any) -> int:
    """Train METHOD by a recipe; the run folder keeps log, checkpoints and, in best/, the encoder to use.

    METHOD is one of `stsbench list methods`, or a class of your own: stsbench train ./my.py:MyMethod --recipe my.yaml.

    Several processes: torchrun --no-python --nproc_per_node 4 stsbench train ...
    """
    if options["offline"]:
        os.environ["HF_HUB_OFFLINE"] = "1"
    from stsbench.evaluation.options import split_names
    from stsbench.training.runs.options import TrainRequest, resolve

    settings = {key: options.pop(name) for name, key in KEYS.items()}  # these options are other spellings of --set
    request = TrainRequest(
        settings={key: value for key, value in settings.items() if value is not None}, evaluate=split_names(evaluate) or (),
        command=["stsbench", *sys.argv[1:]], **options,
    )
    chosen, on_sample = resolve(request, _log)
    code = _run(chosen, seeds, subsets)
    if code == 0 and on_sample:
        from stsbench.training.recipes.recipes import WARNING

        _log(WARNING)
    return code


def _main() -> bool:
    """Return whether this process is the one of several that prints."""
    return os.environ.get("RANK", "0") == "0"


def _log(line: str) -> None:
    if _main():
        log(line)


def _again(folder: Path) -> str:
    """Return a line on how to continue a run that was stopped."""
    if not any(folder.glob("**/recipe.yaml")):
        return "nothing was trained yet: give the same command again"
    again = f"the same command with --resume --output {folder}"
    if any(folder.glob("**/checkpoints/[0-9]*")) or any(folder.glob("**/train.json")):
        return f"{again} goes on from the last checkpoint"
    return f"{again} begins again: there is no checkpoint yet"


def _run(chosen: TrainOptions, seeds: int | None, subsets: int | None) -> int:
    from stsbench.cli.messages import TrainingProgress
    from stsbench.training.runs.seed_runs import train_runs

    folder = chosen.output
    _announce(chosen.recipe)
    progress = TrainingProgress(_log, shown=not is_quiet())
    try:
        summary = train_runs(chosen, seeds, subsets, _log, progress)
    except KeyboardInterrupt as error:
        progress.close()
        if _main():
            tell_stopped(f"stopped; {_again(folder)}")
        return exit_code(error)
    finally:
        progress.close()
    if _main():
        from stsbench.cli.messages import print_summary

        print_summary(folder, summary)
        _log(f"run: {folder}")
    return 3 if summary.get("failures") else 0


def _announce(recipe: Recipe) -> None:
    from stsbench.registry import namesakes
    from stsbench.training.recipes.methods import short_name

    start = recipe.backbone
    parts = [f"backbone {start.model}", f"pooler {start.pooler}", f"max length {start.max_length}"]
    parts += [] if start.dropout is None else [f"dropout {start.dropout}"]
    parts += [] if start.attention == "own" else [f"attention {start.attention}"]
    parts += [] if start.lora is None else [str(start.lora)]
    _log(f"{short_name(recipe.method)}, recipe {recipe.name}: {', '.join(parts)}, {recipe.precision}, seed {recipe.seed}")
    for line in namesakes(start.model, "the embedded all-MiniLM-L6-v2") if start.model == "minilm" else ():
        _log(line)
