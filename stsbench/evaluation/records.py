"""The record: one JSON file per (encoder x protocol x data digest), validated on reading, never overwritten."""

from __future__ import annotations

import hashlib
import json
import re
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from stsbench.errors import StsbenchError
from stsbench.files import atomic_write
from stsbench.parsing import MOST_JSON, parse_json, read_text

Sha256 = Field(pattern=r"^[0-9a-f]{64}$")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, validate_by_name=True, serialize_by_alias=True)


class ScoreRow(_Part):
    """One score. value, low and high are in the unit of the metric's `scale`; low and high bound the 95 % interval."""

    model_config = ConfigDict(validate_assignment=True)  # no NaN comes in later, either

    protocol: str
    task: str
    subset: str | None = None
    aggregation: str | None = None
    metric: str
    value: float
    low: float | None = None
    high: float | None = None
    n: int = Field(ge=1)


class DataIdentity(_Part):
    """What was measured on. `known` is false when a file differs from the catalog: never ranked beside known data."""

    id: str
    task: str
    # "view" in the files; own: in no catalog (a user's files, what mteb loads)
    text_version: Literal["senteval", "raw", "sample", "own"] = Field(
        validation_alias="view", serialization_alias="view"
    )
    digest: str = Sha256
    n: int = Field(ge=0)  # 0 only of what mteb loads by itself
    subsets: dict[str, int]
    known: bool
    origin: str
    warnings: list[str] = []

    @property
    def shown(self) -> str:
        """What people call the data: a user's files have a digest for id."""
        return f"own:{self.task}" if self.id.startswith("own:") else self.id

    @model_validator(mode="after")
    def _has_items(self) -> DataIdentity:
        if self.n < 1 and self.text_version != "own":
            raise ValueError("n: data without items cannot be measured")
        return self


class EncoderIdentity(_Part):
    """Which encoder: its full spec, its fingerprint, and the width of its vectors."""

    spec: dict[str, Any]
    fingerprint: str = Sha256
    dimension: int = Field(ge=1, lt=2**24)


class ProtocolIdentity(_Part):
    """Which protocol, its version (raised whenever a score would change) and its resolved settings.

    `label` is the paper whose preset chose the settings, else the protocol's own name.
    """

    name: str
    label: str
    version: int
    settings: dict[str, Any]


class SharedFile(_Part):
    """The arrays that the data decide, which all records of a board on these data share. sha256: of what it holds."""

    file: str = Field(pattern=r"^\.\./\.\./\.\./observations/[\w-][\w.-]*\.parquet$")
    sha256: str = Sha256


class ObservationFile(_Part):
    """The arrays that every score is computed from, beside the record: observations/, the record's stem, .npz.

    On a board the suffix is .parquet, and what the data decide is in a shared file. sha256: of the .npz file; of the arrays
    that a .parquet file holds.
    """

    file: str = Field(pattern=r"^observations/[^/\\]+\.(npz|parquet)$")
    sha256: str = Sha256
    shared: SharedFile | None = None

    @model_serializer(mode="wrap")
    def _without_nothing(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = handler(self)
        return {key: value for key, value in written.items() if value is not None}


class Record(_Part):
    """A measurement with everything needed to check, repeat or refuse to compare it."""

    schema_version: Literal[1] = 1
    kind: Literal["measured"] = "measured"
    created: datetime
    encoder: EncoderIdentity
    protocol: ProtocolIdentity
    data: DataIdentity
    observations: ObservationFile
    counts: dict[str, Annotated[int, Field(ge=0)]]  # zero_vectors, truncated: distinct texts
    scores: list[ScoreRow]
    provenance: dict[str, Any]

    @property
    def position(self) -> int:
        """Where it stands among its run's records, whose file names do not keep their order; 0 where nothing says so."""
        position = self.provenance.get("position")
        return position if isinstance(position, int) else 0


class _Stated(BaseModel):
    """Fields that are read of what a record otherwise holds as it was given; there may be more."""

    model_config = ConfigDict(extra="allow", strict=True)


class _Spec(_Stated):
    name: str
    kind: str = ""
    weights: str = ""
    pooler: str | None = None
    template: str | None = None
    prefix: str | None = None
    dtype: str = ""
    post: str | None = None
    fitted_on: str | None = None
    options: dict[str, Any] | None = None


class _Start(_Stated):
    weights: str | None = None
    stage: str | None = None


class _Provenance(_Stated):
    python: str = ""
    device: str = ""
    versions: dict[str, str] = {}
    git: Annotated[str, Field(pattern=r"^[0-9a-f]{7,64}(\+changes)?$")] | None = None
    command: list[str] | None = None
    recipe: str | None = None
    stage: str | None = None
    trained_on: list[str] = []
    position: int = 0
    warm_start: _Start | None = Field(default=None, alias="from")


def record_stem(encoder: EncoderIdentity, protocol: ProtocolIdentity, data: DataIdentity) -> str:
    """File name stem: protocol, data id and a digest over everything that identifies a record."""
    key = [encoder.fingerprint, protocol.model_dump(), data.digest]
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:12]
    return f"{_plain(protocol.label)}.{_plain(data.id)}.{digest}"


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)  # a file name on every system


