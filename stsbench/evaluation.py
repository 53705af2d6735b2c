"""plan -> encode each distinct text once -> observe -> score -> record."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from stsbench.data.sets import PairSet
from stsbench.encoders.base import Encoder, Progress
from stsbench.encoders.cache import EmbeddingCache
from stsbench.encoders.cached import encode_cached
from stsbench.errors import ScoreError, StsbenchError
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
from stsbench.registry import did_you_mean, resolve

_NUMBERS = {"value", "low", "high"}


@dataclass
class Result:
    """What one evaluation gave. `failures`: task -> reason; `left_out`: protocol -> reason."""

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

    def add(self, part: Result) -> None:
        """Take over what another protocol gave."""
        self.records += part.records
        self.summaries += part.summaries
        self.unsaved.update(part.unsaved)
        for task, reason in part.failures.items():
            known = self.failures.get(task)
            self.failures[task] = reason if known in (None, reason) else f"{known}; {reason}"

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


def pick_tasks(known: Mapping[str, str], wanted: Sequence[str] | None, owner: str) -> dict[str, str]:
    """Task -> set id of the `wanted` tasks, in the order of `known`; names are matched regardless of case.

    None wants them all. Raises StsbenchError, with a suggestion, for a task that `owner` does not have.
    """
    if wanted is None:
        return dict(known)
    lower = {name.lower(): name for name in known}
    for name in wanted:
        if name.lower() not in lower:
            raise StsbenchError(f"unknown task '{name}' of {owner}{did_you_mean(name, known)}")
    asked = {lower[name.lower()] for name in wanted}
    return {name: id for name, id in known.items() if name in asked}


def chosen_tasks(protocol: type[Protocol], wanted: Sequence[str] | None) -> dict[str, str]:
    """Task -> set id of one protocol's `wanted` tasks, as `pick_tasks`."""
    return pick_tasks(protocol.tasks(), wanted, f"protocol {protocol.name}")


def free_folder(folder: Path) -> Path:
    """`folder`, or the first of folder-2, folder-3, ... that does not exist: a run never overwrites another."""
    candidate, number = folder, 2
    while candidate.exists() and (not candidate.is_dir() or any(candidate.iterdir())):
        candidate, number = folder.with_name(f"{folder.name}-{number}"), number + 1
    return candidate


def measure(
    encoder: Encoder,
    protocol: Protocol,
    sets: Mapping[str, PairSet],
    folder: Path,
    *,
    cache: EmbeddingCache | None = None,
    strict: bool = False,
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda line: None,
    origin: Mapping[str, Any] | None = None,
) -> Result:
    """Score `encoder` on `sets` (task -> data): a record a set, which `Result.save` writes to `folder`.

    A task that cannot be scored (constant predictions, ...) is a failure with a reason; the others go on. `strict`
    refuses texts longer than the model's limit. `say` gets one line for what a user must know. Raises EncoderError
    for vectors that are none.
    """
    result = Result(folder)
    began = time.monotonic()
    shared = _encode(encoder, dict.fromkeys(t for data in sets.values() for t in data.texts), cache, progress)
    for task, data in sets.items():
        fitted = encoder.fit(data.texts, f"{data.id}@{data.digest}")
        row, encoded = shared if fitted is encoder else _encode(fitted, dict.fromkeys(data.texts), cache, progress)
        mine = [row[text] for text in data.texts]
        zero, cut = zero_rows(encoded.vectors[mine]), encoded.truncated[mine]
        if strict and cut.any():
            text = data.texts[int(np.argmax(cut))]
            raise StsbenchError(
                f"{int(cut.sum())} texts of {data.id} exceed the limit of {fitted.spec.max_length} tokens, the first "
                f"'{text[:60]}...'; leave --strict out to truncate them"
            )
        for count, what in ((int(zero.sum()), "have a zero vector (cosine 0)"), (int(cut.sum()), "were truncated")):
            if count:
                limit = f" to the model's limit of {fitted.spec.max_length} tokens" if "trunc" in what else ""
                say(f"{task}: {count} of {len(data.texts)} distinct texts {what}{limit}")
        observations = protocol.observe(encoded.vectors, row, data)
        try:
            scores = protocol.score(observations, data.id, task)
        except ScoreError as error:
            result.failures[task] = str(error)
            continue
        who = EncoderIdentity(
            spec=asdict(fitted.spec), fingerprint=fitted.spec.fingerprint(), dimension=int(encoded.vectors.shape[1])
        )
        how = ProtocolIdentity(
            name=protocol.name, label=protocol.label, version=protocol.version, settings=protocol.settings
        )
        what_on = _identity(data)
        content = _packed(observations)
        name = f"observations/{record_stem(who, how, what_on)}.npz"
        record = Record(
            created=now(), encoder=who, protocol=how, data=what_on,
            observations=ObservationFile(file=name, sha256=hashlib.sha256(content).hexdigest()),
            counts={"zero_vectors": int(zero.sum()), "truncated": int(cut.sum())},
            scores=scores,
            provenance=provenance(seconds=round(time.monotonic() - began, 3), **(origin or {})),
        )  # fmt: skip
        result.records.append(record)
        result.unsaved[name] = content
    result.summaries = protocol.summarise(result.records)
    return result


