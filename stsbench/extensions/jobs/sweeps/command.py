"""`stsbench sweep`: a method's settings, searched by development score."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from stsbench.cli.options import Command, options_of
from stsbench.cli.output.messages import tell, tell_stopped
from stsbench.cli.output.progress import progress_bar
from stsbench.options import SetOptions
from stsbench.processes import exit_code
from stsbench.training.runs.options import RecipeOptions
from stsbench.wording import counted


@click.command("sweep", cls=Command, short_help="Search a method's settings by development score; the best as a recipe.")
@click.argument("method", metavar="METHOD|FILE.py:CLASS")
@click.option("--space", metavar="FILE|NAME", help="What is searched: a YAML file, or a space that the method brings.")
@click.option("--grid", multiple=True, metavar="KEY=VALUE,VALUE", help="What is searched: values of a setting; repeatable.")
@click.option("--sampler", type=click.Choice(["grid", "random", "tpe"]),
              help="Default: grid, or tpe where the space has ranges.")
@click.option("--trials", type=click.IntRange(1), help="How many, for random and tpe.")
@click.option("--seeds", type=click.IntRange(1, 1000), default=1, show_default=True,
              help="Trainings of a trial, seeds counted up.")
@click.option("--seed", type=click.IntRange(0), default=42, show_default=True, help="The first of them.")
@click.option("--prune", is_flag=True, help="Give up trials whose first seed is below the median at that step.")
@click.option("--storage", metavar="URL", help="Where optuna keeps the trials. Default: a file in --output, which all "
              "workers share.")
@click.option("--workers", type=click.IntRange(1), help="Trainings at once, each a process. Default: 1.")
@click.option("--ray", metavar="ADDRESS|local", help="Train on a Ray cluster, or on a Ray on this machine.")
@click.option("--output", type=click.Path(path_type=Path), help="Default: runs/sweep-METHOD-DIGEST, the same for the same "
              "search.")
@options_of(RecipeOptions, SetOptions)
@click.option("--device")
@click.option("--offline", is_flag=True)
def sweep(
    method: str, space: str | None, grid: tuple[str, ...], sampler: str | None, trials: int | None, seeds: int, seed: int,
    prune: bool, storage: str | None, workers: int | None, ray: str | None, output: Path | None, **options: Any,
) -> int:
    """Train METHOD with many settings; the best by development score becomes a recipe.

    A trial is one choice of values, trained with each seed; its score is the mean of the best development scores. Test
    data are not read. The same command again goes on; several may run at once. OUTPUT/best.yaml is the recipe, and records
    of what it trains say among how many trials it was chosen.
    """
    from stsbench.cli.output.report import print_result
    from stsbench.extensions.jobs.plan_run import make_pool, refuse_missing
    from stsbench.extensions.jobs.sweeps.search import search_of
    from stsbench.extensions.jobs.sweeps.sweep import BEST
    from stsbench.extensions.jobs.sweeps.sweep import sweep as sweeping
    from stsbench.extensions.jobs.sweeps.trials import Trials

    search = search_of(method, space, grid, sampler, trials, seeds, seed, prune, options)
    folder = output or Path("runs") / f"sweep-{search.name}"
    search = replace(search, output=folder)
    refuse_missing(search.samples(), "sweep", {}, search.defaults)
    pool = make_pool(folder, workers, ray, [options["device"]], tell)
    many = counted(search.space.points if search.trials is None else search.trials, "trial")
    tell(f"{search.sampler} search in {folder}: {many}, {counted(seeds, 'seed')} each")
    try:
        with progress_bar() as bar:
            results = sweeping(search, pool, storage, ["stsbench", *sys.argv[1:]], tell, bar.going_on if bar else None)
    except KeyboardInterrupt as error:
        tell_stopped("stopped; the same command goes on")
        return exit_code(error)
    print_result(Trials(folder, method, results))
    tell(f"the best as a recipe: {folder / BEST}")
    return 3 if any(result.trial.state == "fail" for result in results) else 0
