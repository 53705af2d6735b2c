"""The sha256 of a big file, computed once and remembered for as long as the file is untouched."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from pathlib import Path

from stsbench.errors import DataError, StsbenchError
from stsbench.files import atomic_write, sha256_file

_SETTLED = 2.0  # seconds: a file changed more recently could change again without a new time stamp


def file_digest(path: Path, cache: Path) -> str:
    """Hex sha256 of the file's bytes, from `cache` while its size, inode and time stamps are those it was computed for.

    Raises DataError: not readable, or changed while it was being read.
    """
    try:
        if not path.is_file():
            raise DataError(f"{path} is not a regular file" if path.exists() else f"cannot read {path}: no such file")
        state = _state(path)
        known = _known(_record(path, cache))
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
    """Enough to notice a change: ctime also tells edits that set the modification time back."""
    stat = path.stat()
    return {
        "size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "ctime_ns": stat.st_ctime_ns,
        "inode": stat.st_ino, "device": stat.st_dev,
    }


def _known(record: Path) -> dict[str, object]:
    try:
        state = json.loads(record.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}
