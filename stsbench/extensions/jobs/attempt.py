"""One try at a job: its lock, its process, how it ended."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from stsbench.extensions.jobs.job import Job
from stsbench.extensions.jobs.state import (
    TRY,
    failure,
    is_done,
    is_pruned,
    job_lock,
    missing_records,
    note_of,
    write_failure,
)

_STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM)  # how a command ends that was asked to stop
_LONGEST = 300  # characters of an error line
PROGRAM = (sys.executable, "-P", "-m", "stsbench")  # -P: no module of the folder that the command was called in is imported


@dataclass(frozen=True)
class Outcome:
    """How a try ended. done: the result is there (ran: made just now); failed, with the error; lost: its process was
    killed, another try goes on; busy: another worker has the job; pruned: it was given up."""

    how: Literal["done", "failed", "lost", "busy", "pruned"]
    line: str = ""
    seconds: float = 0.0
    ran: bool = False


class Process(Protocol):
    """What `subprocess.Popen` gives."""

    def wait(self) -> int: ...
    def terminate(self) -> None: ...


@dataclass(frozen=True)
class Place:
    """Where a try is made. output: as commands name it; folder: that they run in; threads: of a job's process; since:
    failures from before this moment are tried again; environment: of the job's process, over this one's."""

    output: Path
    folder: Path
    threads: int
    since: float
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def there(self) -> Path:
        """The output, from wherever this process was started: Ray's have another working folder."""
        return self.folder / self.output


Start = Callable[[list[str], Path, int, Place], Process]  # words, log file, the lock's file, where


def start(words: list[str], log: Path, lock: int, workspace: Place) -> Process:
    """The command as a process of its own, which keeps the lock; what it prints goes to the log."""
    threads = {name: str(workspace.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    fixed = {"TOKENIZERS_PARALLELISM": "false", "PYTHONUNBUFFERED": "1"}
    with log.open("ab") as stream:
        return subprocess.Popen(
            [*PROGRAM, *words], cwd=workspace.folder, stdin=subprocess.DEVNULL, stdout=stream,
            stderr=stream, pass_fds=(lock,) if os.name == "posix" else (),
            env={**os.environ, **threads, **fixed, **workspace.environment},
        )


def attempt(job: Job, workspace: Place, start: Start = start, started: Callable[[Process], None] | None = None) -> Outcome:
    """Run the job unless its result is there or another worker has it. started: is told the process."""
    with job_lock(workspace.there, job) as lock:
        if lock is None:
            return Outcome("busy")
        if is_done(job, workspace.there):
            return Outcome("done")
        if is_pruned(job, workspace.there):
            return Outcome("pruned")
        if (line := failure(workspace.there, job, workspace.since)) is not None:
            return Outcome("failed", line)
        note_of(workspace.there, job, "failed").unlink(missing_ok=True)
        return _run(job, workspace, lock, start, started)


def _run(job: Job, workspace: Place, lock: int, start: Start, started: Callable[[Process], None] | None) -> Outcome:
    words = job.command(workspace.output, *_going_on(job, job.folder(workspace.there)))
    log = note_of(workspace.there, job, "log")
    with log.open("ab") as stream:
        stream.write(TRY + f"{' '.join(words)}\n".encode())
        before = stream.tell()
    began = time.monotonic()
    process = start(words, log, lock, workspace)
    if started is not None:
        started(process)
    try:
        code = process.wait()
    except BaseException:  # a task of Ray's is cancelled by one
        process.terminate()
        process.wait()
        raise
    seconds = time.monotonic() - began
    if is_done(job, workspace.there):
        return Outcome("done", seconds=seconds, ran=True)
    if is_pruned(job, workspace.there):
        return Outcome("pruned", seconds=seconds)
    if code < 0 or code in _STOPPED:
        return Outcome("lost", f"killed by {signal.Signals(-code).name}" if code < 0 else "stopped", seconds)
    line = _last_line(log, before) if code else "the command ended without its result"
    if job.kind == "eval" and code in (0, 3) and (missing := missing_records(job, job.folder(workspace.there))):
        line = f"{', '.join(missing)} not measured; see {note_of(workspace.output, job, 'log')}"
    write_failure(workspace.there, job, line)
    return Outcome("failed", line, seconds)


def _going_on(job: Job, folder: Path) -> list[str]:
    """What a try adds to the command: a training that has begun goes on. What else is left of an earlier try is removed."""
    if job.kind == "train" and (folder / "recipe.yaml").is_file():
        return ["--resume"]
    if folder.exists():
        shutil.rmtree(folder)  # an evaluation by a part of its protocols: it is quick again, for its vectors are cached
    return []


def _last_line(log: Path, start: int) -> str:
    """The last line that a command printed, without the words before an error."""
    with log.open("rb") as stream:
        stream.seek(start)
        lines = [line.strip() for line in stream.read().decode("utf-8", "replace").splitlines() if line.strip()]
    line = re.sub(r"^(stsbench: error: |Error: )", "", lines[-1]) if lines else "it printed nothing"
    return line if len(line) <= _LONGEST else line[:_LONGEST] + "..."
