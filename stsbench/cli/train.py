"""`stsbench train`: a method's recipe, run."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from datetime import datetime
from pathlib import Path
from typing import Any

import click


@click.command("train")
@click.argument("method")
@click.option("--recipe", help="A recipe's name (`stsbench list recipes`) or a YAML file. Default: the method's own.")
@click.option("--backbone", help="Model to start from: Hub id, folder, minilm, or a training run. Sets backbone.model.")
@click.option("--data", help="Training text: .txt (a sentence a line), .csv, .tsv or .jsonl. Sets data.file.")
@click.option("--output", type=click.Path(path_type=Path), help="Run folder; default runs/<time>-<method>-<recipe>.")
@click.option("--seed", type=click.IntRange(0), help="Sets seed.")
@click.option("--seeds", type=click.IntRange(2), help="Train so many, with seeds counted up from the first, and report "
              "mean and standard deviation.")  # fmt: skip
@click.option("--max-steps", type=click.IntRange(1), help="Sets training.max_steps: a shorter run and schedule.")
@click.option("--set", "sets", multiple=True, metavar="KEY.SUB=VALUE", help="Any value of the recipe "
              "(`stsbench show recipe NAME` shows them); repeatable.")  # fmt: skip
@click.option("--resume", is_flag=True, help="Go on where the run in --output was stopped.")
@click.option("--device", help="cpu, cuda or mps. Default: the accelerator, else cpu.")
@click.option("--dtype", type=click.Choice(["float32", "bf16", "fp16"]), help="Sets precision.")
@click.option("--eval", "protocols", metavar="PROTOCOL,...", help="Test the best afterwards, as `stsbench eval` does.")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Development and test data in SentEval's layout.")
@click.option("--sample", is_flag=True, help="Development and test data from the small set inside the package.")
@click.option("--track", multiple=True, metavar="tensorboard|wandb", help="Log there, too; repeatable.")
@click.option("--offline", is_flag=True, help="Never touch the network.")
def train(
    method: str, recipe: str | None, sets: tuple[str, ...], output: Path | None, seeds: int | None, resume: bool,
    protocols: str | None, track: tuple[str, ...], **options: Any,
) -> int:  # fmt: skip
    """Train METHOD by a recipe; the run folder keeps log, checkpoints and, in best/, the encoder to use.

    Several processes: torchrun --no-python --nproc_per_node 4 stsbench train ...
    """
    from stsbench.cli.eval import _split
    from stsbench.training.recipes import load_recipe

    if resume and output is None:
        raise click.UsageError("--resume needs --output, the run folder to go on with")
    if options["sample"] and options["data_dir"]:
        raise click.UsageError("--sample and --data-dir exclude each other")
    if output is None and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise click.UsageError("several processes need --output, one folder for all of them")
    if options["offline"]:
        os.environ["HF_HUB_OFFLINE"] = "1"
    overrides = _overrides(options)
    first = output / "recipe.yaml" if output and not seeds else None
    base = str(first) if resume and recipe is None and first and first.is_file() else recipe
    chosen = load_recipe(method, base, list(sets), overrides)
    folder = output or Path("runs") / f"{datetime.now():%Y%m%d-%H%M%S}-{method}-{chosen.name}"
    _quiet()
    run_options = {
        "recipe": chosen, "output": folder, "resume": resume, "device": options["device"], "trackers": track,
        "data_dir": options["data_dir"], "sample": options["sample"], "offline": options["offline"],
        "evaluate": _split(protocols) or (), "command": ["stsbench", *sys.argv[1:]],
    }  # fmt: skip
    return _run(run_options, seeds)


def _run(run_options: dict[str, Any], seeds: int | None) -> int:
    from stsbench.cli.training_progress import TrainingProgress
    from stsbench.training.run import TrainOptions, train

    main = os.environ.get("RANK", "0") == "0"

    def say(line: str) -> None:
        if main:
            click.echo(line, err=True)

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)  # what a cluster's scheduler sends
    chosen, folder = TrainOptions(**run_options), run_options["output"]
    _announce(chosen, say)
    progress = TrainingProgress(say)
    try:
        if seeds:
            from stsbench.training.seed_runs import train_seeds

            summary = train_seeds(chosen, seeds, say, progress)
        else:
            summary = train(chosen, say, progress)
    except KeyboardInterrupt:
        progress.close()
        say(f"stopped; the same command with --resume --output {folder} goes on from the last checkpoint")
        return 130
    finally:
        progress.close()
    if main:
        from stsbench.cli.training_report import print_summary

        print_summary(folder, summary)
        say(f"run: {folder}")
    return 3 if summary.get("failures") else 0


def _announce(chosen: Any, say: Any) -> None:
    recipe = chosen.recipe
    start = recipe.backbone
    dropout = "" if start.dropout is None else f", dropout {start.dropout}"
    say(f"{recipe.method}, recipe {recipe.name}: backbone {start.model}, pooler {start.pooler}, max length "
        f"{start.max_length}{dropout}, {recipe.precision}, seed {recipe.seed}")  # fmt: skip


def _overrides(options: dict[str, Any]) -> dict[str, Any]:
    """The options that are only another spelling of --set."""
    named = {
        "backbone.model": options["backbone"], "data.file": options["data"], "seed": options["seed"],
        "training.max_steps": options["max_steps"], "precision": options["dtype"],
    }  # fmt: skip
    return {key: value for key, value in named.items() if value is not None}


def _quiet() -> None:
    """Warnings as one line each, like everything else here."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        click.echo(f"warning: {message}", err=True)

    warnings.showwarning = show


