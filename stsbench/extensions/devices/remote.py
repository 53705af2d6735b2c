"""Encode in Ray tasks that each hold the same encoder; tasks of a lost worker or node are repeated."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from stsbench.encoders.base import Encoder, EncoderOptions, Progress
from stsbench.encoders.options import Result, Task, Work
from stsbench.errors import EncoderError
from stsbench.extensions.cluster import Cluster
from stsbench.extensions.devices.parallel import Same, in_one_line
from stsbench.processes import worker_threads

_TRIES = 5  # most tries of a task whose process is killed


class RayWorkers:
    """A pool of Ray tasks; all nodes of the cluster need the working folder at the same path."""

    def __init__(self, address: str, count: int | None, options: EncoderOptions, encoder: Encoder) -> None:
        """Connect to the cluster. address, count: as for `Cluster`; options, encoder, and errors: as for `Workers`."""
        self._model = options.model
        self._arguments = pickle.dumps((options, Same.describe(encoder), Path.cwd()))
        gpus = None if options.device is None else float(options.device.startswith("cuda"))
        cluster = Cluster(address, count, worker_threads(count or 1), gpus)
        self.count = count or cluster.room
        self._ray, self._compute = cluster.ray, cluster.remote(compute, max_retries=_TRIES - 1)

    def run(self, task: Task[Work, Result], jobs: Iterable[Work], progress: Progress | None = None) -> Iterator[Result]:
        """Yield results in the order of completion; the next job is read while the workers are busy.

        Raises EncoderError, one line, where a task failed, or its worker was killed at each try.
        """
        tasks: list[Any] = []
        for job in jobs:
            if len(tasks) == self.count:
                yield self._first(tasks, progress)
            tasks.append(self._compute.remote(self._arguments, task, job))
        while tasks:
            yield self._first(tasks, progress)

    def close(self) -> None:
        """End the tasks and the connection."""
        self._ray.shutdown()

    def _first(self, tasks: list[Any], progress: Progress | None) -> Any:
        (ended,), tasks[:] = self._ray.wait(tasks)
        errors = self._ray.exceptions
        try:
            result, count = self._ray.get(ended)
        except errors.RayTaskError as error:
            raise EncoderError(in_one_line(error.cause, self._model)) from error
        except errors.RayError as error:
            why = f"{self._model}: Ray lost the process that encodes, at {_TRIES} tries ({type(error).__name__})"
            raise EncoderError(f"{why}: if it lacked memory, use smaller --batch-tokens") from error
        if progress is not None:
            progress(count)
        return result


def compute(arguments: bytes, task: Any, job: Any) -> tuple[Any, int]:
    """Return a task's result and its count of texts; the process keeps the encoder for its next task."""
    counts: list[int] = []
    return task(_encoder(arguments), job, counts.append), sum(counts)


@lru_cache(maxsize=1)
def _encoder(arguments: bytes) -> Encoder:
    options, same, folder = pickle.loads(arguments)
    os.chdir(folder)
    encoder: Encoder = same.load(options.model, options)
    return encoder
