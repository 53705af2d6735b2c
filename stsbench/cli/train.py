"""`stsbench train`: a method's recipe, run."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import click

from stsbench.cli.output.messages import is_quiet, log, tell_stopped, warnings_as_lines
from stsbench.interrupt import exit_code


@click.command("train")
@click.argument("method", metavar="METHOD|FILE.py:CLASS")
@click.option("--recipe", help="A recipe's name (`stsbench list recipes`) or a YAML file. Default: the method's own.")
@click.option("--backbone", help="Model to start from: Hub id, folder, minilm, or a training run. Sets backbone.model.")
@click.option("--data", help="Training text: .txt (a sentence a line), .csv, .tsv or .jsonl; or stsb/train. Sets data.file.")
@click.option("--labelled", metavar="FILE", help="Labelled rows (NLI), where a stage uses them. Sets labelled.file.")
@click.option("--stage", metavar="N|NAME", help="Train this stage alone, of a method with several (`stsbench show method`).")
@click.option("--from", "start_from", metavar="RUN", type=click.Path(path_type=Path), help="The run whose weights "
              "--stage starts with: of the stage before. Without --recipe by its recipe.")
@click.option("--output", type=click.Path(path_type=Path), help="Run folder; default runs/<time>-<method>-<recipe>.")
@click.option("--seed", type=click.IntRange(0), help="Sets seed.")
@click.option("--seeds", type=click.IntRange(2, 1000), help="Train so many, with seeds counted up from the first, and "
              "report mean and standard deviation.")
@click.option("--subsets", type=click.IntRange(2, 1000), help="Few labels: draw the sampled rows (labelled.share, "
              "data.share) so many times anew, with --seeds M each M runs; report mean and standard deviation.")
@click.option("--max-steps", type=click.IntRange(1), help="Sets training.max_steps, of every stage that has more: "
              "a shorter run and schedule.")
@click.option("--set", "sets", multiple=True, metavar="KEY.SUB=VALUE", help="Any value of the recipe "
              "(`stsbench show recipe NAME` shows them); repeatable.")
@click.option("--resume", is_flag=True, help="Go on where the run in --output was stopped.")
@click.option("--device", help="cpu, cuda or mps. Default: the accelerator, else cpu.")
@click.option("--dtype", type=click.Choice(["float32", "bf16", "fp16"]), help="Sets precision.")
@click.option("--eval", "protocols", metavar="PROTOCOL,...", help="Test the best afterwards, as `stsbench eval` does.")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Development and test data in SentEval's layout.")
@click.option("--sample", is_flag=True, help="A first training without any file: minilm, a few steps on texts inside the "
              "package. With texts of your own: development and test data from the package alone.")
@click.option("--track", multiple=True, metavar="tensorboard|wandb", help="Log there, too; repeatable.")
@click.option("--offline", is_flag=True, help="Never touch the network.")
def train(
    method: str, recipe: str | None, sets: tuple[str, ...], output: Path | None, seeds: int | None,
    subsets: int | None, resume: bool, stage: str | None, start_from: Path | None, protocols: str | None,
    track: tuple[str, ...], **options: Any,
) -> int:
    """Train METHOD by a recipe; the run folder keeps log, checkpoints and, in best/, the encoder to use.

    METHOD is one of `stsbench list methods`, or a class of your own: stsbench train ./my.py:MyMethod --recipe my.yaml.

    Several processes: torchrun --no-python --nproc_per_node 4 stsbench train ...
    """
    from stsbench.evaluation.plan import words_of
    from stsbench.training.recipes.methods import canonical
    from stsbench.training.recipes.precision import load_for_device
    from stsbench.training.recipes.recipes import load_recipe, namesakes_of
    from stsbench.training.recipes.sample import WARNING, is_of_sample, of_the_users_own, sample_settings
    from stsbench.training.rows.at_hand import backbone_at_hand

    method = canonical(method)
    if resume and output is None:
        raise click.UsageError("--resume needs --output, the run folder to go on with")
    if start_from and stage is None and not resume:
        raise click.UsageError(f"--from {start_from} goes with --stage N, the stage that starts with its weights")
    if options["sample"] and options["data_dir"]:
        raise click.UsageError("--sample and --data-dir exclude each other")
    if output is None and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise click.UsageError("several processes need --output, one folder for all of them")
    if options["offline"]:
        os.environ["HF_HUB_OFFLINE"] = "1"
    overrides = _overrides(options)
    _refuse_twice(overrides, sets)
    stored = _stored_recipe(output, None, None) if resume else None  # none where a run was killed before it had begun
    resumed = stored if recipe is None else None
    if recipe is None:
        recipe = resumed or _stored_recipe(None, start_from, options["seed"])
    chosen = load_recipe(method, recipe, list(sets), overrides)
    keys = {*overrides, *(word.partition("=")[0] for word in sets)}
    on_sample = options["sample"] and not (stored or start_from or of_the_users_own(recipe, keys))
    if on_sample:
        overrides |= sample_settings(chosen, keys, _log)
        chosen = load_recipe(method, recipe, list(sets), overrides)
    if recipe is None and "backbone.model" not in keys and not on_sample and (
        model := backbone_at_hand(chosen, options["offline"], _log)
    ):
        overrides["backbone.model"] = model
        chosen = load_recipe(method, recipe, list(sets), overrides)
    _refuse_overridden(chosen, sets)
    if options["max_steps"] and (longer := _longer(chosen, options["max_steps"], sets)):
        overrides |= dict.fromkeys(longer, options["max_steps"])
    if not (resumed or any(word.startswith("precision=") for word in sets)):  # that is to be kept, or an error
        chosen = load_for_device(partial(load_recipe, method, recipe, list(sets)), overrides, options["device"], _log)
    folder = output or Path("runs") / f"{datetime.now():%Y%m%d-%H%M%S}-{_folder_name(method)}-{chosen.name}"
    for line in namesakes_of(method, recipe) if recipe else ():
        _log(line)
    warnings_as_lines()
    run_options = {
        "recipe": chosen, "output": folder, "resume": resume, "device": options["device"], "trackers": track,
        "data_dir": options["data_dir"], "sample": options["sample"], "offline": options["offline"],
        "evaluate": words_of(protocols) or (), "command": ["stsbench", *sys.argv[1:]], "stage": stage,
        "start_from": start_from,
    }
    code = _run(run_options, seeds, subsets)
    if code == 0 and (on_sample or is_of_sample(chosen)):
        _log(WARNING)
    return code


def _main() -> bool:
    """Whether this is the process that prints, of several."""
    return os.environ.get("RANK", "0") == "0"


def _log(line: str) -> None:
    if _main():
        log(line)


def _again(folder: Path) -> str:
    """What becomes of a run that was stopped."""
    if not any(folder.glob("**/recipe.yaml")):
        return "nothing was trained yet: give the same command again"
    again = f"the same command with --resume --output {folder}"
    if any(folder.glob("**/checkpoints/[0-9]*")) or any(folder.glob("**/train.json")):
        return f"{again} goes on from the last checkpoint"
    return f"{again} begins again: there is no checkpoint yet"


def _folder_name(method: str) -> str:
    """The method's name in that of a run folder."""
    return method.rpartition(":")[2].lower()


