"""`stsbench.run_plan`: run the trainings and evaluations of a plan file, and return the state of each."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from stsbench.data.fetch.sources import NAMED, training_text
from stsbench.data.sets.catalog import catalog
from stsbench.display.table import Document, Table
from stsbench.display.tabular import RowsInFolder
from stsbench.errors import StsbenchError, warning_log
from stsbench.extensions.jobs.content import check_jobs
from stsbench.extensions.jobs.expand import Job, command_words, expand
from stsbench.extensions.jobs.plan_file import BoardEntry, Defaults, Dtype, Plan, made_plan, read_plan
from stsbench.extensions.jobs.pool import PROGRAM, LocalPool, Place, Pool, RayPool
from stsbench.extensions.jobs.schedule import Log, run_jobs
from stsbench.extensions.jobs.state import Standing, clock, is_done, locks_work, standings
from stsbench.hub import downloads_are_off
from stsbench.notebook import in_notebook, make_bar
from stsbench.processes import worker_threads
from stsbench.registry import did_you_mean
from stsbench.training.rows.files import SetPlace, is_set
from stsbench.training.runs.trained import FilePath, as_tuple, check_counts, path_word
from stsbench.wording import counted


@dataclass(repr=False)
class Jobs(RowsInFolder):
    """The jobs of a plan and their states. folder: holds the run folders; standings: job id -> state (done, failed, ...)
    with its score or error; not_added: number of entries that could not be added to the board."""

    folder: Path
    jobs: list[Job]
    standings: dict[str, Standing]
    not_added: int = 0

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Return one row per job: job, group, kind, seed, state, result, its run folder and its command line."""
        return [
            {"job": job.name, "group": job.group, "kind": job.kind, "seed": job.seed, "state": standing.where,
             "result": standing.detail, "folder": str(job.folder(self.folder)), "command": job.line(self.folder)}
            for job, standing in ((job, self.standings[job.id]) for job in self.jobs)
        ]

    @property
    def failures(self) -> dict[str, str]:
        """Return job -> why it failed."""
        return {row["job"]: row["result"] for row in self.rows if row["state"] == "failed"}

    def __repr__(self) -> str:
        return f"<Jobs: {self._counts}; run folders in {self.folder}>"

    @property
    def _counts(self) -> str:
        states = [row["state"] for row in self.rows]
        return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)) or "none"

    def document(self) -> Document:
        """Return a table with one row per job: its name, its state, and its score or error."""
        cells = [[row[key] for key in ("job", "state", "result")] for row in self.rows]
        title = f"{self._counts}; run folders in {self.folder}"
        return Document([Table.from_rows(title, ["job", "state", "result"], cells)])


