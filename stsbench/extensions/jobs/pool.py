"""Worker pools that run jobs, each in a process of its own: on this machine, or on a Ray cluster."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any, Literal, Protocol

from stsbench.errors import one_line
from stsbench.extensions.cluster import Cluster
from stsbench.extensions.jobs.expand import Job
from stsbench.extensions.jobs.state import (
    TRY,
    failure,
    is_done,
    is_pruned,
    job_lock,
    missing_records,
    note_path,
    write_failure,
)

_STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM)  # exit codes of a command that was asked to stop
_LONGEST = 300  # characters of an error line
PROGRAM = (sys.executable, "-P", "-m", "stsbench")  # -P: no module of the folder that the command was called in is imported


@dataclass(frozen=True)
class Outcome:
    """How a try at a job ended. done: the result exists (ran: this try made it); failed: `line` is the error; lost: its
    process was killed, and it may be tried again; busy: another worker has the job; pruned: the sweep gave it up."""

    how: Literal["done", "failed", "lost", "busy", "pruned"]
    line: str = ""
    seconds: float = 0.0
    ran: bool = False


class Process(Protocol):
    """The part of `subprocess.Popen` that pools use."""

    def wait(self) -> int: ...
    def terminate(self) -> None: ...


@dataclass(frozen=True)
class Place:
    """The surroundings of a try. output: the runs' folder; folder: the commands' working folder; threads: per job; since:
    failures before this time are tried again; environment: variables that are added for the job's process."""

    output: Path
    folder: Path
    threads: int
    since: float
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def there(self) -> Path:
        """Return the output folder's path for this process: Ray's workers have another working folder."""
        return self.folder / self.output


Start = Callable[[list[str], Path, int, Place], Process]  # words, log file, file descriptor of the lock, surroundings


