"""Writing files so that nothing half-written is ever left behind."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from stsbench.errors import StsbenchError


@contextmanager
def atomic_write(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a temporary file beside `path`; rename it to `path` when the block ends well, delete it otherwise.

    Raises StsbenchError when the disk is full or the folder cannot be written, naming `path`.
    """
    with _temporary(path, mode) as (temporary, stream):
        yield stream
        _finish(stream)
        temporary.replace(path)


def create_whole(path: Path, content: bytes) -> bool:
    """Create `path` with this content, whole or not at all; returns False and does nothing where it exists.

    Of several concurrent processes one succeeds. Raises StsbenchError as `atomic_write` does.
    """
    with _temporary(path, "wb") as (temporary, stream):
        stream.write(content)
        _finish(stream)
        try:
            os.link(temporary, path)  # unlike a rename it fails where the name is taken
        except FileExistsError:
            return False
    return True


@contextmanager
def _temporary(path: Path, mode: str) -> Iterator[tuple[Path, IO[Any]]]:
    """A new file in the folder of `path`, open; it is deleted at the end, unless it was renamed."""
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        temporary = Path(name)
        umask = os.umask(0)
        os.umask(umask)
        os.fchmod(handle, 0o666 & ~umask)  # mkstemp's 0600 would hide results from colleagues
        with os.fdopen(handle, mode, encoding=None if "b" in mode else "utf-8") as stream:
            yield temporary, stream
    except OSError as error:
        raise StsbenchError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _finish(stream: IO[Any]) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def lock_file(handle: int, wait: bool = False) -> bool | None:
    """Lock an open file or folder against other processes; the system lets go of it when the process ends, however it ends.

    True: it is locked; False: another process has locked it; None: there are no locks here (Windows, some network drives).
    """
    try:
        import fcntl
    except ImportError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def sha256_file(path: Path) -> str:
    """Hex sha256 of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def cache_root() -> Path:
    """The user cache: $STSBENCH_CACHE, else $XDG_CACHE_HOME/stsbench, else ~/.cache/stsbench."""
    if configured := os.environ.get("STSBENCH_CACHE"):
        return Path(configured)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "stsbench"


def machine() -> str:
    """This machine's name in the characters of file names, for what it alone may delete: on some network drives locks hold
    on one machine only."""
    return re.sub(r"[^A-Za-z0-9-]", "-", platform.node())
