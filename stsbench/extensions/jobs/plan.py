"""`stsbench.run_plan`: the trainings and evaluations of a plan, as a function that gives what has become of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from stsbench.display.table import Document, Table
from stsbench.display.tabular import RowsInFolder
from stsbench.errors import StsbenchError, warning_log
from stsbench.experiments.train import FilePath, as_tuple, check_counts, path_word
from stsbench.extensions.jobs.expand import Job
from stsbench.extensions.jobs.plan_file import Dtype
from stsbench.extensions.jobs.plan_run import plan_jobs
from stsbench.extensions.jobs.state import Standing
from stsbench.notebook import working_line


@dataclass(repr=False)
class Jobs(RowsInFolder):
    """The jobs of a plan and where they stand. folder: of the run folders; standings: job id -> done, failed, ..., and what
    to say of it; not_added: how many entries could not be added to the board."""

    folder: Path
    jobs: list[Job]
    standings: dict[str, Standing]
    not_added: int = 0

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Return a row a job: job, group, kind, seed, state, result, its run folder, and the command that it is."""
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
        """Return a row a job: where it stands, and what came out or went wrong."""
        cells = [[row[key] for key in ("job", "state", "result")] for row in self.rows]
        title = f"{self._counts}; run folders in {self.folder}"
        return Document([Table.from_rows(title, ["job", "state", "result"], cells)])


def run_plan(
    plan: FilePath | Mapping[str, Any], *, workers: int | None = None, ray: str | None = None,
    only: str | Sequence[str] = (), status: bool = False, dry_run: bool = False, output: str | Path | None = None,
    data_dir: str | Path | None = None, device: str | None = None, dtype: str | None = None, offline: bool = False,
    allow: str | Sequence[str] = (), board: str | Path | None = None,
) -> Jobs:
    """Run the trainings and evaluations of a plan that are not done yet, each once, as `stsbench run` does.

    plan: a YAML file, or what one holds, as a mapping. What is done is read from the run folders: the same call again does
        only what is missing. Paths in a plan are relative to the working folder.
    workers: jobs at once, each a process; ray: on a Ray cluster, by its address, or "local". only: these groups or jobs, and
        what they need. status: run nothing, and give all jobs; dry_run: run nothing, and give those that are not done.
    output: where run folders go, before the plan's own. data_dir, device, dtype, offline: of every job, before the plan's.
    allow: code that the plan names and that may be run, FILE.py:CLASS or python:MODULE:CALLABLE.
    board: a leaderboard folder to which the plan's entries are added afterwards (--add-to-board).

    Nothing is printed; a job that failed is a StsbenchWarning. Raises StsbenchError, one line, before anything is run, for
    what is wrong in the plan, and for what it reads and is not there.

    >>> import stsbench
    >>> plan = {"output": "runs", "defaults": {"sample": True}, "eval": {"lexical": {"model": "lexical:token-set"}}}
    >>> stsbench.run_plan(plan, status=True)
    <Jobs: 1 waiting; run folders in runs>
    """
    log = warning_log()
    check_counts(workers=workers)
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

        standings = wanted.run(workers, ray, tell) if undone else wanted.standings()
    jobs = Jobs(wanted.folder, wanted.jobs, standings)
    for row in jobs.rows:
        if row["state"] != "done":
            log(f"warning: {row['state']}: {row['job']}: {row['result']}")
    if board is not None:
        jobs.not_added = wanted.add_to_board(Path(board), log)
    return jobs
