"""Starting processes from any program, one without a main guard among them."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from stsbench.errors import StsbenchError

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
