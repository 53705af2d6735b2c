"""A plan's jobs as one call runs them: which, whether what they read is there, by whom, and what has become of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stsbench.data.fetch.sources import NAMED, training_text
from stsbench.data.sets.catalog import catalog
from stsbench.errors import StsbenchError
from stsbench.extensions.jobs.attempt import Place
from stsbench.extensions.jobs.board import add_to_board, entry_runs
from stsbench.extensions.jobs.content import check_jobs
from stsbench.extensions.jobs.expand import expand
from stsbench.extensions.jobs.job import Job
from stsbench.extensions.jobs.plan_file import Defaults, Plan, made_plan, read_plan
from stsbench.extensions.jobs.pool import LocalPool, Pool, threads_of
from stsbench.extensions.jobs.schedule import Log, run_jobs
from stsbench.extensions.jobs.state import Standing, clock, is_done, locks_work, standings
from stsbench.hub import downloads_are_off
from stsbench.registry import did_you_mean
from stsbench.training.rows.files import SetPlace, is_set


@dataclass(frozen=True)
class PlanJobs:
    """A plan and those of its jobs that are asked for, each behind what it needs. where: what messages call the plan."""

    plan: Plan
    jobs: list[Job]
    where: str

    @property
    def folder(self) -> Path:
        """Where the run folders are."""
        return Path(self.plan.output)

    def undone(self) -> list[Job]:
        """Those that are not done yet."""
        return [job for job in self.jobs if not is_done(job, self.folder)]

    def standings(self) -> dict[str, Standing]:
        """Job id -> what has become of it so far."""
        return dict(standings(self.jobs, self.folder))

    def check(self, undone: Sequence[Job]) -> None:
        """Raises StsbenchError, before anything is run, for what is not there and for what is not as it was."""
        refuse_missing(undone, self.where, self.plan.files, self.plan.defaults)
        check_jobs(self.jobs, self.folder, self.plan.defaults)

    def run(self, workers: int | None, ray: str | None, log: Log) -> dict[str, Standing]:
        """Run what is not done, by a local pool or by Ray; job id -> what has become of it."""
        devices = [job.words[job.words.index("--device") + 1] if "--device" in job.words else None for job in self.jobs]
        ended = run_jobs(self.jobs, make_pool(self.folder, workers, ray, devices, log), self.folder, log)
        return {**self.standings(), **{id: outcome for id, outcome in ended.items() if outcome.where != "done"}}

    def add_to_board(self, board: Path, log: Log) -> int:
        """Add the plan's entries to a leaderboard folder; how many could not be. StsbenchError where it has none."""
        entries = entry_runs(self.plan, self.jobs)
        if not entries:
            raise StsbenchError(f"{self.where}: no group has an entry to add to {board}")
        return add_to_board(entries, self.folder, board, log)


def plan_jobs(
    plan: Path | Mapping[str, Any], *, overrides: dict[str, Any], output: str | None, only: Sequence[str],
    allow: Sequence[str],
) -> PlanJobs:
    """The jobs of a plan file, or of what one holds, as the options of `stsbench run` have it. Raises StsbenchError."""
    if isinstance(plan, Path):
        read, where = read_plan(plan, overrides, output), str(plan)
    else:
        where = "the plan"
        read = made_plan(dict(plan), where, overrides, output)
    return PlanJobs(read, _chosen(expand(read, where, allow), only), where)


def _chosen(jobs: Sequence[Job], only: Sequence[str]) -> list[Job]:
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
    data_dir = None if defaults.data_dir is None else Path(defaults.data_dir)
    sets_at = SetPlace(data_dir, bool(defaults.sample), bool(defaults.offline))
    for job in jobs:
        for name in job.reads:
            if _lacks_file(name, sets_at):
                hint = f"; make it: {files[name]}" if name in files else ""
                raise StsbenchError(f"{where}: {job.name} reads {name}, and there is no such file{hint}")
    for name, first in {job.backbone: job.name for job in reversed(jobs) if job.backbone is not None}.items():
        path = name.startswith((".", "/", "~")) or name.count("/") > 1 or ("/" in name and Path(name).parent.is_dir())
        if path or downloads_are_off(sets_at.offline):
            from stsbench.encoders.transformer.find import backbone_folder

            try:
                backbone_folder(name, offline=True)
            except StsbenchError as error:
                raise StsbenchError(f"{where}: {first}: {error}") from error


def _lacks_file(name: str, where: SetPlace) -> bool:
    """Whether training text of this name is nowhere: no file, no set's name, in no data folder, and not to be fetched."""
    if Path(name).expanduser().is_file() or name in NAMED or is_set(name):
        return False
    here, _ = training_text(name, data_dir=where.data_dir, offline=True)
    return here is None and (name not in catalog().training or downloads_are_off(where.offline))


def make_pool(
    folder: Path, workers: int | None, ray: str | None, devices: Sequence[str | None], log: Log
) -> Pool:
    """The pool that the options ask for, on run folders in `folder`. devices: of the jobs, None: whatever there is."""
    if not locks_work(folder):
        log(f"warning: files cannot be locked in {folder}: run one `stsbench run` on it at a time")
    where = Place(folder, Path.cwd(), threads_of(workers or 1), clock(folder))
    if ray is None:
        return LocalPool(workers or 1, where)
    from stsbench.extensions.jobs.ray_pool import RayPool

    cuda = any(device is not None and device.startswith("cuda") for device in devices)
    return RayPool(ray, workers, where, True if cuda else None if None in devices else False)
