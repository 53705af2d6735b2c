"""plan -> encode each distinct text once -> observe -> score -> record."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import time
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from stsbench.data.sets import DataSet, PairSet
from stsbench.encoders.embed import Embed
from stsbench.errors import DataError, EncoderError, ScoreError, StsbenchError
from stsbench.files import atomic_write, sha256_file
from stsbench.metrics.similarity import zero_rows
from stsbench.protocol import Observations, Protocol
from stsbench.provenance import provenance
from stsbench.records import (
    DataIdentity,
    EncoderIdentity,
    ObservationFile,
    ProtocolIdentity,
    Record,
    ScoreRow,
    load_records,
    now,
    record_stem,
    write_record,
)
from stsbench.registry import resolve

LONG = 10  # seconds after which a task's time is said: a sign of life
_NUMBERS = {"value", "low", "high"}
MOST_UNPACKED = 256_000_000  # bytes of a record's observations; those of the largest set here are a few hundred thousand
_BY_ITEM = ("row", "rows", "pair")  # beside gold, which every protocol that keeps items keeps: one value for each of them


@dataclass
class Result:
    """What one evaluation gave. `failures`: protocol and task -> reason; `left_out`: protocol -> reason."""

    folder: Path
    records: list[Record] = field(default_factory=list)
    summaries: list[ScoreRow] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    unsaved: dict[str, bytes] = field(default_factory=dict)  # observation files by name, until `save`

    @property
    def rows(self) -> list[ScoreRow]:
        """Every score: task by task, then the averages."""
        return [row for record in self.records for row in record.scores] + self.summaries

    def save(self) -> None:
        """Write the records and observations as one: the run folder appears whole, or not at all."""
        if not self.records:
            return
        self.folder = free_folder(self.folder)
        building = self.folder.with_name(f".{self.folder.name}.{os.getpid()}.tmp")
        try:
            for name, content in self.unsaved.items():
                with atomic_write(building / name, "wb") as stream:
                    stream.write(content)
            for position, record in enumerate(self.records):
                record.provenance["position"] = position  # file names do not keep the order of protocols and tasks
                write_record(building, record)
            building.rename(self.folder)
        except (OSError, StsbenchError) as error:
            reason = error if isinstance(error, OSError) else error.__cause__ or error
            raise StsbenchError(f"cannot write {self.folder}/: {getattr(reason, 'strerror', None) or reason}") from error
        finally:
            shutil.rmtree(building, ignore_errors=True)
        self.unsaved = {}


def free_folder(folder: Path) -> Path:
    """`folder`, or the first of folder-2, folder-3, ... that does not exist: a run never overwrites another."""
    candidate, number = folder, 2
    while candidate.exists() and (not candidate.is_dir() or any(candidate.iterdir())):
        candidate, number = folder.with_name(f"{folder.name}-{number}"), number + 1
    return candidate


def measure(
    result: Result,
    embed: Embed,
    protocol: Protocol,
    sets: Mapping[str, DataSet],
    *,
    strict: bool = False,
    say: Callable[[str], None] = lambda line: None,
    origin: Mapping[str, Any] | None = None,
) -> None:
    """Score an encoder on `sets` (task -> data) and add a record a set to `result`, which `Result.save` writes.

    A task that cannot be scored (constant predictions, vectors of NaN, ...) becomes a failure with a reason; the others go
    on. `strict` refuses texts longer than the model's limit. `say` gets one line for what a user must know.
    """
    before = len(result.records)
    for task, data in sets.items():
        _measure_one(result, embed, protocol, task, data, strict, say, origin or {})
    result.summaries += protocol.summarise(result.records[before:])


def _measure_one(
    result: Result, embed: Embed, protocol: Protocol, task: str, data: DataSet, strict: bool,
    say: Callable[[str], None], origin: Mapping[str, Any],
) -> None:
    began = time.monotonic()
    try:
        mine = embed.for_set(data.texts, f"{data.id}@{data.digest}")
        if problem := mine.unusable(data.texts):
            raise ScoreError(problem)
        counts = _doubtful(mine, task, data, strict, say)
        observations = protocol.observe(mine, data)
        scores = protocol.score(observations, data.id, task)
    except (ScoreError, DataError, EncoderError) as error:
        result.failures[f"{protocol.label} {task}"] = str(error)
        return
    seconds = time.monotonic() - began
    for note in observations.names.get("notes", []):
        say(f"{protocol.label} {task}: {note}")
    if seconds > LONG:
        say(f"{protocol.label} {task}: {seconds:.0f} s")
    who = EncoderIdentity(spec=asdict(mine.spec), fingerprint=mine.spec.fingerprint(), dimension=mine.dimension)
    how = ProtocolIdentity(
        name=protocol.name, label=protocol.label, version=protocol.version, settings=protocol.settings
    )
    what_on = _identity(data)
    content = _packed(observations)
    name = f"observations/{record_stem(who, how, what_on)}.npz"
    result.unsaved[name] = content
    result.records.append(Record(
        created=now(), encoder=who, protocol=how, data=what_on,
        observations=ObservationFile(file=name, sha256=hashlib.sha256(content).hexdigest()),
        counts=counts, scores=scores, provenance=provenance(seconds=round(seconds, 3), **origin),
    ))  # fmt: skip


def _doubtful(embed: Embed, task: str, data: DataSet, strict: bool, say: Callable[[str], None]) -> dict[str, int]:
    """How many distinct texts have a zero vector and how many were cut; said, and with `strict` refused."""
    texts = data.texts
    zero, cut = zero_rows(embed(texts)), embed.truncated(texts)
    if strict and cut.any():
        raise ScoreError(
            f"{int(cut.sum())} texts of {data.id} exceed the limit of {embed.spec.max_length} tokens, the first "
            f"'{texts[int(np.argmax(cut))][:60]}...'; leave --strict out to truncate them"
        )
    counts = {"zero_vectors": int(zero.sum()), "truncated": int(cut.sum())}
    if counts["zero_vectors"]:
        meaning = " (cosine 0)" if isinstance(data, PairSet) else ""
        say(f"{task}: {counts['zero_vectors']} of {len(texts)} distinct texts have a zero vector{meaning}")
    if counts["truncated"]:
        limit = f"the model's limit of {embed.spec.max_length} tokens"
        say(f"{task}: {counts['truncated']} of {len(texts)} distinct texts were truncated to {limit}")
    return counts


def score_again(folder: Path) -> Result:
    """Every score of a run folder, recomputed from its stored observations. Imports no torch, needs no data.

    Raises StsbenchError when an observations file is missing, damaged or not the one the record names, when a record was
    edited or renamed, and when the folder holds records of several encoders or two unlike ones of the same thing.
    """
    result = Result(folder)
    groups: dict[str, tuple[Protocol, list[Record]]] = {}
    found = load_records(folder)
    if several_encoders([record for _, record in found]):
        raise StsbenchError(f"{folder} holds records of several encoders: they have no table or average in common")
    scored: list[tuple[Path, Protocol, Record]] = []
    for path, record in sorted(found, key=lambda item: item[1].provenance.get("position", 0)):
        try:
            protocol, record.scores = rescored(path, record)
        except ScoreError as error:
            result.failures[f"{record.protocol.label} {record.data.task}"] = str(error)
            continue
        scored.append((path, protocol, record))
        _, records = groups.setdefault(record.protocol.model_dump_json(), (protocol, []))
        records.append(record)
    refuse_doubles(scored)
    for protocol, records in groups.values():
        result.summaries += protocol.summarise(records)
        result.records += records
    return result


def encoder_key(record: Record) -> str:
    """What the records of one encoder share: its spec; what it was fitted on is left out where that is the very set, as
    then each record names another.
    """
    spec = dict(record.encoder.spec)
    if str(spec.get("fitted_on")).startswith(f"{record.data.id}@"):
        del spec["fitted_on"]
    return json.dumps(spec, sort_keys=True)


def several_encoders(records: Sequence[Record]) -> bool:
    """Whether the records are not all of one encoder."""
    # One that was fitted once, on one of the sets it is then measured on, has two keys and one spec.
    keys = {encoder_key(record) for record in records}
    return len(keys) > 1 and len({json.dumps(record.encoder.spec, sort_keys=True) for record in records}) > 1


def refuse_doubles(found: Iterable[tuple[Path, Protocol, Record]]) -> None:
    """Raises StsbenchError, naming both files, where two records of one setting and set are not the same measurement.

    A protocol and a paper's preset may measure the same thing in one run: the same encoder, with the same scores.
    """
    held: dict[str, tuple[Path, Record, dict[tuple[str, str | None, str | None, str], tuple[float, int]]]] = {}
    for path, protocol, record in found:
        how, data = record.protocol, record.data
        kept = {key: value for key, value in how.settings.items() if key not in protocol.cosmetic}
        own = data.digest if data.view == "own" else ""  # folders of one's own may share a name
        key = json.dumps([how.name, how.version, kept, data.view, data.id, own], sort_keys=True)
        rows = {(row.task, row.subset, row.aggregation, row.metric): (row.value, row.n) for row in record.scores}
        other_path, other, theirs = held.setdefault(key, (path, record, rows))
        reason = ""
        if other.encoder.fingerprint != record.encoder.fingerprint:
            reason = "of encoders with different fingerprints"
        elif other.data.digest != data.digest:
            reason = "on different data of that name"
        elif any(not np.allclose(rows[row], theirs[row], rtol=0, atol=1e-6) for row in rows.keys() & theirs.keys()):
            reason = "with different scores"
        if reason:
            raise StsbenchError(
                f"{other_path} and {path} are two measurements of {data.id} in one setting, {reason}: keep the one that "
                "counts in this folder, and move the other"
            )


def protocol_of_record(path: Path, record: Record) -> Protocol:
    """The protocol that measured a record. Raises StsbenchError where it is unknown or another version by now."""
    kind = resolve("stsbench.protocols", record.protocol.name)
    if kind.version != record.protocol.version:
        raise StsbenchError(
            f"{path} was scored by version {record.protocol.version} of protocol {record.protocol.name}; this is "
            f"version {kind.version}: its scores are not the same measurement"
        )
    protocol: Protocol = kind(record.protocol.settings, record.protocol.label)
    return protocol


def rescored(path: Path, record: Record) -> tuple[Protocol, list[ScoreRow]]:
    """A record's protocol and its scores, recomputed from the observations beside it; errors as those of `reread`."""
    protocol, scores, _ = reread(path, record)
    return protocol, scores