def run_plan(
    plan: FilePath | Mapping[str, Any], *, workers: int | None = None, ray: str | None = None, gpus: float | None = None,
    only: str | Sequence[str] = (), status: bool = False, dry_run: bool = False, output: str | Path | None = None,
    data_dir: str | Path | None = None, device: str | None = None, dtype: str | None = None, offline: bool = False,
    allow: str | Sequence[str] = (), board: str | Path | None = None,
) -> Jobs:
    """Run the trainings and evaluations of a plan that are not done yet, each once, as `stsbench run` does.

    plan: a YAML file, or its content as a mapping. Finished jobs are recognised by their run folders, so a repeated call
        runs only what is missing. Paths in a plan are relative to the working folder.
    workers: number of jobs at once, each in a process; ray: address of a Ray cluster to run them on, or "local"; gpus: GPUs
        per job on Ray, such as .25. only: run these groups or jobs and those that they depend on. status: run nothing,
        return all jobs; dry_run: run nothing, return the unfinished jobs.
    output: folder for the run folders; data_dir, device, offline: for every job; dtype: for every training. They override
        the plan's.
    allow: code named by the plan that may be run, FILE.py:CLASS or python:MODULE:CALLABLE.
    board: a leaderboard folder to which the plan's entries are added afterwards (--add-to-board).

    Nothing is printed; a job that failed is a StsbenchWarning. Raises StsbenchError, one line, before anything is run, for
    an error in the plan or a file that it reads and that does not exist.

    >>> import stsbench
    >>> plan = {"output": "runs", "defaults": {"sample": True}, "eval": {"lexical": {"model": "lexical:token-set"}}}
    >>> stsbench.run_plan(plan, status=True)
    <Jobs: 1 waiting; run folders in runs>
    """
    log = warning_log()
    check_counts(workers=workers)
    check_gpus(gpus, ray)
    if status and dry_run:
        raise StsbenchError("--status (status=True) and --dry-run (dry_run=True) exclude each other")
    if dtype is not None and dtype not in get_args(Dtype):
        raise StsbenchError(f"dtype must be one of {', '.join(get_args(Dtype))}, not {dtype!r}")
    overrides = {"data_dir": None if data_dir is None else str(data_dir), "device": device, "dtype": dtype,
                 "offline": offline or None}
    wanted = plan_jobs(
        plan if isinstance(plan, Mapping) else Path(path_word(plan, "plan")), overrides=overrides,
        output=None if output is None else str(output), only=as_tuple(only, "only"), allow=as_tuple(allow, "allow"),
    )
    if status or dry_run:
        return Jobs(wanted.folder, wanted.jobs if status else wanted.undone(), wanted.standings())
    undone = wanted.undone()
    wanted.check(undone)
    with working_line("run") as working:
        def tell(line: str) -> None:
            log(line)
            if working:
                working(line)

        standings = wanted.run(workers, ray, gpus, tell) if undone else wanted.standings()
    jobs = Jobs(wanted.folder, wanted.jobs, standings)
    for row in jobs.rows:
        if row["state"] != "done":
            log(f"warning: {row['state']}: {row['job']}: {row['result']}")
    if board is not None:
        jobs.not_added = wanted.add_to_board(Path(board), log)
    return jobs


@dataclass(frozen=True)
class EntryRuns:
    """A leaderboard entry and its evaluations."""

    entry: BoardEntry
    jobs: tuple[Job, ...]


def entry_runs(plan: Plan, jobs: Sequence[Job]) -> list[EntryRuns]:
    """Return the leaderboard entries of a plan with their evaluations. An evaluation counts towards the entry of its group,
    or else of the training whose model it tests."""
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
    """Add each entry whose evaluations are all done, by `stsbench leaderboard add`; return how many could not be added."""
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
    """A plan and its selected jobs, each after those that it depends on. where: the plan's name in messages."""

    plan: Plan
    jobs: list[Job]
    where: str

    @property
    def folder(self) -> Path:
        """Return the folder that holds the run folders."""
        return Path(self.plan.output)

    def undone(self) -> list[Job]:
        """Return the jobs that are not done yet."""
        return [job for job in self.jobs if not is_done(job, self.folder)]

    def standings(self) -> dict[str, Standing]:
        """Return job id -> its present state."""
        return dict(standings(self.jobs, self.folder))

    def check(self, undone: Sequence[Job]) -> None:
        """Raise StsbenchError, before anything is run, for a missing or changed input of the jobs."""
        refuse_missing(undone, self.where, self.plan.files, self.plan.defaults)
        check_jobs(self.jobs, self.folder, self.plan.defaults)

    def run(self, workers: int | None, ray: str | None, gpus: float | None, log: Log) -> dict[str, Standing]:
        """Run the unfinished jobs in a local pool or on Ray, and return job id -> its final state."""
        devices = [job.words[job.words.index("--device") + 1] if "--device" in job.words else None for job in self.jobs]
        ended = run_jobs(self.jobs, make_pool(self.folder, workers, ray, gpus, devices, log), self.folder, log)
        return {**self.standings(), **{id: outcome for id, outcome in ended.items() if outcome.where != "done"}}

    def add_to_board(self, board: Path, log: Log) -> int:
        """Add the plan's entries to a leaderboard; return how many could not be. Raises StsbenchError without entries."""
        entries = entry_runs(self.plan, self.jobs)
        if not entries:
            raise StsbenchError(f"{self.where}: no group has an entry to add to {board}")
        return add_to_board(entries, self.folder, board, log)


