"""Unpacking an untrusted tar file: nothing is written outside the target folder, and only regular files are created."""

from __future__ import annotations

import tarfile
import zlib
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

from stsbench.errors import DataError

MAX_BYTES = 1 << 30
MAX_MEMBERS = 20_000


def extract(archive: Path, into: Path, *, max_bytes: int = MAX_BYTES, max_members: int = MAX_MEMBERS) -> list[str]:
    """Unpack the regular files of a .tar or .tar.gz below the empty folder `into`; returns their names.

    Raises DataError at the first absolute or `..` path, link, device or repeated name, when more than `max_bytes` or
    `max_members` would come out, and for a truncated archive. The caller throws `into` away then.
    """
    names: list[str] = []
    members, total = 0, 0
    try:
        with tarfile.open(archive, "r:*") as tar:
            for member in tar:
                members += 1
                total += member.size
                if members > max_members or total > max_bytes:
                    raise DataError(f"{archive} holds more than {max_members} members or {max_bytes} bytes: refused")
                name = _safe_name(archive, member)
                if not name or member.isdir():
                    continue
                _write(tar, member, into / name, archive)
                names.append(name)
    except (tarfile.TarError, EOFError, zlib.error, UnicodeError) as error:
        raise DataError(f"{archive} is truncated or not a tar file: {error}") from error
    except OSError as error:
        raise DataError(f"cannot unpack {archive}: {error.strerror or error}") from error
    if not names:
        raise DataError(f"{archive} contains no files")
    return names


def _safe_name(archive: Path, member: tarfile.TarInfo) -> str:
    path = PurePosixPath(member.name)
    windows = PureWindowsPath(member.name)  # `C:\x` and `a\..\b` are harmless names here but not everywhere
    if path.is_absolute() or windows.drive or windows.root or ".." in (*path.parts, *windows.parts):
        raise DataError(f"{archive}: member {member.name!r} would be written outside the folder: refused")
    if not (member.isreg() or member.isdir()) or member.issparse():
        raise DataError(f"{archive}: member {member.name!r} is a link or a special file: refused")
    return "" if path == PurePosixPath(".") else str(path)


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path, archive: Path) -> None:
    source = tar.extractfile(member)
    if source is None:
        raise DataError(f"{archive}: member {member.name!r} cannot be read")
    target.parent.mkdir(parents=True, exist_ok=True)
    with source, target.open("xb") as stream:  # "x": a name that comes twice is an error, not a silent replacement
        written = _copy(source, stream)
    if written != member.size:
        raise DataError(f"{archive} is truncated in {member.name!r}: {written} of {member.size} bytes")


def _copy(source: IO[bytes], stream: IO[bytes]) -> int:
    written = 0
    while block := source.read(1 << 20):
        stream.write(block)
        written += len(block)
    return written
