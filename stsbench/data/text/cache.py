"""What the cache of training data is made of: folders that are complete or absent, arrays in files, digests of big files."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.errors import DataError, StsbenchError
from stsbench.files import atomic_write, lock_file, machine, sha256_file
from stsbench.parsing import read_json_object

# a read-only disk or folder, or a file where the folder should be
_NOT_WRITABLE = {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST}
_STAND_INS: dict[Path, tempfile.TemporaryDirectory[str]] = {}
_SEAL = "complete.json"  # name -> bytes of every other file; written last
_SETTLED = 2.0  # seconds: a file changed more recently could change again without a new time stamp
RowNumbers = Sequence[int] | NDArray[np.integer]


def built_folder(root: Path, key: str, build: Callable[[Path], None]) -> Path:
    """Return root/key, filled by `build` unless it is there already; one with a missing or short file is built anew.

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
    """Return `root`, or where nobody may write there a folder that ends with this process."""
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
    """Return whether every file is there with the size it had when the folder was built."""
    try:
        sizes = json.loads((folder / _SEAL).read_text(encoding="utf-8"))
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, AttributeError):
        return False


def _build(target: Path, build: Callable[[Path], None]) -> None:
    unfinished = target.with_name(f"{target.name}{_unfinished_suffix()}")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    try:
        build(unfinished)
        files = sorted(unfinished.iterdir())
        (unfinished / _SEAL).write_text(json.dumps({path.name: path.stat().st_size for path in files}), encoding="utf-8")
        for path in (*files, unfinished / _SEAL):
            with path.open("rb") as stream:
                os.fsync(stream.fileno())  # after a power cut a file could have its size, but not its content
        shutil.rmtree(target, ignore_errors=True)  # damaged, or is_complete would have said so
        unfinished.rename(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _unfinished_suffix() -> str:
    """Return the end of an unfinished folder's name."""
    return f".{machine()}.unfinished"


def _sweep(root: Path) -> None:
    for folder in root.glob(f"*{_unfinished_suffix()}"):
        lock = root / f"{folder.name.removesuffix(_unfinished_suffix())}.lock"
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


def file_digest(path: Path, cache: Path) -> str:
    """Return hex sha256 of the file's bytes, from `cache` while its size, inode and time stamps are those it was computed
    for.

    Raises DataError: not readable, or changed while it was being read.
    """
    try:
        if not path.is_file():
            raise DataError(f"{path} is not a regular file" if path.exists() else f"cannot read {path}: no such file")
        state = _state(path)
        known: dict[str, Any] = {}
        with contextlib.suppress(StsbenchError):  # none yet, or a damaged one
            known = read_json_object(_record(path, cache))
        if known.get("state") == state and isinstance(known.get("sha256"), str):
            return str(known["sha256"])
        now = time.time()
        digest = sha256_file(path)
        if _state(path) != state:
            raise DataError(f"{path} changed while it was being read: run again when it is complete")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    if now - max(state["mtime_ns"], state["ctime_ns"]) / 1e9 > _SETTLED:
        # where the cache cannot be written it is computed anew the next time
        with contextlib.suppress(StsbenchError), atomic_write(_record(path, cache)) as stream:
            json.dump({"path": str(path.resolve()), "state": state, "sha256": digest}, stream)
    return digest


def forget(path: Path, cache: Path) -> None:
    """Drop what is remembered of a file that turned out to hold something else."""
    with contextlib.suppress(OSError):
        _record(path, cache).unlink(missing_ok=True)


def _record(path: Path, cache: Path) -> Path:
    return cache / "digests" / f"{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()}.json"


def _state(path: Path) -> dict[str, int]:
    """Return enough to notice a change: ctime also tells edits that set the modification time back."""
    stat = path.stat()
    return {
        "size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "ctime_ns": stat.st_ctime_ns,
        "inode": stat.st_ino, "device": stat.st_dev,
    }


class ArrayWriter(AbstractContextManager["ArrayWriter"]):
    """One array of a fixed type, appended to NAME."""

    def __init__(self, folder: Path, name: str, dtype: str) -> None:
        self.dtype = np.dtype(dtype)
        self._stream = (folder / name).open("wb")

    def add(self, values: Any) -> None:
        """Append numbers, or the bytes of a whole number of them."""
        self._stream.write(values if isinstance(values, bytes) else np.asarray(values, self.dtype).tobytes())

    def __exit__(self, *error: object) -> None:
        self._stream.close()


class RaggedWriter(AbstractContextManager["RaggedWriter"]):
    """Sequences one after another: NAME.values, and where each starts in NAME.starts (one more than there are sequences)."""

    def __init__(self, folder: Path, name: str, dtype: str) -> None:
        self._values = ArrayWriter(folder, f"{name}.values", dtype)
        self._starts = ArrayWriter(folder, f"{name}.starts", "<i8")
        self._starts.add([0])
        self._end = 0

    def add(self, values: bytes, lengths: Sequence[int]) -> None:
        """Append sequences of these lengths; values: all of them, joined, as bytes of the type."""
        starts = self._end + np.cumsum(np.asarray(lengths, np.int64))
        self._values.add(values)
        self._starts.add(starts)
        self._end = int(starts[-1]) if len(starts) else self._end

    def __exit__(self, *error: object) -> None:
        self._values.__exit__()
        self._starts.__exit__()


class Ragged:
    """What a RaggedWriter wrote. `ragged[i]` is a read-only view of sequence i."""

    def __init__(self, folder: Path, name: str, dtype: str) -> None:
        self.values = mapped(folder / f"{name}.values", dtype)
        self._starts = mapped(folder / f"{name}.starts", "<i8")

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, i: int) -> NDArray[Any]:
        if not 0 <= i < len(self):
            raise IndexError(f"row {i} is out of range: there are {len(self)} rows")
        return self.values[self._starts[i] : self._starts[i + 1]]

    def lengths(self) -> NDArray[np.int64]:
        """Return int64 (n,): the length of every sequence."""
        return np.diff(self._starts)


def checked(rows: RowNumbers, count: int) -> NDArray[np.int64]:
    """Return row numbers as int64 (n,). Raises IndexError for one outside 0 ... count-1: -1 marks an end and is not a
    row."""
    numbers = np.asarray(rows, np.int64)
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < count:
        raise IndexError(f"rows from {numbers.min()} to {numbers.max()} are out of range: there are {count} rows")
    return numbers


def mapped(path: Path, dtype: str) -> NDArray[Any]:
    """Return a file's numbers, read-only, read from disk on access."""
    if not path.stat().st_size:  # an empty file cannot be mapped
        return np.zeros(0, dtype)
    return np.memmap(path, dtype, mode="r").view(np.ndarray)
