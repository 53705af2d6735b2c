"""`stsbench.encode`: encode texts into a store of vectors, shard by shard."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from stsbench.config import checked_options
from stsbench.data.own.texts import STDIN, Texts, checked_texts
from stsbench.encoders.base import Encoder, EncoderOptions
from stsbench.encoders.cache.encode import changed, versions
from stsbench.encoders.load import loaded_encoder
from stsbench.encoders.options import ProcessOptions, Result, Runner, Task, Work
from stsbench.errors import DataError, EncoderError, StsbenchError, UsageError, warning_log
from stsbench.extensions.stores.options import StoreOptions
from stsbench.extensions.stores.shard import (
    DIGESTS,
    KINDS,
    MANIFEST,
    NOTE,
    SHARDS,
    InputNote,
    Manifest,
    ShardJob,
    ShardNote,
    encode_shard,
    fault,
    read_manifest,
    read_note,
    shard_folder,
    text_digests,
    write_manifest,
)
from stsbench.extensions.stores.vectors import VectorStore
from stsbench.files import lock_file
from stsbench.notebook import in_notebook, make_bar
from stsbench.options import takes
from stsbench.wording import counted

if TYPE_CHECKING:
    from stsbench.extensions.arguments import ComputeArguments


SHARD_ROWS = 32_768  # texts per shard, which is the most that a killed process loses
_LOCK = ".lock"


@dataclass(frozen=True)
class Pace:
    """The progress of an encoding. texts: finished; kept: those of an earlier call among them; total: estimate or None."""

    texts: int
    kept: int
    total: int | None


def build_store(
    encoder: Encoder, texts: Texts, folder: Path, *, dtype: str = "float32", shard_rows: int | None = None,
    runner: Runner | None = None, log: Callable[[str], None] = print, progress: Callable[[Pace], None] | None = None,
) -> VectorStore:
    """Encode every text with `encoder` into `folder`, text i as row i, and return the opened store.

    dtype: float32, float16, int8 or binary; shard_rows: texts per shard (32,768); runner: computes elsewhere than in this
    process. A repeated call continues: it keeps whole shards after comparing their texts and digests. Raises StsbenchError,
    one line, where the folder holds something else, or vectors of another encoder or other texts, where another process
    writes to it, where a text has no finite vector, or the disk is full.
    """
    if encoder.fitted_per_set:
        raise EncoderError(f"{encoder.spec.name} is fitted on each set of texts, and a store is written a shard at a time: "
                           "take another encoder")
    if dtype not in KINDS:
        raise EncoderError(f"a store cannot hold {dtype} (there are {', '.join(KINDS)})")
    there = folder.exists()
    with _locked(folder):
        there = there or (folder / MANIFEST).exists()  # another process may have written it before the lock was taken
        manifest = _manifest(encoder, texts, folder, dtype, shard_rows)
        building = _Building(encoder, texts, folder, manifest, log, progress)
        try:
            building.run(runner or _Here(encoder))
        except BaseException:
            if not there and not building.notes:  # nothing that a later call could continue
                shutil.rmtree(folder, ignore_errors=True)
            raise
    return VectorStore(folder)


class _Here:
    """A runner that encodes one shard after another in this process."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder

    def run(
        self, task: Task[Work, Result], jobs: Iterable[Work], progress: Callable[[int], None] | None = None
    ) -> Iterator[Result]:
        return (task(self.encoder, job, progress or (lambda count: None)) for job in jobs)


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
            if self.manifest.dtype == "int8":  # the first shard comes first, as its vectors determine all scales
                self._encode(runner, islice(jobs, 1))
            self._encode(runner, jobs)
        except BaseException:
            if self.notes:
                rows = sum(note.rows for note in self.notes.values())
                self.log(f"{self.folder} keeps {counted(rows, 'text')}: the same command goes on there")
            raise
        if not self.texts.count:
            raise DataError(f"{self.texts.name} contains no text")
        if (shard_folder(self.folder, len(self.notes)) / NOTE).exists():  # a shard beyond the input's end
            raise self._mismatch(f"it ends after {counted(self.texts.count, 'line')}")
        self._finish()

    def _encode(self, runner: Runner, jobs: Iterator[ShardJob]) -> None:
        for done in runner.run(encode_shard, jobs, self._count):
            self._add(done.number, done.note)
            for line in done.notes:
                if line not in self.logged:
                    self.logged.add(line)
                    self.log(line)

    def _jobs(self) -> Iterator[ShardJob]:
        """Yield the shards that are still to be encoded, in order; compare the existing ones with the input."""
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
        """Return the description of a whole shard; None where it is to be encoded. Raises DataError if of other texts."""
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
            raise self._mismatch(f"line {line + int(differ[0]):,} is another text")
        if len(stored) != len(digests):
            raise self._mismatch(f"it has {'more' if len(digests) > size else 'fewer'} than {line - 1 + size:,} lines")
        return note

    def _mismatch(self, why: str) -> DataError:
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
        _sweep(self.folder)  # a Ray process may have been killed in the meantime
        shards = tuple(self.notes[number] for number in range(len(self.notes)))
        calibration = f"the largest absolute numbers of the first {shards[0].rows:,} texts" if self.scales else None
        write_manifest(self.folder, self.manifest.model_copy(update={
            "complete": True, "rows": self.texts.count, "dimension": shards[0].dimension, "scales": self.scales,
            "calibration": calibration, "input": InputNote(
                name=self.texts.name, sha256=self.texts.digest(), bytes=self.texts.bytes), "shards": shards,
        }))


