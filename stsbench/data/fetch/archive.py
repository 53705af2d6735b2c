"""Unpacking an untrusted tar file: only regular files are created, under names of our own, within bounds of memory."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any, cast

from stsbench.errors import DataError

MAX_BYTES = 1 << 30
MAX_MEMBERS = 20_000
_BLOCK = 128 << 10  # bytes copied at a time
_LONGEST_READ = 2 * _BLOCK  # tarfile reads a header as a whole: a longer one is never a file's name
_MOST_HEADERS = 64 << 20  # bytes of all headers together, which tarfile keeps in memory
_OPENERS: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}


def extract(archive: Path, into: Path, *, max_bytes: int = MAX_BYTES, max_members: int = MAX_MEMBERS) -> dict[str, Path]:
    """Unpack the regular files of a tar file, compressed or not, into the empty folder `into`: name -> where it is now.

    The files are numbered there: an archive's own folders are never made. Raises DataError at the first absolute or `..`
    path, link, device or repeated name, when more than `max_bytes` or `max_members` would come out, for headers beyond any
    name, and for a truncated archive. The caller throws `into` away then.
    """
    files: dict[str, Path] = {}
    members, total = 0, 0
    try:
        with _opened(archive) as (tar, stream):
            while (member := tar.next()) is not None:
                tar.members = []  # type: ignore[attr-defined]  # or tarfile keeps every one of them
                members += 1
                total += member.size
                if members > max_members or total > max_bytes or member.size < 0:
                    raise DataError(f"{archive} holds more than {max_members} members or {max_bytes} bytes: refused")
                if stream.position - total > _MOST_HEADERS:
                    raise DataError(f"{archive}: its headers alone take more than {_MOST_HEADERS} bytes: refused")
                name = _safe_name(archive, member)
                if not name or member.isdir():
                    continue
                if name in files:
                    raise DataError(f"{archive} holds {name!r} twice: refused")
                files[name] = into / str(len(files))
                _write(tar, member, files[name], archive)
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, UnicodeError) as error:
        raise DataError(f"{archive} is truncated or not a tar file: {error}") from error
    except OSError as error:
        raise DataError(f"cannot unpack {archive}: {error.strerror or error}") from error
    if not files:
        raise DataError(f"{archive} contains no files")
    return files


class _Bounded:
    """The bytes of a tar file for tarfile, which reads a header of any length at once: too long a read is refused."""

    def __init__(self, stream: IO[bytes], archive: Path) -> None:
        self._stream, self._archive, self.position = stream, archive, 0

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _LONGEST_READ:
            raise DataError(f"{self._archive}: a header of {size:,} bytes: refused")
        block = self._stream.read(size)
        self.position += len(block)
        return block

    def seek(self, offset: int, whence: int = 0) -> int:
        self.position = self._stream.seek(offset, whence)
        return self.position

    def tell(self) -> int:
        return self.position


@contextmanager
def _opened(archive: Path) -> Iterator[tuple[tarfile.TarFile, _Bounded]]:
    with ExitStack() as stack:
        file = stack.enter_context(archive.open("rb"))
        start = file.read(max(map(len, _OPENERS)))
        file.seek(0)
        opener = next((opener for magic, opener in _OPENERS.items() if start.startswith(magic)), None)
        stream = _Bounded(stack.enter_context(opener(file)) if opener else file, archive)
        yield stack.enter_context(tarfile.open(fileobj=cast(IO[bytes], stream), mode="r:")), stream


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
    with source, target.open("xb") as stream:
        written = _copy(source, stream)
    if written != member.size:
        raise DataError(f"{archive} is truncated in {member.name!r}: {written} of {member.size} bytes")


def _copy(source: IO[bytes], stream: IO[bytes]) -> int:
    written = 0
    while block := source.read(_BLOCK):
        stream.write(block)
        written += len(block)
    return written
