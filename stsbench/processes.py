"""Processes: how many processors there are for them, how many threads each has, and how any program starts them."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from stsbench.errors import StsbenchError

# What the libraries read when they start; RAYON: tokenizers.
_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
GUARD = 'if __name__ == "__main__":'


@contextmanager
def without_main() -> Iterator[None]:
    """Processes that start in this block do not run the program's own file again, as multiprocessing has them do: what they
    run is in modules. A script without a main guard would start everything anew in each of them.

    StsbenchError in such a process itself: a module that it imported has started the work again.
    """
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
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def threads_each(count: int, *, whatever_is_set: bool = False) -> Iterator[None]:
    """Processes that start within have `count` threads each, and look for no module in the working folder before they know
    where this one does; a variable that the user has set stays, unless `whatever_is_set`."""
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
