"""One training at a time in a run folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stsbench.errors import StsbenchError


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold FOLDER/.lock; the system lets go of it when the process ends, however it ends.

    Raises StsbenchError where another process holds it. Without locks (Windows) nothing is held.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    path = folder / ".lock"
    try:
        stream = path.open("w")
    except OSError as error:
        raise StsbenchError(f"cannot write {path}: {error.strerror or error}") from error
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StsbenchError(f"{folder}: another process is training into it") from None
        except OSError:  # a file system without locks
            pass
        yield  # the file stays: to delete it would be a race
