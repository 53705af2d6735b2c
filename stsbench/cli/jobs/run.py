"""`stsbench run`: the trainings and evaluations of a plan file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stsbench.cli.output.job_table import print_jobs
from stsbench.cli.output.messages import echo, tell, tell_stopped
from stsbench.errors import StsbenchError
from stsbench.interrupt import exit_code
from stsbench.registry import did_you_mean

if TYPE_CHECKING:
    from stsbench.jobs.job import Job
    from stsbench.jobs.plan_file import Defaults
    from stsbench.jobs.pool import Pool


@click.command("run")
@click.argument("plan_file", metavar="PLAN.yaml", type=click.Path(path_type=Path))
@click.option("--workers", type=click.IntRange(1), help="Jobs at once, each a process. Default: 1; with --ray as many as "
              "Ray has places for.")
@click.option("--ray", metavar="ADDRESS|local", help="Run the jobs as tasks of a Ray cluster, or of a Ray on this machine.")
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
    plan_file: Path, workers: int | None, ray: str | None, only: tuple[str, ...], status: bool, dry_run: bool,
    output: Path | None, board: Path | None, allow: tuple[str, ...], **options: Any,
) -> int:
    """Run the trainings and evaluations of PLAN.yaml that are not done yet, each once.

    What is done is read from the run folders: the same command again does only what is missing. Several may run at once,
    also on machines that share the folder. Paths in a plan are relative to the folder that the command is called in.
    """
    from stsbench.jobs.content import check_jobs
    from stsbench.jobs.expand import expand
    from stsbench.jobs.plan_file import read_plan
    from stsbench.jobs.state import is_done, standings

    if status and dry_run:
        raise click.UsageError("--status and --dry-run exclude each other")
    overrides = {**options, "offline": options["offline"] or None}
    plan = read_plan(plan_file, overrides, None if output is None else str(output))
    folder = Path(plan.output)
    every = expand(plan, str(plan_file), allow)
    jobs = chosen(every, only)
    if status:
        print_jobs(jobs, standings(jobs, folder), folder)
        return 0
    undone = [job for job in jobs if not is_done(job, folder)]
    if dry_run:
        for job in undone:
            echo(job.line(folder))
        return 0
    refuse_missing(undone, str(plan_file), plan.files, plan.defaults)
    check_jobs(jobs, folder, plan.defaults)
    code = run_and_print(jobs, folder, workers, ray) if undone else _nothing(jobs)
    if board is not None:
        from stsbench.jobs.board import add_to_board, entry_runs

        entries = entry_runs(plan, jobs)
        if not entries:
            raise StsbenchError(f"{plan_file}: no group has an entry to add to {board}")
        code = 3 if add_to_board(entries, folder, board, tell) else code
    return code


def chosen(jobs: Sequence[Job], only: Sequence[str]) -> list[Job]:
    """The jobs of these names or groups, and all that they need, in their order; without names all of them."""
    if not only:
        return list(jobs)
    known = [*dict.fromkeys(job.group for job in jobs), *(job.name for job in jobs)]
    wanted: set[str] = set()
    for name in only:
        if name not in known:
            raise StsbenchError(f"--only {name}: the plan has no such group or job{did_you_mean(name, known)}")
        wanted |= {job.id for job in jobs if name in (job.name, job.group)}
    for job in reversed(jobs):  # each stands behind what it needs
        wanted |= set(job.needs) if job.id in wanted else set()
    return [job for job in jobs if job.id in wanted]


def refuse_missing(jobs: Sequence[Job], where: str, files: Mapping[str, str], defaults: Defaults) -> None:
    """Raises StsbenchError, before anything is run, for a file or a backbone that a job reads and that is not there.

    files: one that somebody has to make first -> by which command. A backbone that may be on the Hub is not asked for,
    unless downloads are off.
    """
    from stsbench.data.fetch.sources import downloads_are_off
    from stsbench.training.rows.at_hand import lacks_file
    from stsbench.training.rows.catalog_rows import SetPlace

    data_dir = None if defaults.data_dir is None else Path(defaults.data_dir)
    sets_at = SetPlace(data_dir, bool(defaults.sample), bool(defaults.offline))
    for job in jobs:
        for name in job.reads:
            if lacks_file(name, sets_at):
                hint = f"; make it: {files[name]}" if name in files else ""
                raise StsbenchError(f"{where}: {job.name} reads {name}, and there is no such file{hint}")
    for name, first in {job.backbone: job.name for job in reversed(jobs) if job.backbone is not None}.items():
        path = name.startswith((".", "/", "~")) or name.count("/") > 1 or ("/" in name and Path(name).parent.is_dir())
        if path or downloads_are_off(sets_at.offline):
            from stsbench.encoders.transformer.trainable import backbone_folder

            try:
                backbone_folder(name, offline=True)
            except StsbenchError as error:
                raise StsbenchError(f"{where}: {first}: {error}") from error


def run_and_print(jobs: Sequence[Job], folder: Path, workers: int | None, ray: str | None) -> int:
    """Run the jobs by a local pool or by Ray; the table on stdout; 0, or 3 where one failed."""
    from stsbench.jobs.schedule import run_jobs
    from stsbench.jobs.state import standings

    devices = [job.words[job.words.index("--device") + 1] if "--device" in job.words else None for job in jobs]
    pool = make_pool(folder, workers, ray, devices)
    try:
        ended = run_jobs(jobs, pool, folder, tell)
    except KeyboardInterrupt as error:
        tell_stopped("stopped; the same command goes on")
        return exit_code(error)
    undone = {id: outcome for id, outcome in ended.items() if outcome.where != "done"}
    print_jobs(jobs, {**standings(jobs, folder), **undone}, folder)
    return 3 if undone else 0


def make_pool(folder: Path, workers: int | None, ray: str | None, devices: Sequence[str | None]) -> Pool:
    """The pool that the options ask for, on run folders in `folder`. devices: of the jobs, None: whatever there is."""
    from stsbench.jobs.attempt import Place
    from stsbench.jobs.pool import LocalPool, threads_of
    from stsbench.jobs.state import clock, locks_work

    if not locks_work(folder):
        tell(f"warning: files cannot be locked in {folder}: run one `stsbench run` on it at a time")
    where = Place(folder, Path.cwd(), threads_of(workers or 1), clock(folder))
    if ray is None:
        return LocalPool(workers or 1, where)
    from stsbench.jobs.ray_pool import RayPool

    cuda = any(device is not None and device.startswith("cuda") for device in devices)
    return RayPool(ray, workers, where, True if cuda else None if None in devices else False)


def _nothing(jobs: Sequence[Job]) -> int:
    from stsbench.wording import counted

    tell(f"{counted(len(jobs), 'job')}, all done: nothing to run")
    return 0
