"""The same pool on a Ray cluster, or on a Ray of this machine: a task of Ray's for each try."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from stsbench.errors import StsbenchError
from stsbench.extensions.jobs.attempt import Outcome, Place, Start, attempt, start
from stsbench.extensions.jobs.job import Job
from stsbench.extensions.jobs.state import is_pruned

LOCAL = "local"


class RayPool:
    """Tries jobs as tasks of Ray, each with the processors of a job and, on CUDA, one GPU.

    All nodes need this folder and the plan's output in one file system, and stsbench installed. Ray schedules; which jobs
    there are and which are done is read from run folders, as everywhere.
    """

    def __init__(
        self, address: str, workers: int | None, workspace: Place, gpu: bool | None = False, start: Start = start
    ) -> None:
        """address: `local` starts a Ray that ends with this process; workers: tasks at once, None: as many as Ray has
        places for; gpu: a GPU for each, None: where Ray has some.

        Raises StsbenchError where Ray is not installed or not there, or no node has what a job needs.
        """
        self._ray = _ray()
        options: dict[str, Any] = {"log_to_driver": False, "address": address}
        if address == LOCAL:
            processors = (workers or 1) * workspace.threads if gpu is False else None  # None: Ray counts them
            options |= {"configure_logging": False, "include_dashboard": False, "num_cpus": processors}
        try:
            with chdir(Path.cwd().anchor):  # Ray puts the working folder first where its workers look for modules
                self._ray.init(**options)
        except Exception as error:  # Ray raises a bare one where a node does not come up in time
            raise StsbenchError(f"--ray {address}: {' '.join(str(error).split())}") from error
        resources = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        nodes = [(node.get("CPU", 0), node.get("GPU", 0)) for node in resources]
        gpu = any(gpus >= 1 for _, gpus in nodes) if gpu is None else gpu
        threads, slots = shares(nodes, workspace.threads, gpu)
        if not slots:
            self._ray.shutdown()
            raise StsbenchError(f"--ray {address}: no node has a {'GPU' if gpu else 'processor'} for a job")
        self.workers = workers or slots
        self._workspace, self._start = replace(workspace, threads=threads), start
        self._tasks: dict[Any, Job] = {}
        # A lost task is tried again by the schedule, which first looks what it has left.
        needs = {"num_cpus": threads, "num_gpus": 1 if gpu else 0, "max_retries": 0}
        self._attempt = self._ray.remote(**needs)(attempt)

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
        except errors.RayError as error:  # a worker, a node or what they kept is gone
            return Outcome("lost", f"Ray lost its worker ({type(error).__name__})")

    def _stopped(self, job: Job) -> Outcome:
        return Outcome("pruned") if is_pruned(job, self._workspace.there) else Outcome("lost", "stopped")


def shares(nodes: Sequence[tuple[float, float]], threads: int, gpu: bool) -> tuple[int, int]:
    """(threads of a job, places for jobs) of nodes with so many (processors, GPUs).

    A job has `threads`, unless no node has as many, or a node with GPUs has fewer for each: tasks would wait there forever.
    """
    if gpu:
        nodes = [(processors, gpus) for processors, gpus in nodes if processors >= 1 and gpus >= 1]
        threads = min([threads, *(max(1, int(processors // gpus)) for processors, gpus in nodes)])
        return threads, sum(int(min(gpus, processors // threads)) for processors, gpus in nodes)
    threads = min(threads, max([1, *(int(processors) for processors, _ in nodes)]))
    return threads, sum(int(processors // threads) for processors, _ in nodes)


def _ray() -> ModuleType:
    try:
        import ray
    except ImportError as error:
        raise StsbenchError("--ray needs Ray: pip install 'stsbench[ray]'") from error
    module: ModuleType = ray
    return module
