"""Installation of files in a data folder: unpacking archives, comparison with the catalog and lock.json, and bundles.

Archives are not trusted: only regular files are created, under names that do not come from the archive, in bounded memory.
lock.json keeps digests of files that are not in the catalog, written at their first fetch ("trust on first use").
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import shutil
import tarfile
import tempfile
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any, cast

from stsbench.data.sets.catalog import catalog, copied_files, entries, is_copied, path_in
from stsbench.errors import DataError
from stsbench.files import atomic_write, lock_file, sha256_file
from stsbench.parsing import MOST_JSON, parse_json, read_text

MAX_BYTES = 1 << 30
MAX_MEMBERS = 20_000
_BLOCK = 128 << 10  # bytes copied at a time
_LONGEST_READ = 2 * _BLOCK  # tarfile reads a header at once, and no header with a file's name is longer
_MOST_HEADERS = 64 << 20  # bytes of all headers together, which tarfile keeps in memory
_OPENERS: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
NAME = "lock.json"
_WORKPLACE = ".unpack-"
MANIFEST = "manifest.json"


def extract(archive: Path, into: Path, *, max_bytes: int = MAX_BYTES, max_members: int = MAX_MEMBERS) -> dict[str, Path]:
    """Unpack the regular files of a tar file, compressed or not, into the empty folder `into`; return name -> its path now.

    The unpacked files have numbers as names, and the archive's folders are not created. Raises DataError for an absolute
    or `..` path, a link, a device or a repeated name, for more than `max_bytes` or `max_members`, for headers that are too
    long, and for a truncated archive; the caller deletes `into` in any case.
    """
    files: dict[str, Path] = {}
    members, total = 0, 0
    try:
        with _opened(archive) as (tar, stream):
            while (member := tar.next()) is not None:
                tar.members = []  # type: ignore[attr-defined]  # else tarfile keeps all members in memory
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
    """Stream of a tar file that refuses long reads, as tarfile reads a header of any length at once."""

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
    windows = PureWindowsPath(member.name)  # `C:\x` and `a\..\b` are harmless on Unix, but not on Windows
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
        shutil.copyfileobj(source, stream, _BLOCK)
        written = stream.tell()
    if written != member.size:
        raise DataError(f"{archive} is truncated in {member.name!r}: {written} of {member.size} bytes")


def read_lock(root: Path) -> dict[str, str]:
    """Return path below `root` -> sha256 from lock.json, {} without that file. Raises DataError where it is damaged."""
    path = root / NAME
    try:
        digests = parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path}: {error}; delete it to trust the files as they are now") from error
    if not isinstance(digests, dict) or not all(isinstance(value, str) for value in digests.values()):
        raise DataError(f"{path}: expected an object of file names and sha256 digests")
    return digests


def remember(root: Path, digests: dict[str, str]) -> None:
    """Add digests of newly fetched files to lock.json; a digest that it holds already is never overwritten."""
    locked = read_lock(root)
    if digests.keys() - locked.keys():
        with atomic_write(root / NAME) as stream:
            json.dump(dict(sorted((digests | locked).items())), stream, indent=1)
            stream.write("\n")


@dataclass(frozen=True)
class FetchReport:
    """Result of an installation. installed: names of files; changed: those that differ from the catalog or lock.json;
    missing: files of the catalog that were not in the source; note: what to do next."""

    root: Path
    installed: tuple[str, ...]
    changed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    note: str = ""


@contextmanager
def alone(root: Path) -> Iterator[None]:
    """Hold the lock of `root` in the block, so that one process at a time fetches; others wait and then find the files."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        stream = (root / ".fetch.lock").open("w")
    except OSError as error:
        raise DataError(f"cannot write to {root}: {error.strerror or error}") from error
    with stream:
        lock_file(stream.fileno(), wait=True)  # where files cannot be locked, two fetches at once are not prevented
        yield


