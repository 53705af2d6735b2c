"""One function over many items, in as many processes as there are cores."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

from stsbench.processes import threads_each, without_main

Item = TypeVar("Item")
Result = TypeVar("Result")


def across(function: Callable[[Item], Result], items: Sequence[Item], workers: int) -> list[Result]:
    """function(item) of each item, in their order; with one worker, in this process."""
    if workers <= 1:
        return [function(item) for item in items]
    # A new interpreter each: a copy of this one could have been made while a library's thread held a lock. One thread each:
    # together they use all cores.
    spawn = multiprocessing.get_context("spawn")
    with threads_each(1, whatever_is_set=True), without_main(), ProcessPoolExecutor(workers, spawn) as pool:
        return list(pool.map(function, items))
