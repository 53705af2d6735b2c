"""The files of a store: its manifest, its shards, and the storage of vectors as float32, float16, int8 or signs."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict
from scipy.sparse import issparse

from stsbench.config import validate
from stsbench.data.text.cache import RaggedWriter
from stsbench.encoders.base import Encoder, Progress
from stsbench.encoders.cache.encode import encode_cached
from stsbench.encoders.similarity import packed, signs
from stsbench.errors import EncoderError, StsbenchError
from stsbench.files import atomic_write, sha256_file
from stsbench.processes import release_memory

MANIFEST = "manifest.json"
SHARDS = "shards"
FORMAT = "stsbench vectors"
VERSION = 1
_LARGEST = 1 << 30  # most bytes of a manifest, enough for some million shards
Floats = NDArray[np.float32]
KINDS = {"float32": "<f4", "float16": "<f2", "int8": "|i1", "binary": "|u1"}
_MOST = 127
VECTORS, TRUNCATED, DIGESTS, TEXT, NOTE = "vectors.npy", "truncated.npy", "digests.npy", "text", "shard.json"
FILES = {VECTORS, TRUNCATED, DIGESTS, f"{TEXT}.values", f"{TEXT}.starts"}
Digests = NDArray[np.uint64]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class StoredFile(_Strict):
    """One file of a shard."""

    bytes: int
    sha256: str


class ShardNote(_Strict):
    """The description of one shard: `rows` consecutive texts of the input."""

    rows: int
    dimension: int
    empty: int  # texts without a character
    truncated: int  # texts that lost tokens to the model's limit
    clipped: int  # numbers beyond int8's scale
    scales: tuple[float, ...] | None = None  # int8: in the first shard alone, the scales of all shards
    files: dict[str, StoredFile]


class InputNote(_Strict):
    """The encoded input."""

    name: str  # the file's, without the folder; "-" for standard input
    sha256: str  # over all its bytes
    bytes: int


class Manifest(_Strict):
    """The manifest of a store. While `complete` is false, `shards` is empty and the store cannot be read."""

    format: Literal["stsbench vectors"] = "stsbench vectors"
    version: Literal[1] = 1
    complete: bool = False
    dtype: Literal["float32", "float16", "int8", "binary"]
    shard_rows: int  # texts of every shard but the last
    column: int | str | None  # of the input, from 1, or its name; None: whole lines, or a table's usual column
    encoder: dict[str, Any]  # the fields of EncoderSpec
    fingerprint: str
    libraries: dict[str, str]  # package -> version, of those that may change a vector, and stsbench's own number
    similarity: str | None = None
    trained_on: tuple[str, ...] = ()
    training_overlap: tuple[dict[str, Any], ...] = ()
    rows: int = 0
    dimension: int = 0
    scales: tuple[float, ...] | None = None  # int8: (d,) factors from stored numbers to the vector's
    calibration: str | None = None  # int8: vectors from which the scales were computed, in words
    input: InputNote | None = None
    shards: tuple[ShardNote, ...] = ()

    def digest(self) -> str:
        """Return sha256 over the encoder and all files' digests: stores with equal digests have equal vectors."""
        fields = self.model_dump(mode="json", exclude={"input", "training_overlap"})  # no effect on vectors
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()

    def total(self, name: Literal["empty", "truncated", "clipped"]) -> int:
        """Return a count over all shards."""
        return sum(getattr(shard, name) for shard in self.shards)

    def bytes(self) -> int:
        """Return the size of all files of all shards, in bytes."""
        return sum(file.bytes for shard in self.shards for file in shard.files.values())


def shard_folder(store: Path, number: int) -> Path:
    """Return the folder of shard `number`, from 0."""
    return store / SHARDS / f"{number:08d}"


def is_store(folder: Path) -> bool:
    """Return whether a folder looks like a store of vectors, complete or not."""
    try:
        with (folder / MANIFEST).open(encoding="utf-8") as stream:
            return FORMAT in stream.read(200)
    except (OSError, UnicodeDecodeError):
        return False


def read_manifest(folder: Path) -> Manifest:
    """Return a store's manifest. Raises StsbenchError, one line, if it is missing, damaged or of another version."""
    path = folder / MANIFEST
    try:
        if path.stat().st_size > _LARGEST:
            raise StsbenchError(f"{path} is not a store's manifest: it is too large")
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        why = f"it has no {MANIFEST} (stsbench encode writes one)"
        raise StsbenchError(f"{folder} is not a store of vectors: {why}") from None
    except OSError as error:
        raise StsbenchError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise StsbenchError(f"{path} is damaged: {error}") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise StsbenchError(f"{folder} is not a store of vectors: its {MANIFEST} is another tool's")
    if data.get("version") != VERSION:
        raise StsbenchError(f"{folder} is of version {data.get('version')}, and this stsbench reads version {VERSION}")
    return validate(Manifest, data, str(path))


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write a store's manifest atomically."""
    with atomic_write(folder / MANIFEST) as stream:
        json.dump(manifest.model_dump(mode="json"), stream, ensure_ascii=False)