def _run(run_options: dict[str, Any], seeds: int | None, subsets: int | None) -> int:
    from stsbench.cli.output.training_progress import TrainingProgress
    from stsbench.training.runs.options import TrainOptions
    from stsbench.training.runs.run import train

    chosen, folder = TrainOptions(**run_options), run_options["output"]
    _announce(chosen, _log)
    progress = TrainingProgress(_log, shown=not is_quiet())
    try:
        if subsets:
            from stsbench.training.runs.subset_runs import train_subsets

            summary = train_subsets(chosen, subsets, seeds or 1, _log, progress)
        elif seeds:
            from stsbench.training.runs.seed_runs import train_seeds

            summary = train_seeds(chosen, seeds, _log, progress)
        else:
            summary = train(chosen, _log, progress)
    except KeyboardInterrupt as error:
        progress.close()
        if _main():
            tell_stopped(f"stopped; {_again(folder)}")
        return exit_code(error)
    finally:
        progress.close()
    if _main():
        from stsbench.cli.output.training_report import print_summary

        print_summary(folder, summary)
        _log(f"run: {folder}")
    return 3 if summary.get("failures") else 0


def _stored_recipe(resumed: Path | None, start_from: Path | None, seed: int | None) -> str | None:
    """The recipe file of a run that is resumed (of several seeds, the first) or that a stage goes on from; None without."""
    from stsbench.training.recipes.recipes import check_whole

    if resumed is not None:
        several = (*resumed.glob("seed-*/recipe.yaml"), *resumed.glob("subset-*/seed-*/recipe.yaml"))
        seeds = sorted(several, key=lambda path: [(len(part), part) for part in path.parts])
        paths = [path for path in (resumed / "recipe.yaml", *seeds) if path.is_file()]
        if paths:
            return str(check_whole(paths[0]))
    if start_from is None:
        return None
    from stsbench.training.runs.warm_start import earlier_recipe

    return str(check_whole(earlier_recipe(start_from, seed)))


