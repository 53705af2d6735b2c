"""The state of a job, read from its run folder, and the files kept beside it: lock, log, reason of failure."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from stsbench.errors import StsbenchError
from stsbench.extensions.jobs.expand import Job
from stsbench.files import atomic_write, lock_file

if TYPE_CHECKING:
    from stsbench.evaluation.protocol import Protocol

Where = Literal["done", "running", "failed", "stopped", "interrupted", "waiting", "pruned"]
TRY = b"$ stsbench "  # first words of each try in a job's log
BESIDE = ".jobs"  # in the plan's output: locks, logs, failures; results are in the run folders alone


@dataclass(frozen=True)
class Standing:
    """The state of a job. detail: its score, its error, or the job that it waits for."""

    where: Where
    detail: str = ""


def short(id: str) -> str:
    """Return a job's name, from its id."""
    return id.rpartition("-")[0]


def note_path(output: Path, job: Job, suffix: str) -> Path:
    """Return the path of a job's file outside its run folder: lock, log, failed or pruned."""
    return output / BESIDE / f"{job.id}.{suffix}"


def is_done(job: Job, output: Path) -> bool:
    """Return whether the run folder holds the whole result: a training's train.json, or every record of an evaluation."""
    folder = job.folder(output)
    if job.kind == "train":
        return (folder / "train.json").is_file()
    return folder.is_dir() and not missing_records(job, folder)


def checkpoints(job: Job, output: Path) -> frozenset[str]:
    """Return the names of a training's checkpoints; the set changes with each new checkpoint."""
    return frozenset(path.name for path in (job.folder(output) / "checkpoints").glob("[0-9]*"))


def tries(job: Job, output: Path) -> int:
    """Return how many processes were started for this job so far, by its log."""
    log = note_path(output, job, "log")
    return log.read_bytes().count(TRY) if log.is_file() else 0


def missing_records(job: Job, folder: Path) -> list[str]:
    """Return protocol and task of each record that an evaluation should have and the folder lacks.

    A record on a user's file or folder counts only if it was measured on the present content.
    """
    from stsbench.data.sets.catalog import entries
    from stsbench.evaluation.plan import plan

    planned, _ = plan(job.protocols, job.tasks, job.settings, absent=True)
    absent: set[str] = set()
    if job.text != "senteval":  # `eval` leaves out sets that have no such text version
        absent = {item.id for item in entries()} - {item.id for item in entries(job.text)}
    there, missing = _measured(folder), []
    for part in planned:
        label = part.protocol.label
        for task, id in part.tasks.items():
            content = _content_id(part.protocol, id)
            known = (label, task) if content is None else (label, content)
            record = next((record for record in there if known in ((record[0], record[1]), (record[0], record[2]))), None)
            if record is not None:
                there.remove(record)
            elif id not in absent:
                missing.append(f"{label} {task}")
    return missing


def _content_id(protocol: Protocol, id: str) -> str | None:
    """Return the id of a task's data in a record; of a user's data the id of their present content, None where they are gone
    or on the Hub."""
    path = protocol.user_path
    if path is None:
        return id
    if protocol.reads_hub(path.as_posix()) or not path.exists():
        return None
    files = [path, *(file for file in sorted(path.rglob("*")) if file.exists())]  # skips dangling links
    stamps = tuple((str(file), stat.st_size, stat.st_mtime_ns) for file in files for stat in (file.stat(),))
    settings = {**protocol.settings, protocol.path_setting: str(path)}
    return _read_id(protocol.name, json.dumps(settings, sort_keys=True), stamps)


@cache
def _read_id(name: str, settings: str, stamps: tuple[tuple[str, int, int], ...]) -> str:
    """Return the id of a user's data, read once for each set of file stamps; "" where they cannot be read."""
    from stsbench.evaluation.protocol import load_protocol

    protocol = load_protocol(name)(json.loads(settings))
    try:
        data = protocol.load(f"own:{protocol.user_path}")
    except Exception:  # any reader's error counts as unreadable here: the evaluation reports it
        return ""
    return "" if data is None else data.id


