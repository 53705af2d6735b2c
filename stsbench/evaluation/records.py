"""`Record`, the stored result of one encoder on one data set by one protocol, validated on reading; and its parts."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from stsbench.metrics.bootstrap import is_point
from stsbench.parsing import parse_json

Sha256 = Field(pattern=r"^[0-9a-f]{64}$")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, validate_by_name=True, serialize_by_alias=True)


Seconds = Annotated[float, Field(ge=0)]
Speed = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]
PROBE = 1  # number of the texts that costs are now measured on; speeds on other texts are not comparable
_ALONE = 0.8  # share of the clock's seconds that a process with a processor for itself computes at least


class Machine(BaseModel):
    """The kind of a machine, which does not identify it. cores: the number that the process may use."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False, frozen=True)

    cpu: str
    cores: int


class Cost(BaseModel):
    """Costs of encoding, as a record's provenance holds them; None: not known, or not applicable.

    texts: how many a round has; seconds, cpu_seconds: of each round, by the clock and summed over the process's threads;
    latency_seconds: of one text alone; first_vector_seconds: until the first vector, loading the model included; both
    speeds are those of the median round. memory_bytes: the process's peak resident memory while it encoded;
    cuda_memory_bytes: the peak of torch's memory on the device. bytes_a_vector: as float32, or as the encoder stores it.
    device: "cpu", or the accelerator's name; threads: torch's in each process, None without torch. where: whether this
    process computed, several did (processes: how many), or a server did.
    """

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False, frozen=True)

    probe: int
    texts: Count
    seconds: list[Seconds] = Field(min_length=1)
    cpu_seconds: list[Seconds] | None = None
    sentences_per_second: Speed
    tokens_per_second: Speed | None = None
    latency_seconds: Seconds
    first_vector_seconds: Seconds | None = None
    memory_bytes: Count | None = None
    cuda_memory_bytes: Count | None = None
    width: Count | None = None
    parameters: Count | None = None
    bytes_a_vector: Annotated[float, Field(ge=0)]
    machine: Machine
    device: str
    threads: int | None = None
    where: Literal["process", "processes", "server"] = "process"
    processes: Annotated[int, Field(ge=1)] = 1
    without: str | None = None  # the post-processing left out of the measurement, as it is fitted on each set

    @property
    def busy(self) -> bool:
        """Return whether other processes had the processors for a good part of the time, so that `seconds` are too high."""
        return self.cpu_seconds is not None and self.device == "cpu" and sum(self.cpu_seconds) < _ALONE * sum(self.seconds)


class ScoreRow(_Part):
    """One score. value, low and high are in the unit of the metric's `scale`; low and high bound the 95 % interval, None
    where there is none, as where every resample scores the same. n: distinct items of a user's own data."""

    model_config = ConfigDict(validate_assignment=True)  # so that no NaN is assigned later

    protocol: str
    task: str
    subset: str | None = None
    aggregation: str | None = None
    metric: str
    value: float
    low: float | None = None
    high: float | None = None
    n: int = Field(ge=1)

    @model_validator(mode="before")
    @classmethod
    def _without_point(cls, values: Any) -> Any:
        """Remove an interval whose ends are equal, as older records have."""
        low, high = (values.get(key) if isinstance(values, dict) else None for key in ("low", "high"))
        if isinstance(low, int | float) and isinstance(high, int | float) and is_point(low, high):
            return {**values, "low": None, "high": None}
        return values


class DataIdentity(_Part):
    """What was measured on. `known` is false when a file differs from the catalog: never ranked beside known data."""

    id: str
    task: str
    # The field is called "view" in files. own: data outside the catalog (a user's files, mteb's tasks)
    text_version: Literal["senteval", "raw", "sample", "own"] = Field(
        validation_alias="view", serialization_alias="view"
    )
    digest: str = Sha256
    n: int = Field(ge=0)  # 0 only for mteb's tasks, whose data mteb loads by itself
    subsets: dict[str, int]
    known: bool
    origin: str
    warnings: list[str] = []

    @property
    def shown(self) -> str:
        """Return the data's name for people: the id, or own:TASK for a user's files, whose id is a digest."""
        return f"own:{self.task}" if self.id.startswith("own:") else self.id

    @model_validator(mode="after")
    def _has_items(self) -> DataIdentity:
        if self.n < 1 and self.text_version != "own":
            raise ValueError("n: data without items cannot be measured")
        return self


class EncoderIdentity(_Part):
    """Which encoder: its full spec, its fingerprint, and the width of its vectors; 0 where only its scores are known."""

    spec: dict[str, Any]
    fingerprint: str = Sha256
    dimension: int = Field(ge=0, lt=2**24)


class ProtocolIdentity(_Part):
    """Which protocol, its version (raised whenever a score would change) and its resolved settings.

    `label` is the paper whose preset chose the settings, else the protocol's own name.
    """

    name: str
    label: str
    version: int
    settings: dict[str, Any]


class SharedFile(_Part):
    """The arrays that the data decide, which all records of a board on these data share. file: from the run folder; sha256:
    of what it holds."""

    file: str = Field(pattern=r"^\.\./\.\./\.\./observations/[\w-][\w.-]*\.parquet$")
    sha256: str = Sha256


