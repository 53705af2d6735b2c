"""One file of cached embeddings, written once and never changed: its layout, writing it, and reading rows safely.

    bytes 0-7     magic, with the layout's version
    8-23          n and d, unsigned 64-bit
    24-55         sha256 over bytes 8-23 and the index
    56-           index: n x 32 sha256 of each text | n x 8 check of each vector | n x 1 truncated flag
    then          zeros up to a multiple of 64, and the n x d vectors, float32

All numbers little-endian. The index has a digest of its own and each vector its check, so that reading one row out of a
million neither trusts the file nor reads all of it.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stsbench.files import atomic_write

MAGIC = b"STSEMB1\n"
_HEADER = struct.Struct("<8s16s32s")
_SIZES = struct.Struct("<QQ")
_PER_TEXT = 32 + 8 + 1


class DamagedShardError(Exception):
    """The file is cut short, altered, or of another layout."""


@dataclass(frozen=True)
class ShardRows:
    """k rows read from a shard: positions (k,) the caller asked about, float32 vectors (k, d), truncated bool (k,)."""

    positions: NDArray[np.intp]
    vectors: NDArray[np.float32]
    truncated: NDArray[np.bool_]


def text_digest(text: str) -> bytes:
    """The 32 bytes that stand for a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _check(vector: memoryview) -> bytes:
    return hashlib.sha256(vector).digest()[:8]


def _start(n: int) -> int:
    """Where the vectors begin."""
    return -(-(_HEADER.size + n * _PER_TEXT) // 64) * 64


def shard_bytes(n: int, d: int) -> int:
    """Size of the file that holds n vectors of d numbers."""
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


def shard_shape(path: Path) -> tuple[int, int]:
    """(n, d) as the header says, checked against the file's size. Raises DamagedShardError, OSError."""
    with path.open("rb") as stream:
        return _shape(stream.read(_HEADER.size), path.stat().st_size)


def _shape(header: bytes, size: int) -> tuple[int, int]:
    if len(header) < _HEADER.size or not header.startswith(MAGIC):
        raise DamagedShardError("no embedding shard of this version")
    n, d = _SIZES.unpack(_HEADER.unpack(header)[1])
    if n < 1 or d < 1 or shard_bytes(n, d) != size:  # before n decides how much is read
        raise DamagedShardError(f"{size} bytes, where {n} vectors of {d} numbers take {shard_bytes(n, d)}")
    return n, d


def read_rows(path: Path, wanted: Mapping[bytes, int]) -> ShardRows:
    """The rows whose text digest is in `wanted` (digest -> position), in the file's order.

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
            return ShardRows(positions, np.zeros((0, d), np.float32), np.zeros(0, dtype=bool))
        stored = np.memmap(stream, dtype="<f4", mode="r", offset=_start(n), shape=(n, d))
        vectors = np.ascontiguousarray(stored[rows], dtype=np.float32)
        del stored
    flat = np.ascontiguousarray(vectors, dtype="<f4").data.cast("B")
    for i, row in enumerate(rows.tolist()):
        if _check(flat[4 * d * i : 4 * d * (i + 1)]) != index[32 * n + 8 * row : 32 * n + 8 * row + 8]:
            raise DamagedShardError(f"vector {row} does not match its checksum")
    flags = np.frombuffer(index, dtype=np.uint8, offset=40 * n)
    return ShardRows(positions, vectors, flags[rows] != 0)
