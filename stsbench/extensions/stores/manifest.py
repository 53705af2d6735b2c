"""What a store of vectors says of itself: manifest.json in its folder, and shard.json in each shard's."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from stsbench.config import validate
from stsbench.errors import StsbenchError
from stsbench.files import atomic_write

MANIFEST = "manifest.json"
SHARDS = "shards"
FORMAT = "stsbench vectors"
VERSION = 1
_LARGEST = 1 << 30  # bytes of a manifest: some million shards


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class StoredFile(_Strict):
    """One file of a shard."""

    bytes: int
    sha256: str


class ShardNote(_Strict):
    """One shard: `rows` texts that follow one another in the input."""

    rows: int
    dimension: int
    empty: int  # texts without a character
    truncated: int  # texts that lost tokens to the model's limit
    clipped: int  # numbers beyond int8's scale
    scales: tuple[float, ...] | None = None  # of the first shard of an int8 store, by which all are stored
    files: dict[str, StoredFile]


class InputNote(_Strict):
    """What was encoded."""

    name: str  # of the file, without the folder; "-" for standard input
    sha256: str  # of all its bytes
    bytes: int


class Manifest(_Strict):
    """A store. While `complete` is false its shards are those folders that are there, and it is not read."""

    format: Literal["stsbench vectors"] = "stsbench vectors"
    version: Literal[1] = 1
    complete: bool = False
    dtype: Literal["float32", "float16", "int8", "binary"]
    shard_rows: int  # texts of every shard but the last
    column: int | str | None  # of the input, from 1, or its name; None: lines, or a table's usual one
    encoder: dict[str, Any]  # the fields of EncoderSpec
    fingerprint: str
    libraries: dict[str, str]  # package -> version, of those that may change a vector, and stsbench's own number
    similarity: str | None = None
    trained_on: tuple[str, ...] = ()
    training_overlap: tuple[dict[str, Any], ...] = ()
    rows: int = 0
    dimension: int = 0
    scales: tuple[float, ...] | None = None  # int8: stored number times scale is the vector's
    calibration: str | None = None  # int8: by which vectors the scales were chosen
    input: InputNote | None = None
    shards: tuple[ShardNote, ...] = ()

    def digest(self) -> str:
        """sha256 over what was encoded, by what, and every file: stores of equal digest give equal vectors."""
        fields = self.model_dump(mode="json", exclude={"input", "training_overlap"})  # what changes no vector
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()

    def total(self, name: Literal["empty", "truncated", "clipped"]) -> int:
        """A count over all shards."""
        return sum(getattr(shard, name) for shard in self.shards)

    def bytes(self) -> int:
        """Of all files of all shards."""
        return sum(file.bytes for shard in self.shards for file in shard.files.values())


def shard_folder(store: Path, number: int) -> Path:
    """Where shard `number`, from 0, is."""
    return store / SHARDS / f"{number:08d}"


def is_store(folder: Path) -> bool:
    """Whether a folder looks like a store of vectors, complete or not."""
    try:
        with (folder / MANIFEST).open(encoding="utf-8") as stream:
            return FORMAT in stream.read(200)
    except (OSError, UnicodeDecodeError):
        return False


def read_manifest(folder: Path) -> Manifest:
    """StsbenchError, one line: there is none, or it is damaged or of another version."""
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
    """Whole or not at all."""
    with atomic_write(folder / MANIFEST) as stream:
        json.dump(manifest.model_dump(mode="json"), stream, ensure_ascii=False)
