"""Training rows from a file into the folder that a TextStore reads, in one pass and in bounded memory."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import shorten

import numpy as np

from stsbench.data.text.columns import LABEL, SCORE, VALUES
from stsbench.data.text.ragged import ArrayWriter, RaggedWriter, mapped
from stsbench.data.text.rows import OnBytes, RowReader, read_rows
from stsbench.data.text.seen import SIZE, Seen
from stsbench.errors import DataError

META = "meta.json"
_ROWS, _BYTES = 8192, 16 * 1024 * 1024  # rows, and bytes of text, held at a time
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_CLASSES = 1000  # more different labels than these: the column does not hold labels


@dataclass(frozen=True)
class ReadSettings:
    """How a file is read (see stsbench.training.recipes.recipe.DataSettings). format: text, csv, tsv or jsonl."""

    format: str
    columns: Mapping[str, str]
    where: Mapping[str, str]
    drop_blank: bool
    drop_duplicates: bool
    contiguous: bool
    lines_per_row: int = 1


@dataclass(frozen=True)
class StoreMeta:
    """Counts from reading a file. A row may be both blank and a duplicate."""

    roles: tuple[str, ...]
    rows: int  # read, empty lines aside
    left_out: int  # by data.where; the counts below are of the others
    blank: int  # with an empty text, or one of white space only
    duplicates: int  # equal to an earlier row in all texts, label and score as they are written
    empty_lines: int  # no rows: ends of documents, or between the rows of a table
    kept: int
    documents: int | None  # None unless contiguous
    labels: tuple[str, ...]  # names of the classes, in sorted order
    digest: str  # sha256 over the roles, the kept rows' texts and their documents


def write_store(path: Path, folder: Path, settings: ReadSettings, on_bytes: OnBytes) -> StoreMeta:
    """Read `path` once and fill `folder`. Raises DataError for any fault of the file, and where no row is left."""
    reader = read_rows(path, settings.format, settings.columns, settings.where, on_bytes, settings.lines_per_row)
    with ExitStack() as stack:
        writer = _Writer(path, folder, settings, reader.roles, stack)
        for line, texts in reader:
            writer.add(line, texts)
        writer.flush()
    meta = writer.meta(reader)
    if not meta.kept:
        raise DataError(f"{path}: none of {meta.rows:,} rows is left: {meta.left_out:,} left out by data.where, "
                        f"{meta.blank:,} blank, {meta.duplicates:,} duplicate")  # fmt: skip
    if LABEL in reader.roles:
        _sort_labels(folder, writer.classes)
    (folder / META).write_text(json.dumps(asdict(meta)), encoding="utf-8")
    return meta


class _Writer:
    def __init__(self, path: Path, folder: Path, settings: ReadSettings, roles: tuple[str, ...], stack: ExitStack) -> None:
        self.path, self.settings, self.roles = path, settings, roles
        self.blank = self.duplicates = self.empty_lines = self.kept = self.seen_rows = 0
        self.documents = 0  # with a row that is kept
        self._part, self._last_part = 0, -1  # of the file, between empty lines: being read; of the last row kept
        self.classes: dict[str, int] = {}  # label -> number, in order of appearance
        self.sha = hashlib.sha256(json.dumps([roles, settings.contiguous]).encode())
        self._seen = Seen()
        self._texts = {
            i: stack.enter_context(RaggedWriter(folder, f"text{i}", "u1"))
            for i, role in enumerate(roles) if role not in VALUES
        }  # fmt: skip
        self._lines = stack.enter_context(ArrayWriter(folder, "lines", "<i8"))
        self._labels = stack.enter_context(ArrayWriter(folder, "labels", "<i4"))
        self._scores = stack.enter_context(ArrayWriter(folder, "scores", "<f8")) if SCORE in roles else None
        self._documents = stack.enter_context(ArrayWriter(folder, "documents", "<i8"))
        self._clear()

    def add(self, line: int, texts: tuple[str, ...]) -> None:
        """One row of the file, or one of its empty lines."""
        blank = not all(map(str.strip, texts))
        if not texts or (blank and self.settings.contiguous and self.settings.format == "text"):
            self.empty_lines += 1
            self._part += 1
            return
        self.seen_rows += 1
        self.blank += blank
        fields = [text.encode("utf-8") for text in texts]
        record = b"".join(b"%d:%b" % (len(field), field) for field in fields)  # no two rows give the same bytes
        self._rows.append((line, self._part, blank, fields, record))
        self._hashes.append(hashlib.blake2b(record, digest_size=SIZE).digest())
        self._pending_bytes += len(record)
        if len(self._rows) >= _ROWS or self._pending_bytes >= _BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows that are kept."""
        fresh = self._seen.fresh(self._hashes)
        self.duplicates += len(fresh) - int(fresh.sum())
        rows = [
            row for row, new in zip(self._rows, fresh.tolist(), strict=True)
            if not (row[2] and self.settings.drop_blank) and (new or not self.settings.drop_duplicates)
        ]
        documents = []
        for _, part, _, _, record in rows:
            if self.settings.contiguous:
                self.documents += part != self._last_part
                self._last_part = part
                documents.append(self.documents - 1)
                self.sha.update(b"%d\n" % documents[-1])
            self.sha.update(record)
        for i, writer in self._texts.items():
            writer.add(b"".join(row[3][i] for row in rows), [len(row[3][i]) for row in rows])
        self._lines.add([row[0] for row in rows])
        self._documents.add(documents)
        if LABEL in self.roles:
            at = self.roles.index(LABEL)
            self._labels.add([self._class(row[3][at], row[0]) for row in rows])
        if self._scores is not None:
            at = self.roles.index(SCORE)
            self._scores.add([self._score(row[3][at], row[0]) for row in rows])
        self.kept += len(rows)
        self._clear()

    def meta(self, reader: RowReader) -> StoreMeta:
        return StoreMeta(
            self.roles, self.seen_rows + reader.left_out, reader.left_out, self.blank, self.duplicates, self.empty_lines,
            self.kept, self.documents if self.settings.contiguous else None, tuple(sorted(self.classes)),
            self.sha.hexdigest(),
        )  # fmt: skip

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

    def _clear(self) -> None:
        self._rows: list[tuple[int, int, bool, list[bytes], bytes]] = []
        self._hashes: list[bytes] = []
        self._pending_bytes = 0


def _sort_labels(folder: Path, classes: Mapping[str, int]) -> None:
    """Number the classes in the sorted order of their names instead of the order of appearance."""
    number = np.zeros(len(classes), np.int32)
    for new, name in enumerate(sorted(classes)):
        number[classes[name]] = new
    labels = mapped(folder / "labels", "<i4")
    with ArrayWriter(folder, "labels.sorted", "<i4") as writer:
        for start in range(0, len(labels), 1_000_000):
            writer.add(number[labels[start : start + 1_000_000]])
    (folder / "labels.sorted").replace(folder / "labels")
