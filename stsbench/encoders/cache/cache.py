"""The cache of embeddings on disk: FOLDER/<key of an encoder>/<shard>; within a shard a text's sha256 is the key. The key
of an encoder is made by `encode.cache_key`.

Every `put` writes one new file under a name nobody else uses, and no file is ever changed, so any number of processes
can share a folder without locks. What is lost (evicted, damaged, never written) is computed again.

A file of embeddings, a shard, is written once:

    bytes 0-7     magic, with the layout's version
    8-23          n and d, unsigned 64-bit
    24-55         sha256 over bytes 8-23 and the index
    56-           index: n x 32 sha256 of each text | n x 8 check of each vector | n x 1 truncated flag
    then          zeros up to a multiple of 64, and the n x d vectors, float32

All numbers little-endian. The index has a digest of its own and each vector its check, so that reading one row out of a
million neither trusts the file nor reads all of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import struct
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.encoders.base import Encoded
from stsbench.encoders.options import CacheOptions
from stsbench.errors import StsbenchError
from stsbench.files import atomic_write, cache_root

MAGIC = b"STSEMB1\n"
_HEADER = struct.Struct("<8s16s32s")
_SIZES = struct.Struct("<QQ")
_PER_TEXT = 32 + 8 + 1
_KEY = re.compile(r"[0-9a-f]{64}")
_SUFFIX = ".shard"
_ABOUT = "spec.json"
_SLACK = 0.05  # share of the limit that is written, or made free, between two scans of the folder
_STALE_SECONDS = 24 * 3600  # a temporary file this old belongs to a process that was killed


class DamagedShardError(Exception):
    """Raised for a shard that is cut short, altered, or of another layout."""


def text_digest(text: str) -> bytes:
    """Return the sha256 of a text, 32 bytes: its key in a shard."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _check(vector: memoryview) -> bytes:
    return hashlib.sha256(vector).digest()[:8]


