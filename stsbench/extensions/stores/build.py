"""Encoding any number of texts into a store: shard by shard, in memory that does not grow, resumed where it was stopped."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from stsbench.data.own.texts import Texts
from stsbench.encoders.base import Encoder
from stsbench.encoders.cache.encode import changed, versions
from stsbench.encoders.parallel import Here, Runner, check_shareable
from stsbench.errors import DataError, EncoderError, StsbenchError
from stsbench.extensions.stores.manifest import (
    MANIFEST,
    SHARDS,
    InputNote,
    Manifest,
    ShardNote,
    read_manifest,
    shard_folder,
    write_manifest,
)
from stsbench.extensions.stores.numbers import KINDS
from stsbench.extensions.stores.shard import DIGESTS, NOTE, ShardJob, encode_shard, fault, read_note, text_digests
from stsbench.extensions.stores.vectors import VectorStore
from stsbench.files import lock_file
from stsbench.wording import counted

SHARD_ROWS = 32_768  # texts that a kill loses at most, for each process
_LOCK = ".lock"


@dataclass(frozen=True)
class Pace:
    """How far an encoding is. texts: finished, those of an earlier call (`kept`) included; total: about, None: not known."""

    texts: int
    kept: int
    total: int | None


def build_store(
    encoder: Encoder, texts: Texts, folder: Path, *, dtype: str = "float32", shard_rows: int | None = None,
    runner: Runner | None = None, log: Callable[[str], None] = print, progress: Callable[[Pace], None] | None = None,
) -> VectorStore:
    """Encode every text with `encoder` into `folder`, row i being text i, and open the store.

    dtype: see `stsbench.extensions.stores.numbers`; shard_rows: texts a shard (32,768); runner: where it is computed, by
    default here. A call that was stopped is repeated: shards that are whole are kept, after texts and digests were compared.
    StsbenchError, one line: the folder holds something else, was made by another encoder or of other texts, or another
    process writes to it; a text has no finite vector; the disk is full.
    """
    check_shareable(encoder)
    if dtype not in KINDS:
        raise EncoderError(f"a store cannot hold {dtype} (there are {', '.join(KINDS)})")
    there = folder.exists()
    with _locked(folder):
        there = there or (folder / MANIFEST).exists()  # another process began, or ended, between the two
        manifest = _manifest(encoder, texts, folder, dtype, shard_rows)
        building = _Building(encoder, texts, folder, manifest, log, progress)
        try:
            building.run(runner or Here(encoder))
        except BaseException:
            if not there and not building.notes:  # nothing to go on with
                shutil.rmtree(folder, ignore_errors=True)
            raise
    return VectorStore(folder)


class _Building:
    def __init__(
        self, encoder: Encoder, texts: Texts, folder: Path, manifest: Manifest, log: Callable[[str], None],
        progress: Callable[[Pace], None] | None,
    ) -> None:
        self.texts, self.folder, self.manifest, self.log = texts, folder, manifest, log
        self.notes: dict[int, ShardNote] = {}
        self.logged = set(encoder.notes)
        self.scales: tuple[float, ...] | None = None
        self.finished = self.kept = 0
        self._progress = progress

    def run(self, runner: Runner) -> None:
        jobs = self._jobs()
        try:
            if self.manifest.dtype == "int8":  # the first shard's vectors choose the scales of all
                self._encode(runner, islice(jobs, 1))
            self._encode(runner, jobs)
        except BaseException:
            if self.notes:
                rows = sum(note.rows for note in self.notes.values())
                self.log(f"{self.folder} keeps {counted(rows, 'text')}: the same command goes on there")
            raise
        if not self.texts.count:
            raise DataError(f"{self.texts.name} contains no text")
        self._check_end()
        self._finish()

    def _encode(self, runner: Runner, jobs: Iterator[ShardJob]) -> None:
        for done in runner.run(encode_shard, jobs, self._count):
            self._add(done.number, done.note)
            for line in done.notes:
                if line not in self.logged:
                    self.logged.add(line)
                    self.log(line)

    def _jobs(self) -> Iterator[ShardJob]:
        """What has still to be encoded, in order; what is there is compared on the way."""
        line = 1
        for number, chunk in enumerate(self.texts.chunks(self.manifest.shard_rows)):
            if note := self._whole(number, chunk, line):
                self._add(number, note)
                self.kept += note.rows
                self._count(note.rows)
            else:
                yield ShardJob(self.folder, number, line, chunk, self.manifest.dtype, self.scales)
            line += len(chunk)

    def _whole(self, number: int, chunk: list[str], line: int) -> ShardNote | None:
        """The note of a shard that is there; None where it has to be encoded. DataError: it is of other texts."""
        folder = shard_folder(self.folder, number)
        if not folder.exists():
            return None
        try:
            note = read_note(folder)
            problem = fault(folder, note, digests=True)
        except StsbenchError as error:
            problem = str(error)
        if problem:
            self.log(f"{problem}: the shard is encoded again")
            return None
        stored, digests = np.load(folder / DIGESTS, allow_pickle=False), text_digests(chunk)
        size = min(len(stored), len(digests))
        if len(differ := np.flatnonzero((stored[:size] != digests[:size]).any(axis=1))):
            raise self._other(f"line {line + int(differ[0]):,} is another text")
        if len(stored) != len(digests):
            raise self._other(f"it has {'more' if len(digests) > size else 'fewer'} than {line - 1 + size:,} lines")
        return note

    def _check_end(self) -> None:
        """DataError where the store holds texts that the input has not."""
        beyond = shard_folder(self.folder, len(self.notes))
        if (beyond / NOTE).exists():
            raise self._other(f"it ends after {counted(self.texts.count, 'line')}")

    def _other(self, why: str) -> DataError:
        return DataError(f"{self.folder} was made of another input than {self.texts.name}: {why}; choose another --output")

    def _add(self, number: int, note: ShardNote) -> None:
        first = next(iter(self.notes.values()), note)
        if note.dimension != first.dimension:
            raise EncoderError(f"shard {number} of {self.folder} has vectors of {note.dimension} numbers, and others have "
                               f"{first.dimension}: choose another --output")
        self.notes[number] = note
        self.scales = note.scales or self.scales

    def _count(self, rows: int) -> None:
        self.finished += rows
        if self._progress is not None:
            self._progress(Pace(self.finished, self.kept, self.texts.expected()))

    def _finish(self) -> None:
        if self.manifest.complete:
            self.log(f"{self.folder} was complete: its {counted(self.texts.count, 'text')} and files were compared")
            return
        shards = tuple(self.notes[number] for number in range(len(self.notes)))
        calibration = f"the largest absolute numbers of the first {shards[0].rows:,} texts" if self.scales else None
        write_manifest(self.folder, self.manifest.model_copy(update={
            "complete": True, "rows": self.texts.count, "dimension": shards[0].dimension, "scales": self.scales,
            "calibration": calibration, "input": _input_note(self.texts), "shards": shards,
        }))


def _input_note(texts: Texts) -> InputNote:
    return InputNote(name=texts.name, sha256=texts.digest(), bytes=texts.bytes)


def _manifest(encoder: Encoder, texts: Texts, folder: Path, dtype: str, shard_rows: int | None) -> Manifest:
    """The manifest of a store that was begun with these settings, or that begins now."""
    _sweep(folder)
    if not (folder / MANIFEST).exists():
        if foreign := [path.name for path in folder.iterdir() if path.name != _LOCK]:
            raise StsbenchError(f"{folder} holds other things ({sorted(foreign)[0]}): choose a new folder for the vectors")
        new = Manifest.model_validate({
            "dtype": dtype, "shard_rows": shard_rows or SHARD_ROWS, "column": texts.column, "encoder": asdict(encoder.spec),
            "fingerprint": encoder.spec.fingerprint(), "libraries": versions(encoder.traits.libraries),
            "similarity": None if encoder.traits.similarity == "cosine" else encoder.traits.similarity,
            "trained_on": encoder.traits.trained_on, "training_overlap": encoder.traits.training_overlap,
        })
        write_manifest(folder, new)
        (folder / SHARDS).mkdir(exist_ok=True)
        return new
    manifest = read_manifest(folder)
    if manifest.fingerprint != encoder.spec.fingerprint():
        former, current = manifest.encoder, asdict(encoder.spec)
        differ = [key for key in current if key != "name" and current[key] != former.get(key)]
        raise EncoderError(f"{folder} was made by another encoder ({former.get('name')}; other {', '.join(differ)}): choose "
                           "another --output")
    if newer := changed(manifest.libraries):
        raise EncoderError(f"{folder} was made by other versions ({', '.join(newer)}): choose another --output")
    asked = {"--store-dtype": (manifest.dtype, dtype), "--shard-size": (manifest.shard_rows, shard_rows),
             "--column": (manifest.column, texts.column)}
    for option, (stored, wanted) in asked.items():
        if stored != wanted and not (option == "--shard-size" and wanted is None):
            raise StsbenchError(f"{folder} was made with {option} {stored}, not {wanted}: choose another --output")
    return manifest


def _sweep(folder: Path) -> None:
    """Delete what a killed process left half-written."""
    for path in folder.glob(f".{MANIFEST}.*.tmp"):
        path.unlink(missing_ok=True)
    for path in (folder / SHARDS).glob(".*.tmp"):
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """StsbenchError: the folder cannot be made, or another process writes to it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise StsbenchError(f"cannot write {folder}: {error.strerror or error}") from error
    try:
        if lock_file(handle) is False:
            raise StsbenchError(f"another process writes to {folder}: wait for it, or choose another --output")
        yield
    finally:
        os.close(handle)