class Observed(_Part):
    """The arrays that every score is computed from, which stand in the run file beside the record. sha256: of these; shared:
    on a board, of the others."""

    sha256: str = Sha256
    shared: SharedFile | None = None


class Record(_Part):
    """A measurement with everything needed to check, repeat or refuse to compare it."""

    schema_version: Literal[2] = 2
    created: datetime
    encoder: EncoderIdentity
    protocol: ProtocolIdentity
    data: DataIdentity
    observations: Observed
    counts: dict[str, Annotated[int, Field(ge=0)]]  # zero_vectors, truncated: numbers of distinct texts
    scores: list[ScoreRow]
    provenance: dict[str, Any]


@dataclass(repr=False)
class Scores:
    """All scores of one encoder. summaries: averages over the records; failures: "protocol task" -> reason; left_out:
    protocol or task that does not apply to the encoder, or has no data here -> reason."""

    folder: Path
    records: list[Record] = field(default_factory=list)
    summaries: list[ScoreRow] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def rows(self) -> list[ScoreRow]:
        """Return every score: task by task, then the averages."""
        return [row for record in self.records for row in record.scores] + self.summaries

    def failed_lines(self) -> list[str]:
        """Return a line for each failed task: protocol, task and reason."""
        return [f"failed: {label} {reason}" if reason.startswith(task) else f"failed: {label} {task}: {reason}"
                for (label, _, task), reason in ((name.rpartition(" "), why) for name, why in self.failures.items())]

    def left_out_lines(self) -> list[str]:
        """Return a line for each reason why protocols or tasks were not measured, with their names."""
        names: dict[str, list[str]] = {}
        for name, reason in self.left_out.items():
            names.setdefault(reason, []).append(name)
        return [f"left out: {', '.join(its)}: {reason}" for reason, its in names.items()]


class _Stated(BaseModel):
    """Validated fields of a free-form part of a record, which may have further fields."""

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


class _Shared(_Stated):
    model_config = ConfigDict(extra="forbid", strict=True)

    texts: Annotated[int, Field(ge=1)]
    exact: Annotated[int, Field(ge=0)]
    normalised: Annotated[int, Field(ge=0)]
    rows: Annotated[int, Field(ge=1)]


class _Overlap(_Stated):
    """Overlap of a training text with test sets: sets that it shares texts with, none with, or was not compared with."""

    text: Annotated[str, Field(min_length=1, max_length=200)]
    digest: str = Sha256
    looked_for: list[Literal["exact", "normalised", "near"]]
    shared: dict[str, _Shared]
    none: list[str]
    not_looked_for: list[str]
    sample: bool = False


class _Provenance(_Stated):
    python: str = ""
    device: str = ""
    versions: dict[str, str] = {}
    git: Annotated[str, Field(pattern=r"^[0-9a-f]{7,64}(\+changes)?$")] | None = None
    command: list[str] | None = None
    recipe: str | None = None
    stage: str | None = None
    trained_on: list[str] = []
    remarks: list[str] = []  # sentences that extensions add on the data
    training_overlap: list[_Overlap] = []
    prompts: dict[str, str] = {}  # role, or "text" for none -> prompt of the set's texts with this role
    routes: dict[str, str] = {}  # role, or "text" for none -> route, for a model that has several
    cost: Cost | None = None
    warm_start: _Start | None = Field(default=None, alias="from")


def record_name(record: Record) -> str:
    """Return a record's name in its run: protocol, data id and a digest of encoder, protocol and data."""
    key = [record.encoder.fingerprint, record.protocol.model_dump(), record.data.digest]
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:12]
    return f"{_plain(record.protocol.label)}.{_plain(record.data.id)}.{digest}"


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)  # other characters may have a meaning in paths or in a shell


def parsed(text: str) -> Record:
    """Return the record that a JSON text holds. Raises ValueError naming the first field at fault, or what `check_json`
    refuses."""
    record = validated(text)
    check_json(text)
    return record


@lru_cache(maxsize=1024)  # the records of a run share the text of their encoder, those of a board also of protocols and data
def check_json(text: str) -> None:
    """Raise ValueError for JSON that parsers read differently: an object with a key twice, NaN, 1e999."""
    parse_json(text, object_pairs_hook=_no_key_twice, parse_constant=_finite, parse_float=_finite)


def validated(text: str) -> Record:
    """Return the record as `parsed` does, of a text whose parts `check_json` has accepted."""
    try:
        record = Record.model_validate_json(text, strict=True)  # strict: true is not read as 1, "1" not as a number
        _check_stated("encoder.spec", _Spec, record.encoder.spec)
        _check_stated("provenance", _Provenance, record.provenance)
    except ValidationError as error:
        raise ValueError(_first(error)) from error
    return record


def _first(error: ValidationError) -> str:
    """Return a line on the first invalid field: its path and pydantic's message."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'])) or 'record'}: {first['msg']}"


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


def now() -> datetime:
    """Return the present time in UTC, in whole seconds."""
    return datetime.now(UTC).replace(microsecond=0)
