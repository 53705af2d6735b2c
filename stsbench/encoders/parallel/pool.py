"""Processes that each hold the same encoder on a device of their own, and tasks for whichever of them is idle.

A worker is a new interpreter: a copy of this one could have been made while a library's thread held a lock. It ends when its
pipe does, however this process ends.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol, TypeVar

from stsbench.encoders.base import Encoder, EncoderOptions, Progress
from stsbench.encoders.load import load_encoder
from stsbench.encoders.probe import Probe, equal_up_to_rounding, has_identity
from stsbench.errors import EncoderError, StsbenchError
from stsbench.processes import GUARD, cores, threads_each, without_main

J = TypeVar("J")
R = TypeVar("R")
Task = Callable[[Encoder, J, Progress], R]  # a function of a module: it travels to a worker by its name

_REPORT_SECONDS = 0.5  # seconds between two reports of a worker
_END_SECONDS = 5


class Runner(Protocol):
    """Where tasks run."""

    def run(self, task: Task[J, R], jobs: Iterable[J], progress: Progress | None = None) -> Iterator[R]:
        """task(encoder, job, progress) for every job, in the order in which they end."""


class Here:
    """One job after another in this process."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder

    def run(self, task: Task[J, R], jobs: Iterable[J], progress: Progress | None = None) -> Iterator[R]:
        """The results, in the order of the jobs."""
        for job in jobs:
            yield task(self.encoder, job, progress or _ignored)


class Workers:
    """A process for each device; they start with the first job."""

    def __init__(self, model: str, options: EncoderOptions, devices: Sequence[str | None], encoder: Encoder) -> None:
        """model, options: for `load_encoder`; devices: one a process, None for the default; encoder: the one here, which a
        worker's has to be the same as. EncoderError: nobody can tell whether it is, or a server computes."""
        if encoder.computes_in == "server":
            raise EncoderError(f"{encoder.spec.name} is computed by a server: leave --processes and --devices out")
        if not has_identity(asdict(encoder.spec)):
            raise EncoderError(f"{encoder.spec.name} has no identity, so that no other process is known to hold the same: "
                               "leave --processes and --devices out")
        self.count = len(devices)
        same = _Same(encoder.spec.fingerprint(), _probe(encoder))
        self._arguments = [(model, replace(options, device=device), same) for device in devices]
        self._workers: list[_Worker] = []

    def run(self, task: Task[J, R], jobs: Iterable[J], progress: Progress | None = None) -> Iterator[R]:
        """The results as they are ready; the next job is read while the workers are busy.

        EncoderError, one line: a task failed, or a worker was killed. All workers are ended then.
        """
        try:
            yield from self._run(task, iter(jobs), progress or _ignored)
        except BaseException:  # Ctrl-C too: what workers still do is nobody's
            self.close()
            raise

    def _run(self, task: Any, jobs: Iterator[Any], progress: Progress) -> Iterator[Any]:
        job, busy = next(jobs, None), dict[Connection, _Worker]()
        if job is None:
            return
        idle = self._started()
        while job is not None or busy:
            while idle and job is not None:
                worker = idle.pop()
                worker.send((task, job))
                busy[worker.connection] = worker
                job = next(jobs, None)
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index]
                kind, value = worker.receive()
                if kind == "progress":
                    progress(value)
                elif kind == "failed":
                    raise EncoderError(value)
                else:
                    del busy[worker.connection]
                    idle.append(worker)
                    yield value

    def close(self) -> None:
        """End the processes; a later run starts new ones."""
        for worker in self._workers:
            worker.end()
        self._workers = []

    def _started(self) -> list[_Worker]:
        if not self._workers:
            # A function of the main program is found only where this is run again, and then it needs its guard.
            alone = nullcontext() if self._arguments[0][0].startswith("python:__main__:") else without_main()
            with threads_each(max(1, cores() // self.count)), alone:
                self._workers = [_Worker(*arguments) for arguments in self._arguments]
        return list(self._workers)


@dataclass(frozen=True)
class _Same:
    """What an encoder in another process must agree with: a fingerprint, or but for rounding the vectors of a probe."""

    fingerprint: str
    probe: tuple[Any, ...]

    def as_in(self, encoder: Encoder) -> bool:
        return encoder.spec.fingerprint() == self.fingerprint or equal_up_to_rounding(self.probe, _probe(encoder))


def _probe(encoder: Encoder) -> tuple[Any, ...]:
    probe = getattr(encoder, "probe", None)
    return probe.vectors if isinstance(probe, Probe) else ()


class _Worker:
    def __init__(self, model: str, options: EncoderOptions, same: _Same) -> None:
        self._where, self._ready = options.device or "the default device", False
        spawn = multiprocessing.get_context("spawn")
        self.connection, there = spawn.Pipe()
        self._process = spawn.Process(target=_work, args=(there, model, options, same), daemon=True)
        self._process.start()
        there.close()  # so that this end hears when the process has ended

    def send(self, message: Any) -> None:
        with self._alive():
            self.connection.send(message)

    def receive(self) -> Any:
        with self._alive():
            received = self.connection.recv()
        self._ready = True
        return received

    def end(self) -> None:
        self._process.terminate()
        self._process.join(_END_SECONDS)
        if self._process.is_alive():
            self._process.kill()
        self.connection.close()

    @contextmanager
    def _alive(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, OSError) as error:
            self._process.join(_END_SECONDS)
            ended = f"a process that encodes on {self._where} ended with exit code {self._process.exitcode}"
            if self._process.exitcode == 1 and not self._ready:  # Python's own, for an error before there was any work
                advice = f"if your program has no {GUARD}, put the work under one"
                raise EncoderError(f"{ended} at its start: {advice}") from error
            raise EncoderError(
                f"{ended}: if it lacked memory, use fewer --processes or smaller --batch-tokens"
            ) from error


def _work(connection: Connection, model: str, options: EncoderOptions, same: _Same) -> None:
    """Tasks until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal: the first ends the others
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    encoder: Encoder | None = None
    with suppress(EOFError, OSError):
        while True:
            task, job = connection.recv()
            try:
                if encoder is None:
                    encoder = load_encoder(model, options)
                    if not same.as_in(encoder):
                        raise EncoderError(f"{model} is another encoder in the process that was started: it changed "
                                           "meanwhile, or its weights are drawn anew whenever it is imported")
                message = "done", task(encoder, job, _Reports(connection))
            except StsbenchError as error:
                message = "failed", str(error)
            except (MemoryError, Exception) as error:
                message = "failed", f"{model}: {type(error).__name__}: {' '.join(str(error).split())[:500]}"
            connection.send(message)


class _Reports:
    """Counts of texts for the process that waits, not more often than it can use."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._count, self._sent = connection, 0, time.monotonic()

    def __call__(self, count: int) -> None:
        self._count += count
        if time.monotonic() - self._sent > _REPORT_SECONDS:
            self._connection.send(("progress", self._count))
            self._count, self._sent = 0, time.monotonic()


def _ignored(count: int) -> None:
    return
