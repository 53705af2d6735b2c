"""A pool of processes that each hold the same encoder on a device of their own.

Texts are distributed over the processes; everything else is left to the encoder of this process. Workers are spawned, not
forked, as a fork could copy a lock that a library's thread holds. A worker ends when its pipe is closed, however this
process ends.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from stsbench.encoders.base import Call, Counts, Encoded, Encoder, EncoderOptions, Progress, Wrapper
from stsbench.encoders.load import load_encoder
from stsbench.encoders.options import Result, Runner, Task, Work
from stsbench.encoders.probe import Probe, has_identity
from stsbench.errors import EncoderError, StsbenchError
from stsbench.processes import GUARD, cores, limit_threads, without_main

_REPORT_SECONDS = 0.5  # seconds between two reports of a worker
_END_SECONDS = 5
_PART = 8192  # most texts per job, which bounds the data in a pipe


class Workers:
    """A pool with one process per device; the processes start with the first job."""

    def __init__(self, model: str, options: EncoderOptions, devices: Sequence[str | None], encoder: Encoder) -> None:
        """Prepare the pool. model, options: for `load_encoder`; devices: one per process, None for the default; encoder:
        this process's, which the workers' must equal. Raises EncoderError as `Same.describe`."""
        self.count = len(devices)
        same = Same.describe(encoder)
        self._arguments = [(model, replace(options, device=device), same) for device in devices]
        self._workers: list[_Worker] = []

    def run(self, task: Task[Work, Result], jobs: Iterable[Work], progress: Progress | None = None) -> Iterator[Result]:
        """Yield results in the order of completion; the next job is read while the workers are busy.

        Raises EncoderError, one line, where a task failed or a worker was killed, after ending all workers.
        """
        try:
            yield from self._run(task, iter(jobs), progress or _ignored)
        except BaseException:  # also KeyboardInterrupt: nobody will take the results of running jobs
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
            # A function of the main program is found only if workers import it, which needs its __main__ guard.
            alone = nullcontext() if self._arguments[0][0].startswith("python:__main__:") else without_main()
            with limit_threads(max(1, cores() // self.count)), alone:
                self._workers = [_Worker(*arguments) for arguments in self._arguments]
        return list(self._workers)


@dataclass(frozen=True)
class Same:
    """The identity that an encoder in another process must have: a fingerprint, or a probe's vectors up to rounding."""

    fingerprint: str
    probe: tuple[Any, ...]

    @classmethod
    def describe(cls, encoder: Encoder) -> Same:
        """Return an encoder's identity. Raises EncoderError for an encoder without one, or one that a server computes."""
        if encoder.computes_in == "server":
            raise EncoderError(f"{encoder.spec.name} is computed by a server: leave --processes and --devices out")
        if not has_identity(asdict(encoder.spec)):
            raise EncoderError(f"{encoder.spec.name} has no identity, so that no other process is known to hold the same: "
                               "leave --processes and --devices out")
        return cls(encoder.spec.fingerprint(), _probe(encoder))

    def load(self, model: str, options: EncoderOptions) -> Encoder:
        """Load the encoder in this process, and return it. Raises EncoderError if its identity differs."""
        encoder = load_encoder(model, options)
        if encoder.spec.fingerprint() != self.fingerprint and not equal_up_to_rounding(self.probe, _probe(encoder)):
            raise EncoderError(f"{model} is another encoder in the process that was started: it changed meanwhile, or its "
                               "weights are drawn anew whenever it is imported")
        return encoder


def in_one_line(error: BaseException, model: str) -> str:
    """Return the message of a task's error in one line."""
    if isinstance(error, StsbenchError):
        return str(error)
    return f"{model}: {type(error).__name__}: {' '.join(str(error).split())[:500]}"


def _probe(encoder: Encoder) -> tuple[Any, ...]:
    probe = getattr(encoder, "probe", None)
    return probe.vectors if isinstance(probe, Probe) else ()


def equal_up_to_rounding(first: tuple[NDArray[np.float32], ...], second: tuple[NDArray[np.float32], ...]) -> bool:
    """Return whether the vectors of two probes agree up to rounding, as another number of threads changes the order of
    sums."""
    if not first or [array.shape for array in first] != [array.shape for array in second]:
        return False
    return all(np.allclose(a, b, rtol=1e-4, atol=1e-5 * float(np.nanmax(np.abs(a), initial=1.0)), equal_nan=True)
               for a, b in zip(first, second, strict=True))


class _Worker:
    def __init__(self, model: str, options: EncoderOptions, same: Same) -> None:
        self._where, self._ready = options.device or "the default device", False
        spawn = multiprocessing.get_context("spawn")
        self.connection, there = spawn.Pipe()
        self._process = spawn.Process(target=_work, args=(there, model, options, same), daemon=True)
        self._process.start()
        there.close()  # so that reading raises EOFError once the process has ended

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
            if self._process.exitcode == 1 and not self._ready:  # Python's exit code for an error at import
                advice = f"if your program has no {GUARD}, put the work under one"
                raise EncoderError(f"{ended} at its start: {advice}") from error
            raise EncoderError(
                f"{ended}: if it lacked memory, use fewer --processes or smaller --batch-tokens"
            ) from error