def _start(n: int) -> int:
    """Return the offset in bytes of the vectors in a shard of n texts."""
    return -(-(_HEADER.size + n * _PER_TEXT) // 64) * 64


def shard_bytes(n: int, d: int) -> int:
    """Return the size in bytes of a shard of n vectors of d numbers."""
    return _start(n) + 4 * n * d


def write_shard(
    path: Path, digests: Sequence[bytes], vectors: NDArray[np.float32], truncated: NDArray[np.bool_]
) -> None:
    """Write n texts' vectors (n, d) to `path`, all or nothing. Raises StsbenchError when it cannot be written."""
    n, d = vectors.shape
    data = np.ascontiguousarray(vectors, dtype="<f4")
    rows = data.data.cast("B")
    checks = b"".join(_check(rows[i : i + 4 * d]) for i in range(0, 4 * n * d, 4 * d))
    sizes = _SIZES.pack(n, d)
    index = b"".join(digests) + checks + np.asarray(truncated, dtype=np.uint8).tobytes()
    with atomic_write(path, "wb") as stream:
        stream.write(_HEADER.pack(MAGIC, sizes, hashlib.sha256(sizes + index).digest()))
        stream.write(index)
        stream.write(bytes(_start(n) - _HEADER.size - len(index)))
        stream.write(rows)


def _shape(header: bytes, size: int) -> tuple[int, int]:
    if len(header) < _HEADER.size or not header.startswith(MAGIC):
        raise DamagedShardError("no embedding shard of this version")
    n, d = _SIZES.unpack(_HEADER.unpack(header)[1])
    if n < 1 or d < 1 or shard_bytes(n, d) != size:  # checked before n decides how much is read
        raise DamagedShardError(f"{size} bytes, where {n} vectors of {d} numbers take {shard_bytes(n, d)}")
    return n, d


def read_rows(
    path: Path, wanted: Mapping[bytes, int]
) -> tuple[NDArray[np.intp], NDArray[np.float32], NDArray[np.bool_]]:
    """Return positions (k,), vectors (k, d) and whether a text was cut (k,) of the rows whose text digest is in `wanted`
    (digest -> position), in the file's order.

    Raises DamagedShardError when the index or any of those rows is not what was written, OSError when the file cannot
    be read (another process may just have deleted it).
    """
    with path.open("rb") as stream:
        header = stream.read(_HEADER.size)
        n, d = _shape(header, stream.seek(0, 2))
        stream.seek(_HEADER.size)
        index = stream.read(n * _PER_TEXT)
        _, sizes, digest = _HEADER.unpack(header)
        if hashlib.sha256(sizes + index).digest() != digest:
            raise DamagedShardError("its index does not match its checksum")
        hits = [
            (row, position) for row in range(n) if (position := wanted.get(index[32 * row : 32 * row + 32])) is not None
        ]
        rows = np.array([row for row, _ in hits], dtype=np.intp)
        positions = np.array([position for _, position in hits], dtype=np.intp)
        if not hits:
            return positions, np.zeros((0, d), np.float32), np.zeros(0, dtype=bool)
        stored = np.memmap(stream, dtype="<f4", mode="r", offset=_start(n), shape=(n, d))
        vectors = np.ascontiguousarray(stored[rows], dtype=np.float32)
        del stored
    flat = np.ascontiguousarray(vectors, dtype="<f4").data.cast("B")
    for i, row in enumerate(rows.tolist()):
        if _check(flat[4 * d * i : 4 * d * (i + 1)]) != index[32 * n + 8 * row : 32 * n + 8 * row + 8]:
            raise DamagedShardError(f"vector {row} does not match its checksum")
    flags = np.frombuffer(index, dtype=np.uint8, offset=40 * n)
    return positions, vectors, flags[rows] != 0


@dataclass(frozen=True)
class CacheHits:
    """Texts found. mask: bool (n,), which; vectors: float32 (n, d), zeros elsewhere, None if none; truncated: (n,)."""

    mask: NDArray[np.bool_]
    vectors: NDArray[np.float32] | None
    truncated: NDArray[np.bool_]


@dataclass(frozen=True)
class CacheNote:
    """A note stored beside an encoder's embeddings: its spec, the versions of its libraries, and how it was batched."""

    spec: Mapping[str, Any] = field(default_factory=dict)
    libraries: Mapping[str, str] = field(default_factory=dict)
    equal_lengths: bool = False


@dataclass(frozen=True)
class CachedEncoder:
    """One encoder's entry in the cache: its note, number of texts, bytes, and time of last use (Unix time)."""

    key: str
    about: CacheNote  # empty where there is none, or where it cannot be read
    texts: int
    bytes: int
    used: float


class EmbeddingCache:
    """A folder of embeddings, of at most `max_bytes` (None: no limit); the least recently used are deleted first.

    It never fails a run: what goes wrong is logged as a warning, kept in `warnings`, and treated as not cached.
    """

    def __init__(self, folder: Path, max_bytes: int | None = None) -> None:
        self.folder = folder
        self.max_bytes = max_bytes
        self.warnings: list[str] = []
        self._writable = True
        self._total: int | None = None  # bytes in the folder: as scanned, and what this process has written since
        self._unscanned = 0  # bytes this process has written since the last scan

    @classmethod
    def from_options(cls, options: CacheOptions) -> EmbeddingCache | None:
        """Return the cache that a user's options ask for, None for no cache."""
        folder = options.cache_dir or cache_root() / "embeddings"
        return None if options.no_cache else cls(folder, int(options.cache_limit * 1e9))

    def get(self, key: str, texts: Sequence[str]) -> CacheHits:
        """Return the stored vectors of n distinct `texts`. A damaged file is deleted, and its texts count as not found."""
        wanted = {text_digest(text): position for position, text in enumerate(texts)}
        mask, truncated = np.zeros(len(texts), dtype=bool), np.zeros(len(texts), dtype=bool)
        vectors: NDArray[np.float32] | None = None
        unread: list[str] = []
        for path in self._newest_first(key):
            if not wanted:
                break
            try:
                positions, its, cut = read_rows(path, wanted)
            except FileNotFoundError:  # evicted by another process
                continue
            except DamagedShardError as error:
                self._warn(f"damaged cache file {path} deleted ({error}); its texts are encoded again")
                _unlink(path)
                continue
            except OSError as error:
                unread.append(f"{path}: {error.strerror or error}")
                continue
            if not len(positions):
                continue
            if vectors is None:
                vectors = np.zeros((len(texts), its.shape[1]), dtype=np.float32)
            if its.shape[1] != vectors.shape[1]:  # older vectors of another width are ignored
                continue
            vectors[positions], truncated[positions], mask[positions] = its, cut, True
            wanted = {digest: position for digest, position in wanted.items() if not mask[position]}
            with contextlib.suppress(OSError):
                os.utime(path)  # the modification time is the time of last use
        if unread:
            self._warn(f"cannot read {len(unread)} cache files, the first {unread[0]}; their texts are encoded again")
        return CacheHits(mask, vectors, truncated)

    def put(self, key: str, texts: Sequence[str], encoded: Encoded) -> None:
        """Store dense vectors (n, d) of n distinct texts. If writing fails, warn, and store nothing more in this run."""
        if not len(texts) or not self._writable:
            return
        size = shard_bytes(*encoded.vectors.shape)
        if self.max_bytes is not None and size > self.max_bytes:
            self._warn(f"{len(texts)} embeddings take {size} bytes, more than the cache's limit of {self.max_bytes}")
            return
        # Names sort by time, and so break ties between equal modification times.
        name = f"{time.time_ns():020d}-{uuid.uuid4().hex}{_SUFFIX}"
        digests = [text_digest(text) for text in texts]
        try:
            write_shard(self._home(key) / name, digests, encoded.vectors, encoded.truncated)
        except (OSError, StsbenchError) as error:
            self._writable = False
            self._warn(f"{error}; going on without storing embeddings")
            return
        if self.max_bytes is not None:
            self._keep_within(self.max_bytes, size)

    def note(self, key: str, note: CacheNote) -> None:
        """Store a note beside an encoder's embeddings, which says what its key stands for."""
        path = self._home(key) / _ABOUT
        if self._writable and not path.exists():
            with contextlib.suppress(OSError, StsbenchError), atomic_write(path) as stream:
                json.dump(asdict(note), stream, indent=1)

    def about(self, key: str) -> CacheNote:
        """Return the stored note of an encoder; an empty one where none can be read."""
        return _note(self._home(key) / _ABOUT)

    def size(self) -> int:
        """Return the bytes of all stored embeddings."""
        return sum(size for _, size, _ in self._stats())

    def clear(self) -> int:
        """Delete everything the cache has written, and nothing else in the folder; returns the bytes freed."""
        freed = 0
        for home in self._homes():
            for path in [*home.glob(f"*{_SUFFIX}"), *home.glob(".*.tmp"), home / _ABOUT]:
                with contextlib.suppress(OSError):
                    size = path.stat().st_size
                    path.unlink()
                    freed += size
            with contextlib.suppress(OSError):  # not empty: somebody writes to it, or it holds other things
                home.rmdir()
        return freed

    def encoders(self) -> list[CachedEncoder]:
        """Return an entry for each stored encoder, the most recently used first. Files that cannot be read are left
        out."""
        entries = []
        for home in self._homes():
            texts, total, used = 0, 0, 0.0
            for path in home.glob(f"*{_SUFFIX}"):
                with contextlib.suppress(OSError, DamagedShardError):
                    stat = path.stat()
                    with path.open("rb") as stream:
                        texts += _shape(stream.read(_HEADER.size), stat.st_size)[0]
                    total, used = total + stat.st_size, max(used, stat.st_mtime)
            if texts:
                entries.append(CachedEncoder(home.name, _note(home / _ABOUT), texts, total, used))
        return sorted(entries, key=lambda entry: (-entry.used, entry.key))

    def _keep_within(self, limit: int, size: int) -> None:
        """Account for a file of `size` bytes that was just written, and evict where the limit is passed.

        Scanning the folder takes time in proportion to its files. It is scanned at the first call, when the total passes the
        limit, and when this process has written a share of the limit since, as other processes may write, too.
        """
        self._unscanned += size
        if self._total is not None:
            self._total += size
            if self._total <= limit and self._unscanned <= _SLACK * limit:
                return
        try:
            self._total, self._unscanned = self._evict(limit), 0
        except OSError as error:
            self._warn(f"cannot look through the cache {self.folder}: {error.strerror or error}; nothing is evicted")

    def _evict(self, limit: int) -> int:
        """Delete the least recently used files until the rest fits, and what killed processes left. Returns bytes left.

        More files are deleted, down to a share (_SLACK) below the limit, so that the next writes need no scan.
        """
        entries = sorted(self._stats())
        total = sum(size for _, size, _ in entries)
        for _, size, path in entries if total > limit else ():
            if total <= limit and total - size < (1 - _SLACK) * limit:
                break
            _unlink(path)
            total -= size
        for home in self._homes():
            for path in home.glob(".*.tmp"):
                with contextlib.suppress(OSError):
                    if time.time() - path.stat().st_mtime > _STALE_SECONDS:
                        path.unlink()
        return total

    def _stats(self) -> list[tuple[tuple[int, str], int, Path]]:
        """Return ((time of last use, name), bytes, path) of every shard that is there."""
        stats = []
        for home in self._homes():
            for path in home.glob(f"*{_SUFFIX}"):
                with contextlib.suppress(OSError):
                    stat = path.stat()
                    stats.append(((stat.st_mtime_ns, path.name), stat.st_size, path))
        return stats

    def _home(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise ValueError(f"not the key of an encoder: {key!r}")
        return self.folder / key

    def _newest_first(self, key: str) -> list[Path]:
        """Return an encoder's files, the newest first; warn, and return none, where the folder cannot be read."""
        home = self._home(key)
        try:
            return sorted(home.glob(f"*{_SUFFIX}"), reverse=True)
        except OSError as error:  # mostly too many open files
            self._warn(f"cannot read the cache {self.folder}: {error.strerror or error}; going on without it")
            return []

    def _homes(self) -> list[Path]:
        """Return the folders that the cache made: the folder of --cache may hold others as well."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return [path for path in self.folder.iterdir() if _KEY.fullmatch(path.name) and path.is_dir()]
        return []

    def _warn(self, message: str) -> None:
        if message in self.warnings:
            return
        self.warnings.append(message)
        logging.getLogger("stsbench.cache").warning(message)


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _note(path: Path) -> CacheNote:
    try:
        stored: Any = json.loads(path.read_text(encoding="utf-8"))
        return CacheNote(dict(stored["spec"]), dict(stored["libraries"]), bool(stored["equal_lengths"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return CacheNote()
