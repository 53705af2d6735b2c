"""Atomic writing of files and folders, locks, digests, temporary files, and the user cache."""

from __future__ import annotations

import glob
import hashlib
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, Any

from stsbench.errors import StsbenchError, UsageError

_OF_FILES = (".csv", ".html", ".json", ".jsonl", ".md", ".npy", ".npz", ".parquet", ".pt", ".tex", ".tsv", ".txt")


@contextmanager
def atomic_write(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a temporary file beside `path`; rename it to `path` at the end of the block, or delete it after an error.

    Raises StsbenchError, naming `path`, if the disk is full or the folder cannot be written.
    """
    with _temporary(path, mode) as (temporary, stream):
        yield stream
        _finish(stream)
        temporary.replace(path)


def create_whole(path: Path, content: bytes) -> bool:
    """Create `path` with this content, atomically; return False and do nothing if it exists, else True.

    Of several concurrent processes exactly one succeeds. Raises StsbenchError as `atomic_write` does.
    """
    with _temporary(path, "wb") as (temporary, stream):
        stream.write(content)
        _finish(stream)
        try:
            os.link(temporary, path)  # unlike a rename, a link fails if the name exists
        except FileExistsError:
            return False
    return True


@contextmanager
def _temporary(path: Path, mode: str) -> Iterator[tuple[Path, IO[Any]]]:
    """Yield a new open file in the folder of `path`, deleted at the end unless it was renamed."""
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


_LEFTOVER = re.compile(r"\..+\.(tmp|part)")


def leftover(path: Path) -> bool:
    """Return whether a name is that of a temporary file or folder of this module, which a killed process leaves behind."""
    return _LEFTOVER.fullmatch(path.name) is not None


def clear_leftovers(folder: Path) -> None:
    """Delete what killed processes left in a folder (`leftover`) that no other process writes into."""
    for path in [entry for entry in folder.iterdir() if leftover(entry)] if folder.is_dir() else ():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def as_path(value: str | Path, option: str) -> Path:
    """Return a user's value as a path. Raises StsbenchError, naming the option, if it is neither text nor a path."""
    if not isinstance(value, str | Path):
        raise StsbenchError(f"{option}={value!r}: must be a path, not of type {type(value).__name__}")
    return Path(value)


@contextmanager
def new_folder(folder: Path, replace: bool = False) -> Iterator[Path]:
    """Yield a hidden folder beside `folder`, to be filled; it is renamed to `folder` at the end, or deleted after an error.

    Hidden folders of killed processes are deleted. replace: replaces an existing folder; only one process may do so at a
    time, and all other hidden folders for that name are deleted. A kill between the two renames leaves the old folder under
    a hidden name. Raises StsbenchError if the folder exists and is not empty (without `replace`), and if it cannot be
    written.
    """
    if not replace and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise StsbenchError(f"{folder} is already there: choose another folder")
    building: Path | None = None
    lock: int | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _sweep(folder, replace)
        building = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.", suffix=f".{machine()}.part"))
        building.chmod(0o755)  # mkdtemp's 0700 would hide the model from colleagues
        lock = _lock(building)
        yield building
        for path in building.rglob("*"):
            if path.is_file():
                with path.open("rb") as stream:
                    os.fsync(stream.fileno())
        if replace and folder.exists():
            _swap(building, folder)
        else:
            building.rename(folder)
    except Exception as error:
        if not isinstance(error, OSError) and type(error).__name__ != "SafetensorError":  # raised for a full disk
            raise
        raise StsbenchError(f"cannot write {folder}: {getattr(error, 'strerror', None) or error}") from error
    finally:
        if building is not None:
            shutil.rmtree(building, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _sweep(folder: Path, every: bool) -> None:
    """Delete hidden folders that dead processes of this machine left beside `folder`; `every`: all of this name, too."""
    leftovers = set(folder.parent.glob(f".{glob.escape(folder.name)}.*.part")) if every else set()
    for left in {*leftovers, *folder.parent.glob(f".*.{machine()}.part")}:
        if left not in leftovers and left.name.endswith(".old.part"):
            continue  # a replaced folder, whose replacement may not have been completed
        lock = None if left in leftovers else _lock(left)
        if left in leftovers or lock is not None:
            shutil.rmtree(left, ignore_errors=left not in leftovers)
        if lock is not None:
            os.close(lock)


def _lock(folder: Path) -> int | None:
    """Return the handle of a locked folder; the system releases the lock when the process dies. None if another process has
    locked it, the folder no longer exists, or the file system has no locks."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    if lock_file(handle):
        return handle
    os.close(handle)
    return None


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Wait until no other process is in this block for the same folder, which need not exist."""
    above = next(path for path in folder.resolve().parents if path.is_dir())
    try:
        handle = os.open(above, os.O_RDONLY)
    except OSError:  # Windows opens no folders, and has no such locks
        yield
        return
    try:
        lock_file(handle, wait=True)
        yield
    finally:
        os.close(handle)


def _swap(building: Path, folder: Path) -> None:
    old = building.with_name(building.name.replace(".part", ".old.part"))
    folder.rename(old)
    try:
        building.rename(folder)
    except OSError:
        old.rename(folder)
        raise
    shutil.rmtree(old)


def lock_file(handle: int, wait: bool = False) -> bool | None:
    """Lock an open file or folder against other processes; the system releases the lock when the process ends.

    Return True if it is now locked, False if another process has locked it, None without locks (Windows, some network
    drives).
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
    """Return the sha256 of a file's content, as hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def stamp(path: Path) -> tuple[int, ...] | None:
    """Return numbers that change with a file, even if its modification time is set back; None if it does not exist."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino, state.st_dev


def refuse_file_name(folder: str | Path) -> None:
    """Raise UsageError if --output has the suffix of a file, for commands that write a folder."""
    if (suffix := Path(folder).suffix) in _OF_FILES:
        raise UsageError(f"--output {folder}: a folder is written: name it without {suffix}")


@cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="stsbench-")


def temporary(name: str) -> Path:
    """Return a path of this name in a new, empty folder, which is removed at the end of the process."""
    return Path(tempfile.mkdtemp(dir=_scratch().name)) / name


def is_temporary(path: Path) -> bool:
    """Return whether a path is in a folder that `temporary` made."""
    return _scratch.cache_info().currsize > 0 and path.is_relative_to(_scratch().name)


def cache_root() -> Path:
    """Return the folder of the user cache: $STSBENCH_CACHE, else $XDG_CACHE_HOME/stsbench, else ~/.cache/stsbench."""
    if configured := os.environ.get("STSBENCH_CACHE"):
        return Path(configured)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "stsbench"


def machine() -> str:
    """Return this machine's name, usable in file names. It marks files that only this machine may delete, as on some network
    drives locks hold on one machine only."""
    return re.sub(r"[^A-Za-z0-9-]", "-", platform.node())


def data_root() -> Path:
    """Return the data folder inside the user cache."""
    return cache_root() / "data"


def training_cache() -> Path:
    """Return the default folder of prepared training data."""
    return cache_root() / "training"
