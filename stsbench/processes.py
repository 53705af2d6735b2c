"""Processes: what ends one, its processors, threads and memory, and how any program starts them."""

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

_SAME = 1.0  # seconds in which a further signal is part of the first: `timeout` sends two, and so does Ctrl-C below torchrun
# What the libraries read when they start; RAYON: tokenizers.
_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
GUARD = 'if __name__ == "__main__":'


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived."""


class StopNow(KeyboardInterrupt):
    """A signal arrived where `StopRequest.at_once` lets it interrupt."""


class StopRequest:
    """SIGINT or SIGTERM, held back until `deliver`, so that what is going on comes to an end first: `asked` is its number.

    A second one, a second later or more, acts at once. Held back is what Python handles or leaves to the system, in the main
    thread: elsewhere Python sets no handler, and no signal interrupts what runs there.
    """

    def __init__(self) -> None:
        self.asked: int | None = None
        self._handlers: dict[int, Any] = {}
        self._when, self._at_once = 0.0, False

    @contextmanager
    def hold(self) -> Iterator[StopRequest]:
        """Hold signals back in the block; one that is still held at its end acts then."""
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
        """Raise StopNow in the block as soon as a signal arrives: nothing in it has to come to an end."""
        self._at_once = True
        try:
            if self.asked is not None:
                raise StopNow
            yield
        finally:
            self._at_once = False

    def deliver(self) -> None:
        """Let the signal do what it does without us, now; comes back where a handler of the user's lets the process go on.

        Raises Terminated where only another process was asked to stop.
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
    """From now on the first SIGTERM raises Terminated in the main thread. Later ones are ignored: `timeout` sends two, and
    the second would end what the first made the command write.
    """

    def stop(*_: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Terminated

    if threading.current_thread() is threading.main_thread():  # elsewhere Python sets no handler
        signal.signal(signal.SIGTERM, stop)


def exit_code(error: BaseException) -> int:
    """Return 128 plus the signal's number, as shells have it: 143 for SIGTERM, 130 for Ctrl-C."""
    causes = (error, error.__cause__, error.__context__)  # click wraps what it catches
    return 128 + (signal.SIGTERM if any(isinstance(cause, Terminated) for cause in causes) else signal.SIGINT)


@contextmanager
def without_main() -> Iterator[None]:
    """Let processes that start in this block not run the program's own file again, as multiprocessing has them do: what they
    run is in modules. A script without a main guard would start everything anew in each of them.

    StsbenchError in such a process itself: a module that it imported has started the work again.
    """
    import multiprocessing

    if multiprocessing.current_process().daemon:  # which Python lets start none
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
    """Return threads of each of so many processes: $OMP_NUM_THREADS, else an equal share of the processors."""
    configured = os.environ.get("OMP_NUM_THREADS", "")
    return int(configured) if configured.isdecimal() and int(configured) else max(1, cores() // workers)


@contextmanager
def limit_threads(count: int, *, whatever_is_set: bool = False) -> Iterator[None]:
    """Let processes that start in the block have `count` threads each, and look for no module in the working folder
    before they know where this one does; a variable that the user has set stays, unless `whatever_is_set`."""
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
    """Return the most that this process ever held resident, bytes; None where the system does not tell (Windows)."""
    largest = _peak_memory()
    return None if largest is None else max(largest, _forgotten)


def return_memory() -> None:
    """Give freed memory back to the system: by buffers of ever other sizes the heap of the C library grows, and stays."""
    with suppress(AttributeError, OSError, TypeError):  # macOS and Windows have no such function
        ctypes.CDLL(None).malloc_trim(0)


def forget_peak() -> None:
    """Count the peak of the memory anew, on Linux."""
    global _forgotten
    _forgotten = peak_memory() or 0
    with suppress(OSError):
        _REFERENCES.write_text("5", "ascii")  # proc(5): resets the peak resident set size


def peak_since() -> int | None:
    """Return the most that this process held resident since `forget_peak`, on Linux, else since its start, bytes."""
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
