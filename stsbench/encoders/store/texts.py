"""The texts of a file or of standard input, so many at a time; what was read is counted and digested on the way."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Set, Sized
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from stsbench.data.sets.lines import check_text, lines_of, numbered_lines, without_end
from stsbench.encoders.store.manifest import InputNote
from stsbench.errors import DataError
from stsbench.wording import counted

STDIN = "-"
_TABLES = {".csv", ".json", ".jsonl", ".parquet"}


class Texts:
    """One text a line, UTF-8, without white space around it; an empty line is an empty text, so that row i is line i + 1.

    A text may hold tabs only where `column` is 0; a column, from 1, is the text of each line between tabs.
    """

    def __init__(self, source: str, column: int | None = None, stream: BinaryIO | None = None) -> None:
        """source: a path, or "-" for standard input (or `stream`). DataError: a table of another format."""
        self.column, self.count, self.bytes = column, 0, 0
        self._sha = hashlib.sha256()
        self._stream = stream
        self._path = None if source == STDIN else Path(source)
        self.name = STDIN if self._path is None else self._path.name
        if self._path is not None and self._path.suffix.lower() in _TABLES:
            what = f"a table ({self._path.suffix})"
            raise DataError(f"{source} is {what}: make it text, one sentence a line, or .tsv with --column")

    def chunks(self, size: int) -> Iterator[list[str]]:
        """Lists of `size` texts, the last one shorter. DataError naming the line: see `stsbench.data.sets.lines`."""
        texts = self._texts()
        while chunk := list(islice(texts, size)):
            self.count += len(chunk)
            yield chunk

    def note(self) -> InputNote:
        """What was read so far."""
        return InputNote(name=self.name, sha256=self._sha.hexdigest(), bytes=self.bytes)

    def expected(self) -> int | None:
        """About how many texts there are, by the bytes read so far; None of a stream, or before the first."""
        if self._path is None or not self.bytes:
            return None
        try:
            return max(self.count, round(self._path.stat().st_size * self.count / self.bytes))
        except OSError:
            return None

    def _texts(self) -> Iterator[str]:
        for number, line in self._lines():
            if self.column or (self.column is None and number == 1):
                yield self._cell(number, without_end(line)).strip()
            else:
                yield line.strip()

    def _lines(self) -> Iterator[tuple[int, str]]:
        if self._path is not None:
            yield from numbered_lines(self._path, self._read)
            return
        try:
            yield from lines_of(self._stream or sys.stdin.buffer, "standard input", self._read)
        except OSError as error:
            raise DataError(f"cannot read standard input: {error.strerror or error}") from error

    def _cell(self, number: int, line: str) -> str:
        cells = line.split("\t")
        if self.column is None and len(cells) > 1:
            raise DataError(f"{self.name}:1 contains a tab: choose the column of the text, e.g. --column {len(cells)}, or "
                            "--column 0 for whole lines")
        if self.column is not None and len(cells) < self.column:
            raise DataError(f"{self.name}:{number} has {counted(len(cells), 'column')}: there is no --column {self.column}")
        return cells[(self.column or 1) - 1]

    def _read(self, raw: bytes) -> None:
        self._sha.update(raw)
        self.bytes += len(raw)


class GivenTexts(Texts):
    """Texts of a program, row i being text i, without white space around it. A text may hold tabs and line breaks."""

    def __init__(self, texts: Iterable[str]) -> None:
        """DataError: there is nothing to go through."""
        super().__init__(STDIN)
        self._listed = checked_texts(texts, "text")
        self._length = len(texts) if isinstance(texts, Sized) else None

    def expected(self) -> int | None:
        """How many there are, where that is known before they are read."""
        return self._length

    def _texts(self) -> Iterator[str]:
        for text in self._listed:
            self._read(f"{text}\n".encode())
            yield text.strip()


def checked_texts(texts: Iterable[str], what: str) -> Iterator[str]:
    """The texts of a program, one after another. DataError: not an iterable, or one without an order; and, naming it as a
    `what`, one that is not a str, or that no encoder can read."""
    if isinstance(texts, Mapping | Set) or not isinstance(texts, Iterable):  # a set's order changes with each process
        raise DataError(f"texts are a list of str, or another iterable of them, not of type {type(texts).__name__}")
    return _checked(texts, what)


def _checked(texts: Iterable[str], what: str) -> Iterator[str]:
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise DataError(f"{what} {number:,} is not a str but of type {type(text).__name__}")
        check_text(text, f"{what} {number:,}", "it")
        yield text