def start(words: list[str], log: Path, lock: int, workspace: Place) -> Process:
    """Start the command in a process of its own, which inherits the lock and prints to the log; return the process."""
    threads = {name: str(workspace.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    fixed = {"TOKENIZERS_PARALLELISM": "false", "PYTHONUNBUFFERED": "1"}
    with log.open("ab") as stream:
        return subprocess.Popen(
            [*PROGRAM, *words], cwd=workspace.folder, stdin=subprocess.DEVNULL, stdout=stream,
            stderr=stream, pass_fds=(lock,) if os.name == "posix" else (),
            env={**os.environ, **threads, **fixed, **workspace.environment},
        )


def attempt(job: Job, workspace: Place, start: Start = start, started: Callable[[Process], None] | None = None) -> Outcome:
    """Run the job, unless it is done or another worker has it, and return the outcome. started: called with the process."""
    with job_lock(workspace.there, job) as lock:
        if lock is None:
            return Outcome("busy")
        if is_done(job, workspace.there):
            return Outcome("done")
        if is_pruned(job, workspace.there):
            return Outcome("pruned")
        if (line := failure(workspace.there, job, workspace.since)) is not None:
            return Outcome("failed", line)
        note_path(workspace.there, job, "failed").unlink(missing_ok=True)
        return _run(job, workspace, lock, start, started)


def _run(job: Job, workspace: Place, lock: int, start: Start, started: Callable[[Process], None] | None) -> Outcome:
    words = job.command(workspace.output, *_going_on(job, job.folder(workspace.there)))
    log = note_path(workspace.there, job, "log")
    with log.open("ab") as stream:
        stream.write(TRY + f"{' '.join(words)}\n".encode())
        before = stream.tell()
    began = time.monotonic()
    process = start(words, log, lock, workspace)
    if started is not None:
        started(process)
    try:
        code = process.wait()
    except BaseException:  # Ray cancels a task by a KeyboardInterrupt
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
        line = f"{', '.join(missing)} not measured; see {note_path(workspace.output, job, 'log')}"
    write_failure(workspace.there, job, line)
    return Outcome("failed", line, seconds)


def _going_on(job: Job, folder: Path) -> list[str]:
    """Return the words that a try adds to the command: --resume for a training that has begun. Removes any other remains of
    an earlier try."""
    if job.kind == "train" and (folder / "recipe.yaml").is_file():
        return ["--resume"]
    if folder.exists():
        shutil.rmtree(folder)  # an incomplete evaluation is quick to repeat, as its vectors are cached
    return []


def _last_line(log: Path, start: int) -> str:
    """Return the last line that a command printed, without "stsbench: error: " or "Error: " at its start."""
    with log.open("rb") as stream:
        stream.seek(start)
        lines = [line.strip() for line in stream.read().decode("utf-8", "replace").splitlines() if line.strip()]
    line = re.sub(r"^(stsbench: error: |Error: )", "", lines[-1]) if lines else "it printed nothing"
    return line if len(line) <= _LONGEST else line[:_LONGEST] + "..."


class Pool(Protocol):
    """The interface of a worker pool. workers: number of jobs at once."""

    workers: int

    def submit(self, job: Job) -> None: ...

    def wait(self, seconds: float) -> list[tuple[Job, Outcome]]:
        """Return the tries that have ended, after `seconds` at the latest."""
        ...

    def cancel(self, job: Job) -> None:
        """Ask the process of this job to stop, if it runs."""
        ...

    def stop(self) -> None:
        """Ask the processes of all running jobs to stop, and wait for them."""
        ...


class LocalPool:
    """Runs `workers` jobs at once on this machine. Where $CUDA_VISIBLE_DEVICES lists several devices, each worker has one of
    them at a time."""

    def __init__(self, workers: int, workspace: Place, start: Start = start) -> None:
        self.workers, self._workspace, self._start = workers, workspace, start
        self._threads = ThreadPoolExecutor(workers)
        self._tries: dict[Future[Outcome], Job] = {}
        self._processes: dict[str, Process] = {}  # by the job's id
        self._devices = devices(os.environ.get("CUDA_VISIBLE_DEVICES", ""))
        self._lock, self._stopping = Lock(), False

    def submit(self, job: Job) -> None:
        self._tries[self._threads.submit(self._try, job)] = job

    def wait(self, seconds: float) -> list[tuple[Job, Outcome]]:
        ended, _ = wait(self._tries, seconds, FIRST_COMPLETED)
        return [(self._tries.pop(future), future.result()) for future in ended]

    def cancel(self, job: Job) -> None:
        with self._lock:
            if job.id in self._processes:
                self._processes[job.id].terminate()

    def stop(self) -> None:
        with self._lock:
            self._stopping = True
            for process in self._processes.values():
                process.terminate()
        self._threads.shutdown(cancel_futures=True)

    def _try(self, job: Job) -> Outcome:
        def started(process: Process) -> None:
            with self._lock:
                self._processes[job.id] = process
                if self._stopping:
                    process.terminate()

        with self._lock:
            device = self._devices.pop(0) if self._devices else None
        workspace = self._workspace
        if device is not None:
            workspace = replace(workspace, environment={**workspace.environment, "CUDA_VISIBLE_DEVICES": device})
        try:
            return attempt(job, workspace, self._start, started)
        except Exception as error:  # fails this job alone, as on Ray: the other jobs go on
            return Outcome("failed", one_line(error))
        finally:
            with self._lock:
                self._processes.pop(job.id, None)
                self._devices += [device] if device is not None else []


def devices(listed: str) -> list[str]:
    """Return the devices of a list such as 0,1; [] for fewer than two, as all workers share a single device."""
    names = [name.strip() for name in listed.split(",") if name.strip()]
    return names if len(names) > 1 else []


class RayPool:
    """Runs jobs as Ray tasks, each with the processors of a job and, on CUDA, a GPU or a part of one.

    All nodes need this folder and the plan's output in a shared file system, and stsbench installed. Ray schedules the
    tasks; which jobs are done is read from the run folders.
    """

    def __init__(
        self, address: str, workers: int | None, workspace: Place, gpus: float | None = 0, start: Start = start
    ) -> None:
        """Connect to the cluster. workers: tasks at once, None: as many as fit; other arguments, and errors, as of
        `Cluster`."""
        cluster = Cluster(address, workers, workspace.threads, gpus)
        self._ray, self.workers = cluster.ray, workers or cluster.room
        self._workspace, self._start = replace(workspace, threads=cluster.threads), start
        self._tasks: dict[Any, Job] = {}
        # No retries by Ray: the schedule tries a lost job again, after it has looked at the run folder.
        self._attempt = cluster.remote(attempt, max_retries=0)

    def submit(self, job: Job) -> None:
        self._tasks[self._attempt.remote(job, self._workspace, self._start)] = job

    def wait(self, seconds: float) -> list[tuple[Job, Outcome]]:
        ended, _ = self._ray.wait(list(self._tasks), num_returns=1, timeout=seconds)
        return [(job, self._outcome(task, job)) for task in ended for job in (self._tasks.pop(task),)]

    def cancel(self, job: Job) -> None:
        for task in [task for task, other in self._tasks.items() if other.id == job.id]:
            self._ray.cancel(task)  # raises KeyboardInterrupt in the task, which stops its process

    def stop(self) -> None:
        for task in self._tasks:
            self._ray.cancel(task)
        deadline = time.monotonic() + 60
        while self._tasks and time.monotonic() < deadline and self.wait(5):
            pass
        self._ray.shutdown()

    def _outcome(self, task: Any, job: Job) -> Outcome:
        errors = self._ray.exceptions
        try:
            outcome: Outcome = self._ray.get(task)
            return outcome
        except errors.TaskCancelledError:
            return self._stopped(job)
        except errors.RayTaskError as error:
            if isinstance(error.cause, KeyboardInterrupt):
                return self._stopped(job)
            return Outcome("failed", " ".join(str(error.cause).split()))
        except errors.RayError as error:  # a worker, a node or an object in its store is lost
            return Outcome("lost", f"Ray lost its worker ({type(error).__name__})")

    def _stopped(self, job: Job) -> Outcome:
        return Outcome("pruned") if is_pruned(job, self._workspace.there) else Outcome("lost", "stopped")
