"""Writer of the folder that a TextStore reads: training rows of a file, in one pass and in bounded memory."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from hashlib import blake2b
from itertools import accumulate, compress
from pathlib import Path
from textwrap import shorten

import numpy as np
from numpy.typing import NDArray

from stsbench.data.sets.lines import line_blocks
from stsbench.data.text.cache import ArrayWriter, RaggedWriter, mapped
from stsbench.data.text.rows import LABEL, SCORE, VALUES, OnBytes, RowReader, read_rows
from stsbench.errors import DataError

SIZE = 16  # bytes of a hash: among a billion different rows any two collide with a probability of 1e-21
_Halves = NDArray[np.uint64]  # (2, n), first and last eight bytes of sorted hashes, as numbers sort faster than bytes
META = "meta.json"
_ROWS, _BYTES = 65_536, 16 * 1024 * 1024  # rows, and bytes of text, that are held in memory
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_CLASSES = 1000  # a column with more distinct values is not taken for labels


class EarlierRows:
    """Set of 16-byte hashes of the rows read so far. A hash takes 16 bytes, and 48 for a moment while runs are merged."""

    def __init__(self) -> None:
        self._runs: list[_Halves] = []  # sorted, without repetition, each more than twice as long as the next

    def fresh(self, hashes: Sequence[bytes]) -> NDArray[np.bool_]:
        """Return bool (n,), which of n hashes occurred neither in an earlier call nor earlier in this one; add them."""
        result = np.zeros(len(hashes), dtype=np.bool_)
        if not len(hashes):
            return result
        halves = np.frombuffer(b"".join(hashes), np.uint64).reshape(-1, 2).T
        order = np.lexsort(halves[::-1])
        halves = halves[:, order]
        first = np.append(True, (halves[:, 1:] != halves[:, :-1]).any(axis=0))
        halves, order = halves[:, first], order[first]  # lexsort is stable: of equal hashes the earliest comes first
        known = np.zeros(len(order), dtype=np.bool_)
        for run in self._runs:
            known |= _holds(run, halves)
        result[order[~known]] = True
        if not known.all():
            self._runs.append(halves[:, ~known])
        while len(self._runs) > 1 and self._runs[-2].shape[1] <= 2 * self._runs[-1].shape[1]:
            last, before = self._runs.pop(), self._runs.pop()
            both = np.concatenate([before, last], axis=1)
            self._runs.append(both[:, np.argsort(both[0], kind="stable")])
        return result


def _holds(run: _Halves, halves: _Halves) -> NDArray[np.bool_]:
    """Return bool (n,), which of n hashes a run holds. Hashes with equal first halves are neighbours in the run."""
    known = np.zeros(halves.shape[1], dtype=np.bool_)
    positions = np.searchsorted(run[0], halves[0])
    left = np.arange(halves.shape[1])
    while len(left := left[positions[left] < run.shape[1]]):
        left = left[run[0, positions[left]] == halves[0, left]]
        known[left] |= run[1, positions[left]] == halves[1, left]
        positions[left] += 1
    return known


@dataclass(frozen=True)
class ReadSettings:
    """Settings of reading a file (see stsbench.training.recipes.sections.DataSettings). format: text, csv, tsv or jsonl."""

    format: str
    columns: Mapping[str, str]
    where: Mapping[str, str]
    drop_blank: bool
    drop_duplicates: bool
    contiguous: bool
    lines_per_row: int = 1
    min_characters: int = 0


@dataclass(frozen=True)
class StoreMeta:
    """Counts from reading a file. A row may be blank, a duplicate and short at once."""

    roles: tuple[str, ...]
    rows: int  # all rows of the file; empty lines are not rows
    left_out: int  # rows excluded by data.where, which the following counts do not include
    blank: int  # rows with an empty text, or a text of white space only
    duplicates: int  # rows equal to an earlier one in all texts, and in label and score as they are written
    empty_lines: int  # lines that end documents, or lie between the rows of a table
    kept: int
    documents: int | None  # None unless the rows were read as contiguous
    labels: tuple[str, ...]  # names of the classes, in sorted order
    digest: str  # sha256 of the roles, the kept rows' texts and their documents
    short: int = 0  # rows left out for a text of fewer characters than data.min_characters


def write_store(path: Path, folder: Path, settings: ReadSettings, on_bytes: OnBytes) -> StoreMeta:
    """Read `path` once, fill `folder` and return the counts. Raises DataError for a fault of the file or without a row."""
    plain = settings.format == "text" and settings.lines_per_row == 1  # line_blocks reads the same rows faster
    on_read = None if plain else on_bytes
    reader = read_rows(path, settings.format, settings.columns, settings.where, on_read, settings.lines_per_row)
    with ExitStack() as stack:
        writer = _Writer(path, folder, settings, reader.roles, stack)
        if plain:
            for start, texts, fields in line_blocks(path, on_bytes):
                writer.add_lines(start, texts, fields)
        else:
            for line, row in reader:
                writer.add(line, row)
        writer.flush()
    meta = writer.meta(reader)
    if not meta.kept:
        raise DataError(f"{path}: none of {meta.rows:,} rows is left: {meta.left_out:,} left out by data.where, "
                        f"{meta.blank:,} blank, {meta.duplicates:,} duplicate, {meta.short:,} shorter than "
                        f"data.min_characters {settings.min_characters}")
    if LABEL in reader.roles:
        _sort_labels(folder, writer.classes)
    (folder / META).write_text(json.dumps(asdict(meta)), encoding="utf-8")
    return meta


class _Writer:
    def __init__(self, path: Path, folder: Path, settings: ReadSettings, roles: tuple[str, ...], stack: ExitStack) -> None:
        self.path, self.settings, self.roles = path, settings, roles
        self.blank = self.duplicates = self.short = self.empty_lines = self.kept = self.rows_read = 0
        self.documents = 0  # number of documents with a kept row
        self._part, self._last_part = 0, -1  # the current part between empty lines, and the last kept row's
        self.classes: dict[str, int] = {}  # label -> number, in order of appearance
        self.sha = hashlib.sha256(json.dumps([roles, settings.contiguous]).encode())
        self._earlier = EarlierRows()
        self._texts = {
            i: stack.enter_context(RaggedWriter(folder, f"text{i}", "u1"))
            for i, role in enumerate(roles) if role not in VALUES
        }
        self._lines = stack.enter_context(ArrayWriter(folder, "lines", "<i8"))
        self._labels = stack.enter_context(ArrayWriter(folder, "labels", "<i4"))
        self._scores = stack.enter_context(ArrayWriter(folder, "scores", "<f8")) if SCORE in roles else None
        self._documents = stack.enter_context(ArrayWriter(folder, "documents", "<i8"))
        self._clear()

    def _clear(self) -> None:
        self._numbers: list[int] = []
        self._parts: list[int] = []
        self._blank: list[bool] = []
        self._records: list[bytes] = []
        self._fields: list[list[bytes]] = [[] for _ in self.roles]
        self._pending_bytes = 0

    def add(self, line: int, texts: tuple[str, ...]) -> None:
        """Add one row of the file, or an empty line, for which `texts` is ()."""
        blank = not all(map(str.strip, texts))
        if not texts or (blank and self.settings.contiguous and self.settings.format == "text"):
            self.empty_lines += 1
            self._part += 1
            return
        fields = [text.encode("utf-8") for text in texts]
        record = b"".join(b"%d:%b" % (len(field), field) for field in fields)  # unambiguous by the lengths
        self._buffer([line], [self._part], [blank], [[field] for field in fields], [record])
        self._pending_bytes += len(record)
        if len(self._numbers) >= _ROWS or self._pending_bytes >= _BYTES:
            self.flush()

    def add_lines(self, start: int, texts: list[str], fields: list[bytes]) -> None:
        """Add lines of plain text, as texts and as UTF-8 bytes; start: the number of the first line."""
        numbers: Sequence[int] = range(start, start + len(texts))
        blank = [not text or text.isspace() for text in texts]
        parts = [self._part] * len(texts)
        if self.settings.contiguous and any(blank):
            self.empty_lines += sum(blank)
            parts = [self._part + ends for ends in accumulate(blank)]
            self._part = parts[-1]
            rows = [not empty for empty in blank]
            numbers, parts = list(compress(numbers, rows)), list(compress(parts, rows))
            fields = list(compress(fields, rows))
            blank = [False] * len(fields)
        for i in range(0, len(fields), _ROWS):
            batch = slice(i, i + _ROWS)
            records = [b"%d:%b" % (len(field), field) for field in fields[batch]]
            self._buffer(numbers[batch], parts[batch], blank[batch], [fields[batch]], records)
            self.flush()

    def _buffer(
        self, numbers: Sequence[int], parts: list[int], blank: list[bool], fields: list[list[bytes]], records: list[bytes]
    ) -> None:
        """Append rows, given as columns: a tuple for each row would burden the garbage collector."""
        self._numbers += numbers
        self._parts += parts
        self._blank += blank
        self._records += records
        for column, values in zip(self._fields, fields, strict=True):
            column += values

    def flush(self) -> None:
        """Count the buffered rows and write those that are kept."""
        fresh = self._earlier.fresh([blake2b(record, digest_size=SIZE).digest() for record in self._records])
        self.rows_read += len(fresh)
        self.blank += sum(self._blank)
        self.duplicates += len(fresh) - int(fresh.sum())
        short = self._short()
        self.short += int(short.sum())
        kept = ~short
        if self.settings.drop_blank:
            kept &= ~np.array(self._blank, dtype=np.bool_)
        if self.settings.drop_duplicates:
            kept &= fresh
        if not kept.all():
            chosen = kept.tolist()
            self._numbers, self._parts = list(compress(self._numbers, chosen)), list(compress(self._parts, chosen))
            self._records, *self._fields = (list(compress(column, chosen)) for column in (self._records, *self._fields))
        if self.settings.contiguous:
            documents = []  # each row's document, from 0, which is part of the digest
            for part, record in zip(self._parts, self._records, strict=True):
                self.documents += part != self._last_part
                self._last_part = part
                documents.append(self.documents - 1)
                self.sha.update(b"%d\n%b" % (documents[-1], record))
            self._documents.add(documents)
        else:
            self.sha.update(b"".join(self._records))
        for i, writer in self._texts.items():
            writer.add(b"".join(self._fields[i]), list(map(len, self._fields[i])))
        self._lines.add(self._numbers)
        if LABEL in self.roles:
            self._labels.add(list(map(self._class, self._fields[self.roles.index(LABEL)], self._numbers)))
        if self._scores is not None:
            self._scores.add(list(map(self._score, self._fields[self.roles.index(SCORE)], self._numbers)))
        self.kept += len(self._numbers)
        self._clear()

    def _short(self) -> NDArray[np.bool_]:
        """Return bool (n,), which buffered rows have a text that is too short, not counting white space at its ends."""
        fewest = self.settings.min_characters
        if not fewest:
            return np.zeros(len(self._numbers), dtype=np.bool_)
        rows = zip(*(self._fields[i] for i in self._texts), strict=True)
        return np.array([any(len(text.decode("utf-8").strip()) < fewest for text in row) for row in rows], dtype=np.bool_)

    def meta(self, reader: RowReader) -> StoreMeta:
        return StoreMeta(
            self.roles, self.rows_read + reader.left_out, reader.left_out, self.blank, self.duplicates, self.empty_lines,
            self.kept, self.documents if self.settings.contiguous else None, tuple(sorted(self.classes)),
            self.sha.hexdigest(), self.short,
        )

    def _class(self, label: bytes, line: int) -> int:
        name = label.decode("utf-8")
        if not name.strip():
            raise DataError(f"{self.path}:{line}: the label is empty; leave such rows out with data.drop_blank")
        if len(self.classes) == _CLASSES and name not in self.classes:
            raise DataError(f"{self.path}:{line}: more than {_CLASSES:,} different labels; is that column the label?")
        return self.classes.setdefault(name, len(self.classes))

    def _score(self, field: bytes, line: int) -> float:
        text = field.decode("utf-8").strip()
        if not text:
            raise DataError(f"{self.path}:{line}: the score is empty; leave such rows out with data.drop_blank")
        if not _NUMBER.fullmatch(text) or not math.isfinite(float(text)):
            raise DataError(f"{self.path}:{line}: the score {shorten(text, 40)!r} is not a number")
        return float(text)


def _sort_labels(folder: Path, classes: Mapping[str, int]) -> None:
    """Renumber the classes of the written labels in the sorted order of their names."""
    number = np.zeros(len(classes), np.int32)
    for new, name in enumerate(sorted(classes)):
        number[classes[name]] = new
    labels = mapped(folder / "labels", "<i4")
    with ArrayWriter(folder, "labels.sorted", "<i4") as writer:
        for start in range(0, len(labels), 1_000_000):
            writer.add(number[labels[start : start + 1_000_000]])
    (folder / "labels.sorted").replace(folder / "labels")