def plan_jobs(
    plan: Path | Mapping[str, Any], *, overrides: dict[str, Any], output: str | None, only: Sequence[str],
    allow: Sequence[str],
) -> PlanJobs:
    """Return the selected jobs of a plan file or of its content as a mapping, under the options of `stsbench run`."""
    if isinstance(plan, Path):
        read, where = read_plan(plan, overrides, output), str(plan)
    else:
        where = "the plan"
        read = made_plan(dict(plan), where, overrides, output)
    return PlanJobs(read, _chosen(expand(read, where, allow), only), where)


def _chosen(jobs: Sequence[Job], only: Sequence[str]) -> list[Job]:
    """Return the jobs of these names or groups and all that they depend on, in the plan's order; all jobs without names."""
    if not only:
        return list(jobs)
    known = [*dict.fromkeys(job.group for job in jobs), *(job.name for job in jobs)]
    wanted: set[str] = set()
    for name in only:
        if name not in known:
            raise StsbenchError(f"--only {name}: the plan has no such group or job{did_you_mean(name, known)}")
        wanted |= {job.id for job in jobs if name in (job.name, job.group)}
    for job in reversed(jobs):  # one pass suffices, as a job is listed after those that it depends on
        wanted |= set(job.needs) if job.id in wanted else set()
    return [job for job in jobs if job.id in wanted]


def refuse_missing(jobs: Sequence[Job], where: str, files: Mapping[str, str], defaults: Defaults) -> None:
    """Raise StsbenchError, before anything is run, for a missing file or backbone of a job. A backbone that may be on the
    Hub is not checked unless downloads are off. files: file that has to be made first -> the command that makes it."""
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
    """Return whether training text of this name cannot be had: it is not a file, not the name of a set, not in the data
    folder, and cannot be downloaded."""
    if Path(name).expanduser().is_file() or name in NAMED or is_set(name):
        return False
    here, _ = training_text(name, data_dir=where.data_dir, offline=True)
    return here is None and (name not in catalog().training or downloads_are_off(where.offline))


def check_gpus(gpus: float | None, ray: str | None) -> None:
    """Raise StsbenchError for GPUs per job without Ray, or outside (0, 1]."""
    if gpus is not None and (ray is None or not 0 < gpus <= 1):
        raise StsbenchError("--gpus needs --ray" if ray is None else f"--gpus {gpus:g} must be above 0 and at most 1")


def make_pool(
    folder: Path, workers: int | None, ray: str | None, gpus: float | None, devices: Sequence[str | None], log: Log
) -> Pool:
    """Return a local or a Ray pool for run folders in `folder`. devices: one per job, None where a job chooses its own."""
    check_gpus(gpus, ray)
    if not locks_work(folder):
        log(f"warning: files cannot be locked in {folder}: run one `stsbench run` on it at a time")
    where = Place(folder, Path.cwd(), worker_threads(workers or 1), clock(folder))
    if ray is None:
        return LocalPool(workers or 1, where)
    cuda = any(device is not None and device.startswith("cuda") for device in devices)
    return RayPool(ray, workers, where, gpus or (1 if cuda else None if None in devices else 0))


@contextmanager
def working_line(name: str) -> Iterator[Callable[[str], None] | None]:
    """Show, in a notebook, a line with the elapsed time while the block runs. Yields a function that sets its text, None
    outside a notebook."""
    if not in_notebook():
        yield None
        return
    with make_bar(desc=name, bar_format="{desc}, {elapsed}{postfix}", leave=False) as bar:
        yield lambda what: bar.set_postfix_str(what)
