"""Folders of a cache that are complete or absent, and built by one process while others wait."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from stsbench.errors import DataError
from stsbench.files import lock_file, machine

# a read-only disk or folder, or a file where the folder should be
_NOT_WRITABLE = {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST}
_STAND_INS: dict[Path, tempfile.TemporaryDirectory[str]] = {}
_SEAL = "complete.json"  # name -> bytes of every other file; written last


def built_folder(root: Path, key: str, build: Callable[[Path], None]) -> Path:
    """root/key, filled by `build` unless it is there already; one with a missing or short file is built anew.

    `build` fills a folder under another name, renamed when it is done, so an interruption leaves nothing under the real one;
    what a killed process left is deleted by the next that builds below `root`. Where `root` cannot be written, a temporary
    folder of this process takes its place, and a warning says so. Raises DataError, one line, for a full disk, and for a
    folder that cannot be locked.
    """
    target = root / key
    if is_complete(target):
        return target
    root = _writable(root)
    target = root / key
    try:
        root.mkdir(parents=True, exist_ok=True)
        _sweep(root)
        with _locked(root / f"{key}.lock"):
            if not is_complete(target):  # another process may have built it meanwhile
                _build(target, build)
    except OSError as error:
        raise DataError(f"cannot build the cache of training data in {root}: {error.strerror or error}; "
                        "set STSBENCH_CACHE to a local folder with space") from error
    return target


def _writable(root: Path) -> Path:
    """`root`, or where nobody may write there a folder that ends with this process."""
    if root in _STAND_INS:
        return Path(_STAND_INS[root].name)
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root):
            return root
    except OSError as error:
        if error.errno not in _NOT_WRITABLE:
            return root
        _STAND_INS[root] = tempfile.TemporaryDirectory(prefix="stsbench-cache-")
        reason = error.strerror or error
        warnings.warn(
            f"the cache of training data {root} cannot be written ({reason}): what is read now is not kept for later runs",
            stacklevel=3,
        )
        return Path(_STAND_INS[root].name)


def is_complete(folder: Path) -> bool:
    """Whether every file is there with the size it had when the folder was built."""
    try:
        sizes = json.loads((folder / _SEAL).read_text(encoding="utf-8"))
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, AttributeError):
        return False


def _build(target: Path, build: Callable[[Path], None]) -> None:
    unfinished = target.with_name(f"{target.name}{_unfinished()}")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    try:
        build(unfinished)
        _seal(unfinished)
        shutil.rmtree(target, ignore_errors=True)  # damaged, or is_complete would have said so
        unfinished.rename(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _seal(folder: Path) -> None:
    files = sorted(folder.iterdir())
    (folder / _SEAL).write_text(json.dumps({path.name: path.stat().st_size for path in files}), encoding="utf-8")
    for path in (*files, folder / _SEAL):
        with path.open("rb") as stream:
            os.fsync(stream.fileno())  # after a power cut a file could have its size, but not its content


def _unfinished() -> str:
    """The end of an unfinished folder's name."""
    return f".{machine()}.unfinished"


def _sweep(root: Path) -> None:
    for folder in root.glob(f"*{_unfinished()}"):
        lock = root / f"{folder.name.removesuffix(_unfinished())}.lock"
        try:
            with _locked(lock, wait=False):
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue  # being built at this moment, or not ours to delete


@contextmanager
def _locked(path: Path, wait: bool = True) -> Iterator[None]:
    """Hold the lock `path`, which the system releases when a process dies. The file stays: to delete it would be a race."""
    with path.open("a") as stream:
        if not lock_file(stream.fileno(), wait):
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
        yield