def write_record(folder: Path, record: Record) -> Path:
    """Write `record` into `folder`, atomically. Raises StsbenchError when it is there already, or not valid."""
    path = folder / f"{record_stem(record.encoder, record.protocol, record.data)}.json"
    if path.exists():
        raise StsbenchError(f"{path} is already there; records are never overwritten: choose another --output")
    text = record_text(record)
    try:
        Record.model_validate_json(text)
    except ValidationError as error:  # changed since it was made: a score that is NaN now would be written as null
        raise StsbenchError(f"{path}: not written, since it is not a valid record: {_first(error)}") from error
    with atomic_write(path) as stream:
        stream.write(text)
    return path


def record_text(record: Record) -> str:
    """A record's file."""
    return record.model_dump_json(indent=2) + "\n"


def _first(error: ValidationError) -> str:
    """The first thing wrong: field, and what about it."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'])) or 'file'}: {first['msg']}"


def read_record(path: Path) -> Record:
    """Read and validate one record. Raises StsbenchError naming the file and the first field at fault, a key that stands
    there twice, or observations that are not those beside it under its own name.
    """
    try:
        text = read_text(path, MOST_JSON)
        record = Record.model_validate_json(text, strict=True)  # true is no 1, and "1" no number
        # JSON of two values for a key means what its reader takes it for; JSON has neither NaN nor 1e999.
        parse_json(text, object_pairs_hook=_no_key_twice, parse_constant=_finite, parse_float=_finite)
        _check_stated("encoder.spec", _Spec, record.encoder.spec)
        _check_stated("provenance", _Provenance, record.provenance)
    except ValidationError as error:
        raise StsbenchError(f"{path} is not a valid record: {_first(error)}") from error
    except ValueError as error:
        raise StsbenchError(f"{path} is not a valid record: {error}") from error
    files = [f"observations/{path.stem}{suffix}" for suffix in (".npz", ".parquet")]
    if record.observations.file not in files:
        raise StsbenchError(
            f"{path} was renamed or edited: its observations would be {files[0]}, it names {record.observations.file}"
        )
    return record


def _check_stated(field: str, kind: type[_Stated], stated: dict[str, Any]) -> None:
    try:
        kind.model_validate(stated)
    except ValidationError as error:
        raise ValueError(f"{field}.{_first(error)}") from error


def _finite(text: str) -> float:
    if not isfinite(number := float(text)):
        raise ValueError(f"{text} is not a finite number")
    return number


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key '{twice}' stands in it twice")
    return mapping


def load_records(folder: str | Path) -> list[tuple[Path, Record]]:
    """Every record of a run folder, by file name; of a training, those of its test. Raises StsbenchError for none."""
    folder = Path(folder)
    if folder.is_file():
        raise StsbenchError(f"{folder} is a file: name the run folder that holds it")
    if not folder.is_dir():
        raise StsbenchError(f"{folder} is not a run folder: no such folder")
    if (folder / "begun.json").is_file() and (folder / "eval").is_dir():
        folder = folder / "eval"
    paths = sorted(folder.glob("*.json"))
    if trained := _trained(folder):
        raise StsbenchError(f"{folder} is a run of `stsbench train`, and holds no records itself: {trained}")
    if not paths:
        raise StsbenchError(f"{folder} is not a run folder: it holds no records (*.json)")
    return [(path, read_record(path)) for path in paths]


def tested_seeds(folder: Path) -> list[Path]:
    """The runs that were tested, of a folder that `stsbench train --seeds` made; none of another folder."""
    if not (folder / "seeds.json").is_file():
        return []
    return sorted(path.parent for path in folder.glob("seed-*/eval") if path.is_dir())


def run_folders(side: Any) -> list[Path]:
    """The run folders that a side of a comparison names: itself, those inside it, or of several names with commas; a list of
    such; or what `evaluate` returned. An entry of the leaderboard holds its runs, a training with several seeds those of
    its seeds."""
    if isinstance(side, list | tuple):
        # A Path in a list is a run itself: `compare` may be given what this gave. One that is there twice is refused there.
        return [run for each in side for run in ([each] if isinstance(each, Path) else run_folders(each))]
    folder = Path(getattr(side, "folder", side))
    text = str(folder)
    names = [folder] if folder.exists() or "," not in text else [Path(name.strip()) for name in text.split(",")]
    runs: list[Path] = []
    for name in names:
        if not name.exists() and (entry := Path("leaderboard/measured") / name).is_dir():
            raise StsbenchError(f"{name} is not a run folder: no such folder; the board's entry is {entry}")
        if seeds := tested_seeds(name):
            runs += seeds
        elif (name / "eval").is_dir():
            runs.append(name / "eval")
        elif not name.is_dir() or any(name.glob("*.json")):
            runs.append(name)
        else:
            runs += sorted({path.parent for path in name.glob("*/*.json")}) or [name]
    return list(dict.fromkeys(runs))


def _trained(folder: Path) -> str:
    """Where the records of a run of `stsbench train` are, or how to get them; "" for another folder."""
    if (folder / "begun.json").is_file():
        return f"stsbench eval --model {folder / 'best'} --output {folder / 'eval'} gives some"
    if any((folder / f"{name}.json").is_file() for name in ("seeds", "subsets")):
        tested = sorted(path.parent for path in folder.glob("**/seed-*/eval") if path.is_dir())
        return f"name the run of one seed, as {tested[0]}" if tested else "its seeds were not tested"
    return ""


def json_schema() -> dict[str, Any]:
    """The record's JSON Schema."""
    return Record.model_json_schema()


def now() -> datetime:
    """The present moment, UTC, whole seconds."""
    return datetime.now(UTC).replace(microsecond=0)