def _work(connection: Connection, model: str, options: EncoderOptions, same: Same) -> None:
    """Run tasks from the pipe until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes, and the parent ends them
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    encoder: Encoder | None = None
    with suppress(EOFError, OSError):
        while True:
            task, job = connection.recv()
            try:
                if encoder is None:
                    encoder = same.load(model, options)
                message = "done", task(encoder, job, _Reports(connection))
            except (MemoryError, Exception) as error:
                message = "failed", in_one_line(error, model)
            connection.send(message)


class _Reports:
    """Sends counts of encoded texts to the parent process, at most every _REPORT_SECONDS."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._count, self._sent = connection, 0, time.monotonic()

    def __call__(self, count: int) -> None:
        self._count += count
        if time.monotonic() - self._sent > _REPORT_SECONDS:
            self._connection.send(("progress", self._count))
            self._count, self._sent = 0, time.monotonic()


def _ignored(count: int) -> None:
    return


class CountedRunner(Runner, Protocol):
    """A runner with a number of processes, `count`."""

    count: int


@dataclass(frozen=True)
class _Part:
    rows: Any  # int64 (n,): positions of the texts among all
    texts: list[str]
    reads: tuple[Call, ...]


class ParallelEncoder(Wrapper):
    """`base` computed by `workers`. Vectors differ by rounding alone, as texts are batched differently."""

    computes_in = "processes"

    def __init__(self, base: Encoder, workers: CountedRunner, reads: tuple[Call, ...] = ()) -> None:
        """Wrap `base`. Raises EncoderError as `check_shareable`."""
        check_shareable(base)
        super().__init__(base)
        self._workers, self._reads = workers, reads
        self.cacheable, self.processes = base.cacheable, workers.count

    def ready(self) -> None:
        """Do nothing, as the workers load the model."""

    def on(self, base: Encoder, call: Call) -> Encoder:
        """Return `base`, made by `call`, in the same processes, where `call` is repeated."""
        return ParallelEncoder(base, self._workers, (*self._reads, call))

    def run(self, texts: Sequence[str], progress: Progress | None = None) -> Encoded:
        """Return dense (n, d) vectors of n distinct texts. Raises EncoderError for sparse vectors, or if a process fails."""
        order = np.array(sorted(range(len(texts)), key=lambda row: -len(texts[row])), dtype=np.int64)
        parts = max(1, min(len(texts), max(self.processes, -(-len(texts) // _PART))))
        rows = [order[start::parts] for start in range(parts)]  # equal mixes of lengths, for equal times
        jobs = [_Part(share, [texts[row] for row in share.tolist()], self._reads) for share in rows]
        vectors: Any = None
        truncated = np.zeros(len(texts), dtype=bool)
        for indices, encoded, apart_lengths in self._workers.run(encode_part, jobs, progress):
            if issparse(encoded.vectors):
                raise EncoderError(f"{self.spec.name} gives sparse vectors, which one process computes: leave --processes "
                                   "and --devices out")
            if vectors is None:
                vectors = np.zeros((len(texts), encoded.vectors.shape[1]), encoded.vectors.dtype)
            vectors[indices], truncated[indices] = encoded.vectors, encoded.truncated
            if apart_lengths:
                self.keep_lengths_apart()
        return Encoded(vectors, truncated)

    def counts(self, texts: Sequence[str]) -> Counts:
        """Return the counts of one of the workers, as this process does not hold the model."""
        return next(iter(self._workers.run(_counted, [list(texts)])))

    def with_dropout(self, seed: int) -> Encoder:
        """Return the encoder with dropout, computed in this process."""
        return self.base.with_dropout(seed)


def encode_part(encoder: Encoder, part: _Part, progress: Progress) -> tuple[Any, Encoded, bool]:
    """Return a part's rows, their vectors, and whether the encoder batches texts of equal length; run by a worker."""
    for method, arguments in part.reads:
        encoder = getattr(encoder, method)(*arguments)
    encoded = encoder.run(part.texts, progress)
    return part.rows, encoded, encoder.equal_lengths


def _counted(encoder: Encoder, texts: list[str], progress: Progress) -> Counts:
    torch: Any = sys.modules.get("torch")
    return replace(encoder.counts(texts), threads=torch.get_num_threads() if torch and encoder.uses_torch else None)


def check_shareable(encoder: Encoder) -> None:
    """Raise EncoderError for an encoder that compares texts itself, or is fitted on each set, both in one process alone."""
    if encoder.text_similarities:
        raise EncoderError(f"{encoder.spec.name} compares texts itself, in one process: leave --processes and --devices out")
    if encoder.fitted_per_set:
        raise EncoderError(f"{encoder.spec.name} is fitted on each set of texts, by one process: leave --processes and "
                           "--devices out")