def width(dtype: str, dimension: int) -> int:
    """Return how many numbers a stored row has: d, or for signs d / 8 bytes, rounded up."""
    return -(-dimension // 8) if dtype == "binary" else dimension


def calibrated(vectors: Floats) -> Floats:
    """Return float32 (d,) scales for int8, computed from (n, d) vectors; 1 for a dimension that is 0 in all of them."""
    most = np.abs(vectors).max(axis=0).astype(np.float64)
    return np.where(most > 0, most / _MOST, 1).astype(np.float32)


def stored(vectors: Floats, dtype: str, scales: Floats | None) -> tuple[NDArray[Any], int]:
    """Return the rows (n, width) as stored, and how many numbers were clipped to int8's range.

    Raises EncoderError for a number that float16 cannot hold.
    """
    if dtype == "float16":
        with np.errstate(over="ignore"):
            rows = vectors.astype("<f2")
        if not np.isfinite(rows).all():
            raise EncoderError(f"--store-dtype float16 cannot hold {np.abs(vectors).max():g}: use float32 or int8")
        return rows, 0
    if dtype == "int8":
        assert scales is not None
        exact = np.rint(vectors / scales)
        cut = int(np.count_nonzero(np.abs(exact) > _MOST))
        return np.clip(exact, -_MOST, _MOST).astype(np.int8), cut
    if dtype == "binary":
        return packed(vectors), 0
    return np.ascontiguousarray(vectors, "<f4"), 0


def restored(rows: NDArray[Any], dtype: str, dimension: int, scales: Floats | None) -> Floats:
    """Return float32 (n, d) vectors from stored rows (n, width)."""
    if dtype == "int8":
        assert scales is not None
        return rows.astype(np.float32) * scales
    if dtype == "binary":
        return signs(rows, dimension)
    return np.asarray(rows, np.float32)


@dataclass(frozen=True)
class ShardJob:
    """A shard to encode. line: the input's line, from 1, at which it begins; scales: None for int8: compute them from it."""

    store: Path
    number: int
    line: int
    texts: list[str]
    dtype: str
    scales: tuple[float, ...] | None = None


@dataclass(frozen=True)
class ShardDone:
    """A shard that has been written, and the encoder's notes by then."""

    number: int
    note: ShardNote
    notes: tuple[str, ...]


def encode_shard(encoder: Encoder, job: ShardJob, progress: Progress) -> ShardDone:
    """Encode a shard's texts, equal ones once, and write the shard; return its description.

    Raises EncoderError for a text without a finite vector, naming its line, for sparse or for too large vectors.
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
    release_memory()
    return ShardDone(job.number, note, encoder.notes)


def text_digests(texts: Sequence[str]) -> Digests:
    """Return uint64 (n, 2): 16 bytes that stand for each text."""
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
        files = {name: StoredFile(bytes=(building / name).stat().st_size, sha256=sha256_file(building / name))
                 for name in sorted(FILES)}
        note = note.model_copy(update={"files": files})
        (building / NOTE).write_text(json.dumps(note.model_dump(mode="json")), encoding="utf-8")
        for path in (*building.iterdir(), building):
            _sync(path)
        if folder.exists():  # damaged, or written in the meantime by a process whose parent was killed
            shutil.rmtree(folder)
        building.rename(folder)
        _sync(folder.parent)
    except OSError as error:
        raise StsbenchError(f"cannot write {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return note


def _sync(path: Path) -> None:
    """Flush a file or folder to the disk: after a power cut it could have its name and size, but not its content."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_note(folder: Path) -> ShardNote:
    """Return the description of a shard from its shard.json. Raises StsbenchError, one line, if it is damaged."""
    path = folder / NOTE
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise StsbenchError(f"{path} is damaged: {getattr(error, 'strerror', None) or error}") from error
    if not isinstance(data, dict):
        raise StsbenchError(f"{path} is damaged")
    return validate(ShardNote, data, str(path))


def fault(folder: Path, note: ShardNote, *, digests: bool) -> str | None:
    """Return what is wrong with a shard's files, in one line, or None. digests: compare their sha256, not their sizes
    alone."""
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