def reread(path: Path, record: Record) -> tuple[Protocol, list[ScoreRow], Observations]:
    """A record's protocol, its scores recomputed from the observations beside it, and these.

    Raises StsbenchError, naming the file, when the record was renamed or edited or its observations are not those it names;
    ScoreError when they give no score.
    """
    protocol = protocol_of_record(path, record)
    if path.stem != record_stem(record.encoder, record.protocol, record.data):
        raise StsbenchError(f"{path} was renamed or edited: its name does not fit what it says was measured")
    file = path.parent / record.observations.file
    observations = read_observations(file, record.observations.sha256)
    _check_items(file, observations)
    try:
        again = protocol.score(observations, record.data.id, task_of(protocol, record))
    except StsbenchError:
        raise
    except Exception as error:  # whatever arrays that are missing, too short or of another kind raise in its arithmetic
        raise StsbenchError(f"{file} is not what {protocol.name} observes: {_line(error)}") from error
    if not _same(again, record.scores):
        raise StsbenchError(f"{path} was edited: its scores are not those that its observations give")
    return protocol, again, observations


def task_of(protocol: Protocol, record: Record) -> str:
    """The task a record measured: SICK-R and SICK-R-MTEB are two on data of one name, told apart by the set's id."""
    return {id: name for name, id in protocol.tasks().items()}.get(record.data.id, record.data.task)