def _manifest(encoder: Encoder, texts: Texts, folder: Path, dtype: str, shard_rows: int | None) -> Manifest:
    """Return the store's manifest, a new one for an empty folder. Raises StsbenchError for other settings or files."""
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
    """Delete unfinished files of killed processes."""
    for path in folder.glob(f".{MANIFEST}.*.tmp"):
        path.unlink(missing_ok=True)
    for path in (folder / SHARDS).glob(".*.tmp"):
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Make the folder and lock it. Raises StsbenchError where it cannot be made, or another process writes to it."""
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


class GivenTexts(Texts):
    """Texts from an iterable, text i as row i, stripped of white space. A text may hold tabs and line breaks."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Raise DataError for a value that is not an iterable of texts."""
        super().__init__(STDIN)
        self._listed = checked_texts(texts, "text")
        self._length = len(texts) if isinstance(texts, Sized) else None

    def expected(self) -> int | None:
        """Return the number of texts, None where it is unknown before they are read."""
        return self._length

    def numbered(self) -> Iterator[tuple[int, str]]:
        """Yield (position from 1, text)."""
        for number, text in enumerate(self._listed, 1):
            self._read(f"{text}\n".encode())
            yield number, text.strip()


@dataclass(frozen=True, kw_only=True)
class EncodeOptions(EncoderOptions, StoreOptions, ProcessOptions):
    """All options of `encode` besides the model and the texts."""

    output: Path
    column: int | str | None = None


@takes(EncodeOptions, without=["model"])
def encode(
    model: Any, texts: str | Path | Iterable[str], output: str | Path, *, column: int | str | None = None,
    store_dtype: str = "float32", shard_size: int | None = None, **encoder: Unpack[ComputeArguments],
) -> VectorStore:
    """Encode any number of texts into a folder of vectors, as `stsbench encode` does, and return the opened store.

    model: as after --model, an encoder, a function from n texts to (n, d) numbers, or an object with such a method `encode`.
    texts: a UTF-8 file with one text per line ("-": standard input), or a table with a column of texts (.csv, .tsv, .jsonl,
    .parquet, or a folder saved by datasets), or an iterable of texts, which need not fit into memory; row i is text i.
    output: the folder; an unfinished one is continued, a finished one compared. column: the name of a table's column of
    texts, or its position, from 1, in a file without header; of lines, its position between tabs; 0: lines may hold tabs.
    store_dtype: float32, float16, int8 or binary; shard_size: texts per shard (32,768). All others are options of
    `load_encoder`, and those of `evaluate` that choose the processes.

    Nothing is printed; in a notebook there is a progress bar. Texts that are empty or were truncated to the model's limit,
    and numbers clipped to int8's scale, are a StsbenchWarning. Raises StsbenchError, one line, for unreadable texts, an
    unknown model, a text without a finite vector, or a folder of another encoder or other texts.

    >>> import stsbench
    >>> store = stsbench.encode(lambda texts: [[len(text), 1] for text in texts], ["A cat sleeps.", "Rain."], "vectors")
    >>> store.shape, store.text(1), store.rows([1])
    ((2, 2), 'Rain.', array([[5., 1.]], dtype=float32))
    """
    log = warning_log()
    options = checked_options(
        EncodeOptions, "encode", output=output, column=column, store_dtype=store_dtype, shard_size=shard_size,
        **encoder,
    )
    if options.column is not None and not isinstance(texts, str | Path):
        raise UsageError(f"column={options.column!r} has no effect on texts that are given: it is of a file")
    source = Texts(str(texts), options.column) if isinstance(texts, str | Path) else GivenTexts(texts)
    loaded = loaded_encoder(model, options)
    if isinstance(model, str | os.PathLike):
        options = replace(options, model=os.fspath(model))
    with options.runner(loaded, options) as runner, _bar() as progress:
        store = build_store(
            loaded, source, options.output, dtype=options.store_dtype, shard_rows=options.shard_size, runner=runner, log=log,
            progress=progress,
        )
    for line in remarks(store):
        log(f"warning: {store.folder}: {line}")
    for line in source.notes:
        log(f"warning: {line}")
    return store


@contextmanager
def _bar() -> Iterator[Callable[[Pace], None] | None]:
    """Yield a function that shows a Pace as a progress bar in a notebook; None elsewhere."""
    if not in_notebook():
        yield None
        return
    bars: list[Any] = []

    def show(pace: Pace) -> None:
        if not bars:  # made late, as a widget keeps its first total
            bars.append(make_bar(total=pace.total, initial=pace.kept, desc="encoding", unit="text"))
        bars[0].total = pace.total
        bars[0].update(pace.texts - bars[0].n)

    try:
        yield show
    finally:
        for bar in bars:
            bar.close()


def remarks(store: VectorStore) -> Iterator[str]:
    """Yield lines on a store's empty and truncated texts and on clipped numbers."""
    manifest = store.manifest
    if count := manifest.total("empty"):
        yield f"{count:,} empty texts, encoded as such"
    if count := manifest.total("truncated"):
        yield f"{count:,} texts truncated to the model's limit"
    if clipped := manifest.total("clipped"):
        share = clipped / (manifest.rows * manifest.dimension)
        yield f"{clipped:,} numbers ({share:.2%}) were cut to int8's scale, which is of {manifest.calibration}"
