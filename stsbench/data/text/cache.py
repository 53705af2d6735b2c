"""Parts of the cache of training data: folders built completely or not at all, arrays in files, digests of large files."""

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

# Errors of a read-only disk or folder, or of a file in place of the folder.
_NOT_WRITABLE = {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST}
_STAND_INS: dict[Path, tempfile.TemporaryDirectory[str]] = {}
_SEAL = "complete.json"  # holds the sizes in bytes of all other files; written last
_SETTLED = 2.0  # seconds; a file changed more recently could change again without a new time stamp
RowNumbers = Sequence[int] | NDArray[np.integer]


def built_folder(root: Path, key: str, build: Callable[[Path], None]) -> Path:
    """Return the folder root/key, filled by `build` unless it exists and all its files have their full size.

    `build` fills a folder under another name, which is renamed at the end, so that an interruption leaves nothing at
    root/key; the next process that builds below `root` deletes the remains of killed ones. Where `root` cannot be written,
    a temporary folder of this process takes its place, with a warning. Raises DataError, one line, for a full disk and for
    a folder that cannot be locked.
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
    """Return `root`, or a temporary folder, removed when this process ends, where `root` is not writable."""
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
    """Return whether every file exists with the size that it had when the folder was built."""
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
                os.fsync(stream.fileno())  # else a power cut could leave a file with its size, but without its content
        shutil.rmtree(target, ignore_errors=True)  # if it exists, it is damaged
        unfinished.rename(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _unfinished_suffix() -> str:
    """Return the suffix of the names of unfinished folders of this machine."""
    return f".{machine()}.unfinished"


def _sweep(root: Path) -> None:
    for folder in root.glob(f"*{_unfinished_suffix()}"):
        lock = root / f"{folder.name.removesuffix(_unfinished_suffix())}.lock"
        try:
            with _locked(lock, wait=False):
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue  # another process is building it, or owns it


@contextmanager
def _locked(path: Path, wait: bool = True) -> Iterator[None]:
    """Hold the lock `path`, which the system releases when the process dies. Deleting the file would be a race: it stays."""
    with path.open("a") as stream:
        if not lock_file(stream.fileno(), wait):
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
        yield


def file_digest(path: Path, cache: Path) -> str:
    """Return the hex sha256 of a file, from `cache` if size, inode and time stamps are unchanged since it was computed.

    Raises DataError for a file that cannot be read or that changes while it is being read.
    """
    try:
        if not path.is_file():
            raise DataError(f"{path} is not a regular file" if path.exists() else f"cannot read {path}: no such file")
        state = _state(path)
        known: dict[str, Any] = {}
        with contextlib.suppress(StsbenchError):  # no record yet, or a damaged one
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
        # Where the cache cannot be written, the digest is computed again next time.
        with contextlib.suppress(StsbenchError), atomic_write(_record(path, cache)) as stream:
            json.dump({"path": str(path.resolve()), "state": state, "sha256": digest}, stream)
    return digest


def forget(path: Path, cache: Path) -> None:
    """Delete the cached digest of a file that turned out to have another one."""
    with contextlib.suppress(OSError):
        _record(path, cache).unlink(missing_ok=True)


def _record(path: Path, cache: Path) -> Path:
    return cache / "digests" / f"{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()}.json"


def _state(path: Path) -> dict[str, int]:
    """Return facts that reveal a change of a file; ctime also reveals edits that set the modification time back."""
    stat = path.stat()
    return {
        "size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "ctime_ns": stat.st_ctime_ns,
        "inode": stat.st_ino, "device": stat.st_dev,
    }


class ArrayWriter(AbstractContextManager["ArrayWriter"]):
    """Writer of one array of a fixed type to the file NAME, part by part."""

    def __init__(self, folder: Path, name: str, dtype: str) -> None:
        self.dtype = np.dtype(dtype)
        self._stream = (folder / name).open("wb")

    def add(self, values: Any) -> None:
        """Append numbers, or bytes that hold numbers of the array's type."""
        self._stream.write(values if isinstance(values, bytes) else np.asarray(values, self.dtype).tobytes())

    def __exit__(self, *error: object) -> None:
        self._stream.close()


class RaggedWriter(AbstractContextManager["RaggedWriter"]):
    """Writer of sequences of any length: NAME.values joins them, NAME.starts holds their n + 1 boundaries."""

    def __init__(self, folder: Path, name: str, dtype: str) -> None:
        self._values = ArrayWriter(folder, f"{name}.values", dtype)
        self._starts = ArrayWriter(folder, f"{name}.starts", "<i8")
        self._starts.add([0])
        self._end = 0

    def add(self, values: bytes, lengths: Sequence[int]) -> None:
        """Append sequences of these lengths; values: the joined sequences as bytes of the array's type."""
        starts = self._end + np.cumsum(np.asarray(lengths, np.int64))
        self._values.add(values)
        self._starts.add(starts)
        self._end = int(starts[-1]) if len(starts) else self._end

    def __exit__(self, *error: object) -> None:
        self._values.__exit__()
        self._starts.__exit__()


class Ragged:
    """Reader of the sequences of a RaggedWriter. `ragged[i]` is a read-only view of sequence i."""

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
        """Return int64 (n,), the length of every sequence."""
        return np.diff(self._starts)


def checked(rows: RowNumbers, count: int) -> NDArray[np.int64]:
    """Return row numbers as int64 (n,). Raises IndexError for a number outside 0 ... count-1, as -1 marks a document's end
    and is not a row."""
    numbers = np.asarray(rows, np.int64)
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < count:
        raise IndexError(f"rows from {numbers.min()} to {numbers.max()} are out of range: there are {count} rows")
    return numbers


def mapped(path: Path, dtype: str) -> NDArray[Any]:
    """Return a file's numbers as a read-only memory map."""
    if not path.stat().st_size:  # an empty file cannot be mapped
        return np.zeros(0, dtype)
    return np.memmap(path, dtype, mode="r").view(np.ndarray)
