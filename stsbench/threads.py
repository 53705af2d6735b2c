"""How many processors there are for this process, and the threads and places of modules of those that it starts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

# What the libraries read when they start; RAYON: tokenizers.
_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")


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
