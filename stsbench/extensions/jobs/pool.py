"""Who runs jobs: a local pool, each job in a process of its own."""

from __future__ import annotations

import os
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from threading import Lock
from typing import Protocol

from stsbench.errors import one_line
from stsbench.extensions.jobs.attempt import Outcome, Place, Process, Start, attempt, start
from stsbench.extensions.jobs.job import Job
from stsbench.processes import cores


class Pool(Protocol):
    """Something that tries jobs. workers: how many at once."""

    workers: int

    def submit(self, job: Job) -> None: ...

    def wait(self, seconds: float) -> list[tuple[Job, Outcome]]:
        """The tries that have ended, after `seconds` at the latest."""
        ...

    def cancel(self, job: Job) -> None:
        """Ask the process of this job to stop, if it runs."""
        ...

    def stop(self) -> None:
        """Ask the processes of all running jobs to stop, and wait for them."""
        ...


class LocalPool:
    """So many jobs at once on this machine. A thread waits for each; where $CUDA_VISIBLE_DEVICES lists several devices,
    each worker has one of them at a time."""

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
        except Exception as error:  # of this job: the others go on, as Ray's do
            return Outcome("failed", one_line(error))
        finally:
            with self._lock:
                self._processes.pop(job.id, None)
                self._devices += [device] if device is not None else []


def devices(listed: str) -> list[str]:
    """Several devices of a list such as 0,1; [] of one or none, which all workers share."""
    names = [name.strip() for name in listed.split(",") if name.strip()]
    return names if len(names) > 1 else []


def threads_of(workers: int) -> int:
    """Threads of each of so many processes: $OMP_NUM_THREADS, else an equal share of the processors."""
    configured = os.environ.get("OMP_NUM_THREADS", "")
    return int(configured) if configured.isdecimal() and int(configured) else max(1, cores() // workers)