def score_again(folder: Path) -> Result:
    """Every score of a run folder, recomputed from its stored observations. Imports no torch, needs no data.

    Raises StsbenchError when an observations file is missing, damaged or not the one the record names, when a record was
    edited or renamed, and when the folder holds records of several encoders.
    """
    result = Result(folder)
    groups: dict[str, tuple[Protocol, list[Record]]] = {}
    found = load_records(folder)
    encoders: set[str] = set()
    for path, record in sorted(found, key=lambda item: item[1].provenance.get("position", 0)):
        kind = resolve("stsbench.protocols", record.protocol.name)
        if kind.version != record.protocol.version:
            raise StsbenchError(
                f"{path} was scored by version {record.protocol.version} of protocol {record.protocol.name}; this is "
                f"version {kind.version}: its scores are not the same measurement"
            )
        if path.stem != record_stem(record.encoder, record.protocol, record.data):
            raise StsbenchError(f"{path} was renamed or edited: its name does not fit what it says was measured")
        encoders.add(json.dumps({**record.encoder.spec, "fitted_on": None}, sort_keys=True))
        if len(encoders) > 1:
            raise StsbenchError(f"{folder} holds records of several encoders: they have no table or average in common")
        key = record.protocol.model_dump_json()
        protocol, records = groups.setdefault(key, (kind(record.protocol.settings, record.protocol.label), []))
        # SICK-R and SICK-R-MTEB are two tasks on data of one name: the set's id tells them apart.
        task = {id: name for name, id in kind.tasks().items()}.get(record.data.id, record.data.task)
        observations = _read(folder / record.observations.file, record.observations.sha256)
        try:
            again = protocol.score(observations, record.data.id, task)
        except ScoreError as error:
            result.failures[task] = str(error)
            continue
        if not _same(again, record.scores):
            raise StsbenchError(f"{path} was edited: its scores are not those that its observations give")
        record.scores = again
        records.append(record)
    for protocol, records in groups.values():
        result.summaries += protocol.summarise(records)
        result.records += records
    return result


def _same(again: Sequence[ScoreRow], stored: Sequence[ScoreRow]) -> bool:
    names = [[row.model_dump(exclude=_NUMBERS) for row in rows] for rows in (again, stored)]
    return names[0] == names[1] and all(abs(new.value - old.value) < 1e-6 for new, old in zip(again, stored, strict=True))


def _encode(encoder: Encoder, texts: Mapping[str, Any], cache: EmbeddingCache | None, progress: Progress | None) -> Any:
    if encoder.fitted_per_set and encoder.spec.fitted_on is None:
        return {}, None  # fitted set by set: no vectors are shared
    return {text: i for i, text in enumerate(texts)}, encode_cached(encoder, list(texts), cache, progress)


def _identity(data: PairSet) -> DataIdentity:
    view = cast(Literal["senteval", "raw", "sample"], data.view)  # pydantic checks it
    return DataIdentity(
        id=data.id, task=data.task, view=view, digest=data.digest, n=len(data), known=data.known, origin=data.origin,
        subsets={name: data.subsets.count(name) for name in data.order}, warnings=list(data.warnings),
    )  # fmt: skip


def _packed(observations: Observations) -> bytes:
    names = {f"names.{key}": np.array(value, dtype=np.str_) for key, value in observations.names.items()}
    stored: dict[str, Any] = {**observations.arrays, **names}
    buffer = io.BytesIO()
    np.savez(buffer, **stored)
    return buffer.getvalue()


def _read(path: Path, digest: str) -> Observations:
    if not path.is_file():
        raise StsbenchError(f"{path} is missing: the record's scores cannot be recomputed")
    if sha256_file(path) != digest:
        raise StsbenchError(f"{path} is not the file its record names (sha256 differs): damaged or replaced")
    with np.load(path, allow_pickle=False) as stored:
        arrays = {key: stored[key] for key in stored.files if not key.startswith("names.")}
        names = {key[6:]: stored[key].tolist() for key in stored.files if key.startswith("names.")}
    return Observations(arrays, names)
