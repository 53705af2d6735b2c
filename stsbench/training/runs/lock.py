"""One training at a time in a run folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stsbench.errors import StsbenchError

LOCK = ".lock"


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Make the folder and hold FOLDER/.lock; the system lets go of it when the process ends, however it ends.

    A folder in which nothing was written is removed again, with those above that were made for it. Raises StsbenchError
    where another process holds the lock. Without locks (Windows) nothing is held.
    """
    path = folder / LOCK
    made = [each for each in folder.parents if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stream = path.open("a")
    except OSError as error:
        raise StsbenchError(f"cannot write {path}: {error.strerror or error}") from error
    with stream:
        _lock(stream.fileno(), path)
        try:
            yield
        finally:
            if [each.name for each in folder.iterdir()] == [LOCK]:
                with contextlib.suppress(OSError):
                    path.unlink()
                    for each in (folder, *made):
                        each.rmdir()


def _lock(handle: int, path: Path) -> None:
    busy = StsbenchError(f"{path.parent}: another process is training into it")
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise busy from None
    except OSError:  # a file system without locks
        return
    if not path.exists() or not os.path.samestat(os.fstat(handle), path.stat()):
        raise busy  # its last holder has just removed it, and somebody else may hold a new one