def _measured(folder: Path) -> list[tuple[str, str, str]]:
    """Return (protocol, data, task) of each record; [] for a missing or damaged run folder."""
    from stsbench.evaluation.run_file import load_records

    try:
        records = load_records(folder)
    except StsbenchError:
        return []
    return [(record.protocol.label, record.data.id, record.data.task) for _, record in records]


@contextmanager
def alone(output: Path) -> Iterator[None]:
    """Lock a folder's search, its next trials and the digests of its jobs' inputs against other processes."""
    (output / BESIDE).mkdir(parents=True, exist_ok=True)
    with (output / BESIDE / "study.lock").open("a") as stream:
        lock_file(stream.fileno(), wait=True)
        yield


@contextmanager
def job_lock(output: Path, job: Job) -> Iterator[int | None]:
    """Lock a job against all other workers, on other machines, too. Yields the lock's file descriptor, None if it is taken.

    A process that inherits the descriptor keeps the lock as long as it lives, so that a training whose worker was killed
    goes on and is not started a second time. The system releases the lock when both have ended. The file is not deleted:
    otherwise two workers could lock two files of the same name.
    """
    path = note_path(output, job, "lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = path.open("a")
    except OSError as error:
        raise StsbenchError(f"cannot write {path}: {error.strerror or error}") from error
    with stream:
        yield None if lock_file(stream.fileno()) is False else stream.fileno()


def locks_work(output: Path) -> bool:
    """Return whether files can be locked here (not on Windows, nor on some network drives)."""
    folder = output / BESIDE
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "locks").open("a") as stream:
        return lock_file(stream.fileno(), wait=True) is not None


def clock(output: Path) -> float:
    """Return the present moment by the file system's clock, which all machines share."""
    (output / BESIDE).mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=output / BESIDE, prefix="clock.") as stream:
        stream.write(b".")
        stream.flush()
        return os.fstat(stream.fileno()).st_mtime


def write_failure(output: Path, job: Job, line: str) -> None:
    """Write the reason of a job's failure to a file, for the table and for other workers."""
    with atomic_write(note_path(output, job, "failed")) as stream:
        stream.write(line + "\n")


def failure(output: Path, job: Job, since: float | None = None) -> str | None:
    """Return the error of the job's last try; None where it did not fail, or failed before `since`."""
    path = note_path(output, job, "failed")
    try:
        if since is not None and path.stat().st_mtime < since:
            return None
        return path.read_text("utf-8").strip()
    except FileNotFoundError:
        return None


def prune(output: Path, job: Job) -> None:
    """Mark the job as pruned, so that no worker starts it."""
    with atomic_write(note_path(output, job, "pruned")):
        pass


def is_pruned(job: Job, output: Path) -> bool:
    """Return whether a sweep has given the job up."""
    return note_path(output, job, "pruned").exists()


def standings(jobs: Sequence[Job], output: Path) -> dict[str, Standing]:
    """Return job id -> its present state, read from the file system alone."""
    known: dict[str, Standing] = {}
    for job in jobs:
        known[job.id] = _standing(job, output, known)
    return known


def _standing(job: Job, output: Path, before: dict[str, Standing]) -> Standing:
    if is_done(job, output):
        again = f"; try {count}" if (count := tries(job, output)) > 1 else ""
        return Standing("done", _result(job, job.folder(output)) + again)
    if note_path(output, job, "lock").exists():
        with job_lock(output, job) as lock:
            if lock is None:
                return Standing("running")
    if is_pruned(job, output):
        return Standing("pruned")
    if (line := failure(output, job)) is not None:
        return Standing("failed", line)
    needs = [id for id in job.needs if id in before and before[id].where != "done"]
    if stopping := [id for id in needs if before[id].where in ("failed", "stopped")]:
        return Standing("stopped", f"needs {short(stopping[0])}")
    if job.folder(output).exists():
        return Standing("interrupted")
    return Standing("waiting", f"for {short(needs[0])}" if needs else "")


def _result(job: Job, folder: Path) -> str:
    """Return the result of a finished job in a few words: number of records, or best development score."""
    if job.kind == "eval":
        return f"{len(_measured(folder))} records"
    from stsbench.training.runs.report import read_summary

    best = (read_summary(folder) or {}).get("best")
    return f"{best['name']} {best['score']:.2f}" if best else ""