def _announce(chosen: Any, log: Any) -> None:
    from stsbench.registry import namesakes
    from stsbench.training.recipes.methods import short_name

    recipe = chosen.recipe
    start = recipe.backbone
    dropout = "" if start.dropout is None else f", dropout {start.dropout}"
    log(f"{short_name(recipe.method)}, recipe {recipe.name}: backbone {start.model}, pooler {start.pooler}, max length "
        f"{start.max_length}{dropout}, {recipe.precision}, seed {recipe.seed}")
    for line in namesakes(start.model, "the embedded all-MiniLM-L6-v2") if start.model == "minilm" else ():
        log(line)


def _overrides(options: dict[str, Any]) -> dict[str, Any]:
    """The options that are only another spelling of --set."""
    named = {
        "backbone.model": options["backbone"], "data.file": options["data"], "labelled.file": options["labelled"],
        "seed": options["seed"],
        "training.max_steps": options["max_steps"], "precision": options["dtype"],
    }
    return {key: value for key, value in named.items() if value is not None}


def _refuse_twice(overrides: Mapping[str, Any], sets: Sequence[str]) -> None:
    """UsageError where two options set one key: one of them would silently not count."""
    said = list(overrides)
    for word in sets:
        if (key := word.partition("=")[0]) in said:
            raise click.UsageError(f"--set {word}: {key} is set twice: by another --set, or by the option of its own")
        said.append(key)


def _refuse_overridden(chosen: Any, sets: tuple[str, ...]) -> None:
    """StsbenchError for a --set of training.X or data.X that every stage overrides."""
    from stsbench.errors import StsbenchError
    from stsbench.training.recipes.method_plan import plan_of

    if not sets:
        return
    names = plan_of(chosen).stages
    for word in sets:
        part, _, key = word.partition("=")[0].partition(".")
        setting = [name for name in names if key in chosen.stages.get(name, {}).get(part, {})]
        if part in ("training", "data") and key and len(setting) == len(names):
            better = " or ".join(f"stages.{name}.{part}.{key}" for name in setting)
            raise StsbenchError(f"--set {part}.{key} has no effect: each stage sets it itself; set {better}")


def _longer(chosen: Any, steps: int, sets: tuple[str, ...]) -> list[str]:
    """The keys by which stages log that they take more steps, unless --set says so."""
    longest = {f"stages.{name}.training.max_steps": part.get("training", {}).get("max_steps") or 0
               for name, part in chosen.stages.items()}
    return [key for key, most in longest.items() if most > steps and not any(each.startswith(f"{key}=") for each in sets)]


