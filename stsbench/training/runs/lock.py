"""One training at a time in a run folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stsbench.errors import StsbenchError
from stsbench.files import lock_file

LOCK = ".lock"


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Make the folder and hold FOLDER/.lock; the system lets go of it when the process ends, however it ends.

    A folder in which nothing was written is removed again, with those above that were made for it. Raises StsbenchError
    where another process holds the lock. Without locks (Windows) nothing is held.
    """
    path = folder / LOCK
    made = [parent for parent in folder.parents if not parent.exists()]
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
            if [entry.name for entry in folder.iterdir()] == [LOCK]:
                with contextlib.suppress(OSError):
                    path.unlink()
                    for emptied in (folder, *made):
                        emptied.rmdir()


def _lock(handle: int, path: Path) -> None:
    locked = lock_file(handle)
    # A holder removes its file at the end: one that is gone locks nothing, and another process may have made it anew.
    gone = locked and (not path.exists() or not os.path.samestat(os.fstat(handle), path.stat()))
    if locked is False or gone:
        raise StsbenchError(f"{path.parent}: another process is training into it")