@contextmanager
def workplace(root: Path) -> Iterator[Path]:
    """Yield a temporary folder inside `root` (so that moving files out of it is a rename), removed after the block. Call it
    within `alone` only, as it deletes the folders of killed fetches."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        for left in root.glob(f"{_WORKPLACE}*"):  # remains of killed fetches
            shutil.rmtree(left, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(dir=root, prefix=_WORKPLACE))
    except OSError as error:
        raise DataError(f"cannot write to {root}: {error.strerror or error}") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def expected(root: Path) -> dict[str, str]:
    """Return file that a data folder may hold -> its sha256 from the catalog or lock.json, "" if it was never fetched."""
    locked = read_lock(root)
    raw = {name: digest or locked.get(name, "") for item in entries("raw") for name, digest in item.files.items()}
    others = [*(text.path for text in catalog().training.values()), *copied_files(root)]
    return catalog().files | raw | {name: locked.get(name, "") for name in others}


def install(files: Mapping[str, Path], root: Path, *, source: str, strict: bool = False) -> FetchReport:
    """Move the known files among `files` (name in the archive -> unpacked path) into `root` and ignore the others.

    SentEval archives begin at `STS/…`, at `downstream/STS/…` or higher: the leading folder is found by the known names.
    Raises DataError, leaving `root` untouched, without known files, and with `strict` if a file differs or is missing.
    """
    known = {name: "" for name in files if is_copied(name)} | expected(root)
    known_files = _known_names(files, known)
    if not known_files:
        raise DataError(f"{source} contains none of the benchmark's files")
    digests = {name: sha256_file(files[inside]) for name, inside in known_files.items()}
    changed = tuple(name for name, digest in digests.items() if known[name] not in ("", digest))
    missing = tuple(name for name in catalog().files if name not in known_files)
    if strict and (changed or missing):
        fault = f"{changed[0]} differs from the catalog" if changed else f"{missing[0]} is missing"
        raise DataError(f"{source}: {fault} ({len(changed)} changed, {len(missing)} missing; refused: --strict)")
    try:
        for name, inside in known_files.items():
            target = root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            files[inside].replace(target)
    except OSError as error:
        raise DataError(f"cannot write to {root}: {error.strerror or error}") from error
    remember(root, {name: digest for name, digest in digests.items() if not known[name]})
    return FetchReport(root, tuple(known_files), changed, missing)


def _known_names(names: Collection[str], files: dict[str, str]) -> dict[str, str]:
    """Return catalog name -> name inside the archive, for the leading folder that contains most known files."""
    begins: Counter[str] = Counter()
    for name in names:
        parts = name.split("/")
        for cut in range(len(parts)):
            if f"downstream/{'/'.join(parts[cut:])}" in files or "/".join(parts[cut:]) in files:
                begins["".join(f"{part}/" for part in parts[:cut])] += 1
    best: dict[str, str] = {}
    for begin, _ in begins.most_common(2):  # both `x/` and `x/downstream/` fit the same files
        hits = {}
        for name in files:
            for inside in (begin + name, begin + name.removeprefix("downstream/")):
                if inside in names:
                    hits[name] = inside
        best = max(best, hits, key=len)
    return best


def write_bundle(root: Path, target: Path) -> list[str]:
    """Pack every known file below `root`, with a manifest of sha256 digests, into `target`; return their names.

    A target that ends in `.gz` or `.tgz` is compressed. Equal files give equal bytes. Raises DataError where `root` contains
    no known file.
    """
    files = {name: path for name in sorted(expected(root)) if (path := path_in(root, name)).is_file()}
    if not files:
        raise DataError(f"{root} contains none of the benchmark's files: nothing to bundle")
    digests = {name: sha256_file(path) for name, path in files.items()}
    manifest = json.dumps({"stsbench_bundle": 1, "files": digests}, indent=1).encode()
    members = chain([(MANIFEST, manifest)], ((name, path.read_bytes()) for name, path in files.items()))
    with ExitStack() as stack:
        stream: Any = stack.enter_context(atomic_write(target, "wb"))
        if target.suffix in (".gz", ".tgz"):
            stream = stack.enter_context(gzip.GzipFile(filename="", fileobj=stream, mode="wb", mtime=0))
        tar = stack.enter_context(tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT))
        for name, content in members:
            member = tarfile.TarInfo(name)  # time 0, owner 0: the bundle does not depend on the machine
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return list(files)


def install_bundle(bundle: Path, root: Path, *, strict: bool = False) -> FetchReport:
    """Unpack a bundle into the data folder `root`, through the same checks as a download.

    Raises DataError for a file that is not a bundle or is damaged (a digest differs from the manifest) and, with `strict`,
    where a file differs from the catalog.
    """
    if not bundle.is_file():
        raise DataError(f"{bundle} does not exist")
    with alone(root), workplace(root) as folder:
        files = extract(bundle, folder)
        for name, digest in _manifest(bundle, files).items():
            if name not in files or sha256_file(files[name]) != digest:
                raise DataError(f"{bundle} is damaged: {name} is not the file its manifest lists")
        del files[MANIFEST]
        return install(files, root, source=str(bundle), strict=strict)


def _manifest(bundle: Path, files: Mapping[str, Path]) -> dict[str, str]:
    try:
        manifest = parse_json(read_text(files[MANIFEST], MOST_JSON))
        if manifest["stsbench_bundle"] != 1:
            raise DataError(f"{bundle} was written by another version of stsbench (format {manifest['stsbench_bundle']})")
        return dict(manifest["files"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{bundle} is not a stsbench bundle: it has no readable {MANIFEST}") from error