def _same(again: Sequence[ScoreRow], stored: Sequence[ScoreRow]) -> bool:
    names = [[row.model_dump(exclude=_NUMBERS) for row in rows] for rows in (again, stored)]
    if names[0] != names[1]:
        return False
    numbers = [np.array([[row.value, row.low, row.high] for row in rows], dtype=float) for rows in (again, stored)]
    return np.allclose(numbers[0], numbers[1], rtol=0, atol=1e-6, equal_nan=True)  # NaN: no interval


def _identity(data: DataSet) -> DataIdentity:
    view = cast(Literal["senteval", "raw", "sample", "own"], data.view)  # pydantic checks it
    return DataIdentity(
        id=data.id, task=data.task, view=view, digest=data.digest, n=len(data), known=data.known, origin=data.origin,
        subsets=data.counts, warnings=list(data.warnings),
    )  # fmt: skip


def _packed(observations: Observations) -> bytes:
    names = {f"names.{key}": np.array(value, dtype=np.str_) for key, value in observations.names.items()}
    stored: dict[str, Any] = {**observations.arrays, **names}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **stored)
    return buffer.getvalue()


def read_observations(path: Path, digest: str) -> Observations:
    """The observations in `path`. Raises StsbenchError when it is missing or damaged, when its sha256 is not `digest`, and
    when it would fill more than MOST_UNPACKED bytes.
    """
    if not path.is_file():
        raise StsbenchError(f"{path} is missing: the record's scores cannot be recomputed")
    if sha256_file(path) != digest:
        raise StsbenchError(f"{path} is not the file its record names (sha256 differs): damaged or replaced")
    try:
        with zipfile.ZipFile(path) as packed:
            names, size = packed.namelist(), sum(each.file_size for each in packed.infolist())
        if size > MOST_UNPACKED:
            raise StsbenchError(f"{path} would unpack to {size / 1e6:.0f} MB, at most {MOST_UNPACKED / 1e6:.0f} are read")
        if len(set(names)) < len(names) or not all(name.endswith(".npy") for name in names):
            raise ValueError("it holds a member twice, or one that is no array")
        with np.load(path, allow_pickle=False) as stored:
            found = {key: stored[key] for key in stored.files}
        if text := next((key for key, array in found.items() if key.startswith("names.") and not _is_names(array)), None):
            raise ValueError(f"{text} is no list of strings")
    except StsbenchError:
        raise
    except Exception as error:  # zipfile, zlib and numpy have a dozen kinds of errors for a damaged file
        raise StsbenchError(f"{path} is no valid file of observations: {_line(error)}") from error
    names_of = {key[6:]: array.tolist() for key, array in found.items() if key.startswith("names.")}
    return Observations({key: array for key, array in found.items() if not key.startswith("names.")}, names_of)


def _is_names(array: np.ndarray[Any, Any]) -> bool:
    return array.ndim == 1 and array.dtype.kind == "U"


def _check_items(path: Path, observations: Observations) -> None:
    """Raises StsbenchError where the arrays that pair two encoders' items are not of the same items as the gold values."""
    arrays = observations.arrays
    for name in _BY_ITEM:
        if "gold" in arrays and name in arrays and (arrays[name].ndim, arrays[name].size) != (1, arrays["gold"].size):
            raise StsbenchError(f"{path}: {name} holds {arrays[name].size} values for {arrays['gold'].size} items")


def _line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
