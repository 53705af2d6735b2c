"""Processes: signals that end them, their processors, threads and memory, and starting workers."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from stsbench.errors import StsbenchError

_SAME = 1.0  # seconds in which a second signal is not a second request: `timeout` sends two, as does Ctrl-C under torchrun
# Variables that libraries read when they start; tokenizers read RAYON's.
_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
GUARD = 'if __name__ == "__main__":'


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived."""


class StopNow(KeyboardInterrupt):
    """A signal arrived where `StopRequest.at_once` lets it interrupt."""


class StopRequest:
    """A request to stop: SIGINT or SIGTERM, held back until `deliver`, so that work can be finished. asked: its number.

    A second signal, a second later or more, acts at once. Signals are held back in the main thread only, unless they are
    ignored or handled outside Python: in other threads Python sets no handlers, and signals do not interrupt them.
    """

    def __init__(self) -> None:
        self.asked: int | None = None
        self._handlers: dict[int, Any] = {}
        self._when, self._at_once = 0.0, False

    @contextmanager
    def hold(self) -> Iterator[StopRequest]:
        """Hold signals back in the block; a signal that is still held back at the end then acts."""
        self._install()
        try:
            yield self
        finally:
            if self.asked is None:
                self._release()
            else:
                self.deliver()

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Raise StopNow in the block as soon as a signal arrives, for work that need not be finished."""
        self._at_once = True
        try:
            if self.asked is not None:
                raise StopNow
            yield
        finally:
            self._at_once = False

    def deliver(self) -> None:
        """Let the signal act now, by the original handler; return if a user's handler lets the process continue.

        Raises Terminated if only another process got a signal.
        """
        number, self.asked = self.asked, None
        self._release()
        if number is None:
            raise Terminated
        signal.raise_signal(number)
        self._install()

    def _install(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) not in (None, signal.SIG_IGN):
                self._handlers[number] = signal.signal(number, self._take)

    def _release(self) -> None:
        while self._handlers:
            signal.signal(*self._handlers.popitem())

    def _take(self, number: int, frame: Any) -> None:
        if self.asked is None:
            self.asked, self._when = number, time.monotonic()
            if self._at_once:
                raise StopNow
        elif time.monotonic() - self._when > _SAME:
            self.deliver()


def stop_on_sigterm() -> None:
    """Make the first SIGTERM raise Terminated in the main thread. Later ones are ignored: `timeout` sends two, and the
    second would interrupt what the command writes after the first.
    """

    def stop(*_: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Terminated

    if threading.current_thread() is threading.main_thread():  # elsewhere Python sets no handler
        signal.signal(signal.SIGTERM, stop)


def exit_code(error: BaseException) -> int:
    """Return an interruption's exit code, 128 plus the signal's number, as in shells: 143 for SIGTERM, 130 for Ctrl-C."""
    causes = (error, error.__cause__, error.__context__)  # click raises its own error from the one that it catches
    return 128 + (signal.SIGTERM if any(isinstance(cause, Terminated) for cause in causes) else signal.SIGINT)


@contextmanager
def without_main() -> Iterator[None]:
    """Keep processes that start in the block from running the program's main file again, as multiprocessing does: a script
    without a main guard would start all its work anew in each process. What they run must be in modules.

    Raises StsbenchError in such a process: a module that it imported has started the work again.
    """
    import multiprocessing

    if multiprocessing.current_process().daemon:  # Python does not allow daemonic processes to start others
        raise StsbenchError("a process that was started to encode would start others: a file that it imports runs the work "
                            f"again; put that under {GUARD}")
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def cores() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def worker_threads(workers: int) -> int:
    """Return the number of threads for each of `workers` processes: $OMP_NUM_THREADS, else an equal share of processors."""
    configured = os.environ.get("OMP_NUM_THREADS", "")
    return int(configured) if configured.isdecimal() and int(configured) else max(1, cores() // workers)


@contextmanager
def limit_threads(count: int, *, whatever_is_set: bool = False) -> Iterator[None]:
    """Limit processes that start in the block to `count` threads each, and keep them from importing modules from the working
    folder (PYTHONSAFEPATH). Variables that the user has set stay, unless `whatever_is_set`."""
    values = {**dict.fromkeys(_VARIABLES, str(count)), "PYTHONSAFEPATH": "1"}
    before = {name: os.environ.get(name) for name in values if whatever_is_set or name not in os.environ}
    os.environ.update({name: values[name] for name in before})
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


_STATUS, _REFERENCES = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_forgotten = 0  # the process's peak at the last `forget_peak`, bytes


def peak_memory() -> int | None:
    """Return the peak resident memory of this process in bytes; None if the system does not report it (Windows)."""
    largest = _peak_memory()
    return None if largest is None else max(largest, _forgotten)


def release_memory() -> None:
    """Return freed memory to the system, where the C library is glibc.

    Forward passes free blocks of many sizes, between which oneDNN keeps a kernel for each shape, and glibc keeps what is
    free: without this, seven STS tasks end with 170 MiB more, and the process that writes a store grows with its texts.
    """
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def forget_peak() -> None:
    """Reset the peak of resident memory that `peak_since` returns, on Linux."""
    global _forgotten
    _forgotten = peak_memory() or 0
    with suppress(OSError):
        _REFERENCES.write_text("5", "ascii")  # proc(5): resets the peak resident set size


def peak_since() -> int | None:
    """Return the peak resident memory in bytes since `forget_peak`, on Linux, elsewhere since the start of the process."""
    with suppress(OSError, ValueError):
        for line in _STATUS.read_text("ascii", "replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return _peak_memory()


def _peak_memory() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
