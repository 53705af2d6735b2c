"""A plan's jobs as one call runs them: which, whether what they read is there, by whom, and what has become of them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stsbench.data.fetch.sources import NAMED, training_text
from stsbench.data.sets.catalog import catalog
from stsbench.errors import StsbenchError
from stsbench.extensions.jobs.content import check_jobs
from stsbench.extensions.jobs.expand import Job, command_words, expand
from stsbench.extensions.jobs.plan_file import BoardEntry, Defaults, Plan, made_plan, read_plan
from stsbench.extensions.jobs.pool import PROGRAM, LocalPool, Place, Pool, RayPool, worker_threads
from stsbench.extensions.jobs.schedule import Log, run_jobs
from stsbench.extensions.jobs.state import Standing, clock, is_done, locks_work, standings
from stsbench.hub import downloads_are_off
from stsbench.registry import did_you_mean
from stsbench.training.rows.files import SetPlace, is_set
from stsbench.wording import counted


@dataclass(frozen=True)
class EntryRuns:
    """An entry, and the evaluations that belong to it."""

    entry: BoardEntry
    jobs: tuple[Job, ...]


def entry_runs(plan: Plan, jobs: Sequence[Job]) -> list[EntryRuns]:
    """Return the entries of a plan: a group of evaluations has its own, or each has that of the training whose model it
    tests."""
    trained = {job.id: job for job in jobs if job.kind == "train"}
    members: dict[str, tuple[BoardEntry, list[Job]]] = {}
    for job in jobs:
        if job.kind != "eval":
            continue
        entry = plan.eval[job.group].entry
        if entry is None:
            entry = next((plan.train[trained[id].group].entry for id in job.needs if id in trained), None)
        if entry is not None:
            members.setdefault(entry.name, (entry, []))[1].append(job)
    return [EntryRuns(entry, tuple(runs)) for entry, runs in members.values()]


def add_to_board(runs: Sequence[EntryRuns], output: Path, board: Path, log: Callable[[str], None]) -> int:
    """Add each entry whose evaluations are all done, by the command itself; how many could not be added."""
    refused = 0
    for of_entry in runs:
        entry = of_entry.entry
        missing = [job for job in of_entry.jobs if not is_done(job, output)]
        if missing:
            undone = f"{len(missing)} of {counted(len(of_entry.jobs), 'evaluation')} not done: {missing[0].name}"
            log(f"{entry.name}: not added, {undone}")
            refused += 1
            continue
        described = entry.model_dump(exclude={"name", "flags"})
        flags = [word for flag in entry.flags for word in ("--flag", flag)]
        words = [
            "leaderboard", "add", *(str(job.folder(output)) for job in of_entry.jobs), "--entry", entry.name,
            "--board", str(board), *command_words(described), *flags,
        ]
        ended = subprocess.run([*PROGRAM, *words], capture_output=True, encoding="utf-8", errors="backslashreplace")
        lines = [line for line in ended.stderr.splitlines() if line.strip()]
        if ended.returncode:
            log(f"{entry.name}: {lines[-1].removeprefix('stsbench: error: ') if lines else 'leaderboard add failed'}")
            refused += 1
        else:
            log(f"{entry.name}: {counted(len(ended.stdout.splitlines()), 'record')} added")
    return refused


@dataclass(frozen=True)
class PlanJobs:
    """A plan and those of its jobs that are asked for, each behind what it needs. where: what messages call the plan."""

    plan: Plan
    jobs: list[Job]
    where: str

    @property
    def folder(self) -> Path:
        """Return where the run folders are."""
        return Path(self.plan.output)

    def undone(self) -> list[Job]:
        """Return those that are not done yet."""
        return [job for job in self.jobs if not is_done(job, self.folder)]

    def standings(self) -> dict[str, Standing]:
        """Return job id -> what has become of it so far."""
        return dict(standings(self.jobs, self.folder))

    def check(self, undone: Sequence[Job]) -> None:
        """Raise StsbenchError, before anything is run, for what is not there and for what is not as it was."""
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
    """Return the jobs of a plan file, or of what one holds, as the options of `stsbench run` have it. Raises
    StsbenchError."""
    if isinstance(plan, Path):
        read, where = read_plan(plan, overrides, output), str(plan)
    else:
        where = "the plan"
        read = made_plan(dict(plan), where, overrides, output)
    return PlanJobs(read, _chosen(expand(read, where, allow), only), where)


def _chosen(jobs: Sequence[Job], only: Sequence[str]) -> list[Job]:
    """Return the jobs of these names or groups, and all that they need, in their order; without names all of them."""
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
    """Raise StsbenchError, before anything is run, for a file or a backbone that a job reads and that is not there.

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
    """Return whether training text of this name is nowhere: no file, no set's name, in no data folder, and not to be
    fetched."""
    if Path(name).expanduser().is_file() or name in NAMED or is_set(name):
        return False
    here, _ = training_text(name, data_dir=where.data_dir, offline=True)
    return here is None and (name not in catalog().training or downloads_are_off(where.offline))


def make_pool(
    folder: Path, workers: int | None, ray: str | None, devices: Sequence[str | None], log: Log
) -> Pool:
    """Return the pool that the options ask for, on run folders in `folder`. devices: of the jobs, None: whatever there
    is."""
    if not locks_work(folder):
        log(f"warning: files cannot be locked in {folder}: run one `stsbench run` on it at a time")
    where = Place(folder, Path.cwd(), worker_threads(workers or 1), clock(folder))
    if ray is None:
        return LocalPool(workers or 1, where)
    cuda = any(device is not None and device.startswith("cuda") for device in devices)
    return RayPool(ray, workers, where, True if cuda else None if None in devices else False)
