"""One function over many items, in as many processes as there are cores."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
Item = TypeVar("Item")
Result = TypeVar("Result")


def across(function: Callable[[Item], Result], items: Sequence[Item], workers: int) -> list[Result]:
    """function(item) of each item, in their order; with one worker, in this process."""
    if workers <= 1:
        return [function(item) for item in items]
    # A new interpreter each: a copy of this one could have been made while a library's thread held a lock.
    with _one_thread(), ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(function, items))


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _one_thread() -> Iterator[None]:
    """Processes that start within have one thread each for linear algebra: together they use all cores."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
