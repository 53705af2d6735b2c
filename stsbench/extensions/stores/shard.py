"""One shard of a store: a folder that appears whole or not at all.

vectors.npy (n, width), truncated.npy bool (n,), digests.npy <u8 (n, 2) of each text, and the texts themselves, UTF-8 one
after another in text.values with their starts in text.starts; shard.json names every file with its size and sha256.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from stsbench.config import validate
from stsbench.data.text.cache import RaggedWriter
from stsbench.encoders.base import Encoder, Progress
from stsbench.encoders.cache.encode import encode_cached
from stsbench.errors import EncoderError, StsbenchError
from stsbench.extensions.stores.manifest import ShardNote, StoredFile, shard_folder
from stsbench.extensions.stores.numbers import calibrated, stored
from stsbench.files import sha256_file

VECTORS, TRUNCATED, DIGESTS, TEXT, NOTE = "vectors.npy", "truncated.npy", "digests.npy", "text", "shard.json"
FILES = {VECTORS, TRUNCATED, DIGESTS, f"{TEXT}.values", f"{TEXT}.starts"}
Digests = NDArray[np.uint64]


@dataclass(frozen=True)
class ShardJob:
    """A shard that has to be encoded. line: of the input, from 1, where it begins; scales: None in an int8 store: choose."""

    store: Path
    number: int
    line: int
    texts: list[str]
    dtype: str
    scales: tuple[float, ...] | None = None


@dataclass(frozen=True)
class ShardDone:
    """A shard that is written, and what the encoder has to say by now."""

    number: int
    note: ShardNote
    notes: tuple[str, ...]


def encode_shard(encoder: Encoder, job: ShardJob, progress: Progress) -> ShardDone:
    """Encode a shard's texts, sorted by length as the encoder likes it, and write it; equal texts are computed once.

    EncoderError: a text without a finite vector, by its line; sparse vectors; numbers that the store cannot hold.
    """
    encoded = encode_cached(encoder, job.texts, None, progress, tolerant=True)
    vectors: Any = encoded.vectors
    if issparse(vectors):
        raise EncoderError(f"{encoder.spec.name} gives sparse vectors, which a store cannot hold")
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(bad):
        where = f"{len(bad)} texts, the first that of line {job.line + int(bad[0])}"
        raise EncoderError(f"{encoder.spec.name} returned NaN or infinity for {where}")
    chosen = calibrated(vectors) if job.dtype == "int8" and job.scales is None else None
    scales = chosen if job.scales is None else np.array(job.scales, np.float32)
    rows, clipped = stored(vectors, job.dtype, scales)
    note = ShardNote(
        rows=len(rows), dimension=vectors.shape[1], empty=sum(not text for text in job.texts),
        truncated=int(encoded.truncated.sum()), clipped=clipped,
        scales=None if chosen is None else tuple(chosen.tolist()), files={},
    )
    arrays = {VECTORS: rows, TRUNCATED: encoded.truncated, DIGESTS: text_digests(job.texts)}
    note = _write(shard_folder(job.store, job.number), arrays, job.texts, note)
    give_back()
    return ShardDone(job.number, note, encoder.notes)


def text_digests(texts: Sequence[str]) -> Digests:
    """uint64 (n, 2): 16 bytes that stand for each text."""
    digests = b"".join(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest() for text in texts)
    return np.frombuffer(digests, "<u8").reshape(len(texts), 2)


def _write(folder: Path, arrays: dict[str, NDArray[Any]], texts: Sequence[str], note: ShardNote) -> ShardNote:
    building = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:12]}.tmp")
    try:
        building.mkdir(parents=True)
        for name, array in arrays.items():
            np.save(building / name, array, allow_pickle=False)
        with RaggedWriter(building, TEXT, "u1") as writer:
            fields = [text.encode("utf-8", "surrogatepass") for text in texts]
            writer.add(b"".join(fields), [len(field) for field in fields])
        files = {name: _described(building / name) for name in sorted(FILES)}
        note = note.model_copy(update={"files": files})
        (building / NOTE).write_text(json.dumps(note.model_dump(mode="json")), encoding="utf-8")
        for path in (*building.iterdir(), building):
            _sync(path)
        if folder.exists():  # damaged, or written meanwhile by a process whose parent was killed
            shutil.rmtree(folder)
        building.rename(folder)
        _sync(folder.parent)
    except OSError as error:
        raise StsbenchError(f"cannot write {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return note


def _described(path: Path) -> StoredFile:
    return StoredFile(bytes=path.stat().st_size, sha256=sha256_file(path))


def _sync(path: Path) -> None:
    """After a power cut a file could have its name and size, but not its content."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_note(folder: Path) -> ShardNote:
    """shard.json. StsbenchError, one line: not readable."""
    path = folder / NOTE
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise StsbenchError(f"{path} is damaged: {getattr(error, 'strerror', None) or error}") from error
    if not isinstance(data, dict):
        raise StsbenchError(f"{path} is damaged")
    return validate(ShardNote, data, str(path))


def fault(folder: Path, note: ShardNote, *, digests: bool) -> str | None:
    """What is wrong with a shard's files, in one line, or None. digests: read them through; else sizes are compared."""
    if note.files.keys() != FILES:
        return f"{folder / NOTE} names other files than a shard has"
    for name, file in note.files.items():
        path = folder / name
        try:
            size = path.stat().st_size
            if size != file.bytes:
                return f"{path} has {size:,} bytes and should have {file.bytes:,}"
            if digests and sha256_file(path) != file.sha256:
                return f"{path} is not what was written: its sha256 differs"
        except OSError as error:
            return f"cannot read {path}: {error.strerror or error}"
    return None


def give_back() -> None:
    """Return freed memory to the system, where the C library is glibc.

    A forward pass allocates and frees blocks of a thousand sizes, and oneDNN keeps a kernel for each shape in between. What
    is free between those glibc keeps: resident memory grew by .8 MiB every 32,768 texts, and what was in use hardly did.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
