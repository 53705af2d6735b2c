"""Reader of the texts in a file or on standard input, in chunks, which counts them and computes their digest."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from stsbench.data.own.table import column_of_texts, is_table
from stsbench.data.sets.lines import check_text, numbered_lines, stream_lines, without_end
from stsbench.errors import DataError
from stsbench.wording import counted

STDIN = "-"


class Texts:
    """Texts of a UTF-8 file, one per line, stripped of white space; an empty line is an empty text, so row i is line i + 1.

    With `column` 0 the whole line is the text, and tabs, otherwise an error, are part of it; a column from 1 selects one of
    the cells between tabs. A table (.csv, .tsv, .jsonl, .parquet, a folder that `datasets` saved) is read by its column of
    texts: `column` is its name, or its position in a file without a header.
    """

    def __init__(self, source: str, column: int | str | None = None, stream: BinaryIO | None = None) -> None:
        """Open `source`, a path or "-" for standard input (or `stream`). Raises DataError for a column it cannot have."""
        if isinstance(column, str) and column.isdecimal():
            column = int(column)
        self.column, self.count, self.bytes, self.notes = column, 0, 0, list[str]()
        self._sha = hashlib.sha256()
        self._stream = stream
        self._path = None if source == STDIN else Path(source)
        self.name = STDIN if self._path is None else self._path.name
        self._table = self._path is not None and is_table(self._path)
        if column == 0 and self._table and self._path is not None and self._path.suffix.lower() != ".tsv":
            raise DataError(f"{source} is a table, which has no lines of text: --column takes the name of a column")
        self._table = self._table and column != 0
        if (isinstance(column, int) and column < 0) or (isinstance(column, str) and not self._table):
            raise DataError(f"--column {column}: {source} has no columns with names: give the position between tabs, from 1")

    def chunks(self, size: int) -> Iterator[list[str]]:
        """Yield lists of `size` texts, the last perhaps shorter. Raises DataError naming the line."""
        texts = (text for _, text in self.numbered())
        while chunk := list(islice(texts, size)):
            self.count += len(chunk)
            yield chunk

    def digest(self) -> str:
        """Return the sha256 of the bytes read so far."""
        return self._sha.hexdigest()

    def expected(self) -> int | None:
        """Estimate the number of texts from the bytes read so far; None for a stream, for a table, and at the start."""
        if self._path is None or self._table or not self.bytes:
            return None
        try:
            return max(self.count, round(self._path.stat().st_size * self.count / self.bytes))
        except OSError:
            return None

    def numbered(self) -> Iterator[tuple[int, str]]:
        """Yield (line from 1, text); for a table the number is the line or row on which the table's row begins."""
        if self._table and self._path is not None:
            files = sorted(filter(Path.is_file, self._path.iterdir())) if self._path.is_dir() else (self._path,)
            for file in files:
                try:
                    with file.open("rb") as stream:
                        while block := stream.read(1 << 20):
                            self._read(block)
                except OSError as error:
                    raise DataError(f"cannot read {file}: {error.strerror or error}") from error
            if isinstance(self.column, int):
                self.notes.append(f"{self.name}: by --column {self.column} it has no header, and its first line is a text; "
                                  "of a file with a header give the column's name")
            yield from column_of_texts(self._path, self.column, self.notes)
            return
        for number, line in self._lines():
            if self.column or (self.column is None and "\t" in line):
                yield number, self._cell(number, without_end(line)).strip()
            else:
                yield number, line.strip()

    def _lines(self) -> Iterator[tuple[int, str]]:
        if self._path is not None:
            yield from numbered_lines(self._path, self._read)
            return
        try:
            yield from stream_lines(self._stream or sys.stdin.buffer, "standard input", self._read)
        except OSError as error:
            raise DataError(f"cannot read standard input: {error.strerror or error}") from error

    def _cell(self, number: int, line: str) -> str:
        cells, name = line.split("\t"), STDIN if self._path is None else self._path
        if not isinstance(self.column, int):
            raise DataError(f"{name}:{number} contains a tab: choose the column of the text, e.g. --column {len(cells)}, or "
                            "--column 0 for whole lines")
        if len(cells) < self.column:
            raise DataError(f"{name}:{number} has {counted(len(cells), 'column')}: there is no --column {self.column}")
        return cells[self.column - 1]

    def _read(self, raw: bytes) -> None:
        self._sha.update(raw)
        self.bytes += len(raw)


def checked_texts(texts: Iterable[str], what: str) -> Iterator[str]:
    """Return an iterator over texts given from Python, checking each. Raises DataError for a collection that is not an
    ordered iterable, and for a text, called `what` and its number, that is not a str or that no encoder can read."""
    if isinstance(texts, Mapping | Set) or not isinstance(texts, Iterable):  # the order of a set differs between processes
        raise DataError(f"texts are a list of str, or another iterable of them, not of type {type(texts).__name__}")
    return _checked(texts, what)


def _checked(texts: Iterable[str], kind: str) -> Iterator[str]:
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise DataError(f"{kind} {number:,} is not a str but of type {type(text).__name__}")
        check_text(text, f"{kind} {number:,}", "it")
        yield text
