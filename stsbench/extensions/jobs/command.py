"""`stsbench run`, the trainings and evaluations of a plan file, and `stsbench sweep`, a search of a method's settings."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stsbench.cli.messages import echo, progress_bar, tell, tell_stopped
from stsbench.cli.options import Command, add_options
from stsbench.options import SetOptions
from stsbench.processes import exit_code
from stsbench.training.runs.options import RecipeOptions
from stsbench.wording import counted

if TYPE_CHECKING:
    from stsbench.extensions.jobs.plan import PlanJobs
    from stsbench.extensions.jobs.state import Standing


@click.command("run", short_help="Train | Run the trainings and evaluations of a plan file that are not done yet.")
@click.argument("plan_file", metavar="PLAN.yaml", type=click.Path(path_type=Path))
@click.option("--workers", type=click.IntRange(1), help="Jobs at once, each a process. Default: 1; with --ray as many as "
              "Ray has places for.")
@click.option("--ray", metavar="ADDRESS|local", help="Run the jobs as tasks of a Ray cluster, or of a Ray on this machine.")
@click.option("--gpus", type=float, metavar="N", help="Of a job on Ray: 1, or a part of one, such as .25. Default: 1 where "
              "its device is cuda.")
@click.option("--only", multiple=True, metavar="NAME", help="This group or job, and what it needs; repeatable.")
@click.option("--status", is_flag=True, help="Print the table of what is where, and run nothing.")
@click.option("--dry-run", is_flag=True, help="Print the commands of the jobs that are not done, and run nothing.")
@click.option("--output", type=click.Path(path_type=Path), help="Where run folders go. Default: the plan's output.")
@click.option("--data-dir", help="Sets defaults.data_dir.")
@click.option("--device", help="Of every job, whatever the plan says.")
@click.option("--dtype", type=click.Choice(["float32", "bf16", "fp16"]), help="Of every training, whatever the plan says.")
@click.option("--offline", is_flag=True, help="Never touch the network.")
@click.option("--allow", multiple=True, metavar="FILE.py:CLASS|python:MODULE:CALLABLE",
              help="Code that the plan names and that may be run; repeatable. Other code in a plan is refused.")
@click.option("--add-to-board", "board", metavar="DIR", type=click.Path(path_type=Path),
              help="Afterwards add what the plan's entries describe to this leaderboard folder.")
def run(
    plan_file: Path, workers: int | None, ray: str | None, gpus: float | None, only: tuple[str, ...], status: bool,
    dry_run: bool, output: Path | None, board: Path | None, allow: tuple[str, ...], **options: Any,
) -> int:
    """Run the trainings and evaluations of PLAN.yaml that are not done yet, each once.

    What is done is read from the run folders: the same command again does only what is missing. Several may run at once,
    also on machines that share the folder. Paths in a plan are relative to the folder that the command is called in.
    """
    from stsbench.extensions.jobs.plan import check_gpus, plan_jobs

    check_gpus(gpus, ray)
    if status and dry_run:
        raise click.UsageError("--status and --dry-run exclude each other")
    overrides = {**options, "offline": options["offline"] or None}
    asked = plan_jobs(plan_file, overrides=overrides, output=None if output is None else str(output), only=only, allow=allow)
    if status:
        _print(asked, asked.standings())
        return 0
    undone = asked.undone()
    if dry_run:
        for job in undone:
            echo(job.line(asked.folder))
        return 0
    asked.check(undone)
    if not undone:
        tell(f"{counted(len(asked.jobs), 'job')}, all done: nothing to run")
    code = _run_and_print(asked, workers, ray, gpus) if undone else 0
    if board is not None:
        code = 3 if asked.add_to_board(board, tell) else code
    return code


def _run_and_print(jobs: PlanJobs, workers: int | None, ray: str | None, gpus: float | None) -> int:
    """Run the jobs, print their table to stdout, and return the exit code: 0, or 3 where one is not done."""
    try:
        ended = jobs.run(workers, ray, gpus, tell)
    except KeyboardInterrupt as error:
        tell_stopped("stopped; the same command goes on")
        return exit_code(error)
    _print(jobs, ended)
    return 3 if any(standing.where != "done" for standing in ended.values()) else 0


def _print(jobs: PlanJobs, standings: Mapping[str, Standing]) -> None:
    """Print a table with one row per job to stdout, headed by the number of jobs in each state."""
    from stsbench.cli.messages import print_result
    from stsbench.extensions.jobs.plan import Jobs

    print_result(Jobs(jobs.folder, jobs.jobs, dict(standings)))


@click.command(
    "sweep", cls=Command, short_help="Train | Search a method's settings by development score, and write the best recipe.",
)
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
@click.option("--gpus", type=float, metavar="N", help="Of a training on Ray: 1, or a part of one, such as .25.")
@click.option("--output", type=click.Path(path_type=Path), help="Default: runs/sweep-METHOD-DIGEST, the same for the same "
              "search.")
@add_options(RecipeOptions, SetOptions)
@click.option("--device")
@click.option("--offline", is_flag=True)
def sweep(
    method: str, space: str | None, grid: tuple[str, ...], sampler: str | None, trials: int | None, seeds: int, seed: int,
    prune: bool, storage: str | None, workers: int | None, ray: str | None, gpus: float | None, output: Path | None,
    **options: Any,
) -> int:
    """Train METHOD with many settings; the best by development score becomes a recipe.

    A trial is one choice of values, trained with each seed; its score is the mean of the best development scores. Test
    data are not read. The same command again goes on; several may run at once. OUTPUT/best.yaml is the recipe, and records
    of what it trains say among how many trials it was chosen.
    """
    from stsbench.cli.messages import print_result
    from stsbench.extensions.jobs.plan import make_pool, refuse_missing
    from stsbench.extensions.jobs.sweep import BEST
    from stsbench.extensions.jobs.sweep import sweep as sweeping
    from stsbench.extensions.jobs.trials import Trials, plan_search

    search = plan_search(method, space, grid, sampler, trials, seeds, seed, prune, options)
    folder = output or Path("runs") / f"sweep-{search.name}"
    search = replace(search, output=folder)
    refuse_missing(search.samples(), "sweep", {}, search.defaults)
    pool = make_pool(folder, workers, ray, gpus, [options["device"]], tell)
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
