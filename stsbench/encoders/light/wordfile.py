"""Reading some words' vectors out of a GloVe text file (`word v1 ... vd`), one pass, nothing else kept in memory.

The common crawl file has 2.2 million words (2.6 GB as float32), of which a benchmark needs some ten thousand.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Set
from functools import partial
from pathlib import Path
from typing import IO, cast

import numpy as np
from numpy.typing import NDArray

from stsbench.errors import EncoderError

Vector = NDArray[np.float32]
WIDEST = 65_536  # numbers of a vector: the file may be somebody else's, and memory is the machine's
LONGEST = 32 * WIDEST  # bytes of a line
_MARK = b"\xef\xbb\xbf"  # some editors begin a UTF-8 file with it; it is no part of the first word


def open_words(path: Path) -> IO[bytes]:
    """The file, unpacked if its name ends in .gz; as bytes, since words hold characters str takes for line ends."""
    return cast("IO[bytes]", gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def read_dimension(path: Path) -> int:
    """How wide the vectors are: from the word2vec header line or the first line. EncoderError if there are none."""
    try:
        with open_words(path) as stream:
            first = stream.readline(LONGEST).removeprefix(_MARK).rstrip(b" \r\n")
            header = header_dimension(first)
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, error) from error
    width = first.count(b" ") if header is None else header
    if width < 1:
        raise EncoderError(f"{path}:1: no word vector: expected a word and its numbers, separated by spaces")
    if width > WIDEST:
        raise EncoderError(f"{path}:1: vectors of more than {WIDEST:,} numbers are not read")
    return width


def header_dimension(line: bytes) -> int | None:
    """The d of a word2vec header line `count d`; None for any other line."""
    fields = line.split(b" ")
    return int(fields[1]) if len(fields) == 2 and all(field.isdigit() and len(field) < 19 for field in fields) else None


def read_words(path: Path, wanted: Set[bytes], dimension: int) -> tuple[dict[bytes, Vector], list[bytes]]:
    """float32 (d,) vectors of those `wanted` words (UTF-8, without spaces) that the file has, and which of them it lists
    again with other numbers.

    A word listed twice takes its last vector, as SentEval and sentence-transformers do. Raises EncoderError naming file
    and line when a line is too short anywhere, or when a wanted word's numbers are not finite.
    """
    vectors: dict[bytes, Vector] = {}
    again: dict[bytes, None] = {}
    try:
        with open_words(path) as stream:
            for number, raw in enumerate(iter(partial(stream.readline, LONGEST), b""), start=1):
                if len(raw) == LONGEST:
                    raise EncoderError(f"{path}:{number}: the line is longer than {LONGEST:,} bytes: not read")
                line = (raw.removeprefix(_MARK) if number == 1 else raw).rstrip(b" \r\n")
                if not line or (number == 1 and header_dimension(line) is not None):
                    continue
                if line.count(b" ") < dimension:
                    count = line.count(b" ")
                    raise EncoderError(f"{path}:{number}: {count} numbers after the word, expected {dimension}")
                # A word with a space in it (840B has ". . .") cannot equal a wanted one, but its first part can.
                word, _, rest = line.partition(b" ")
                if word in wanted:
                    vector = _numbers(path, number, rest, dimension)
                    if vector is None:
                        continue
                    if word in vectors and not np.array_equal(vectors[word], vector):
                        again[word] = None
                    vectors[word] = vector
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, error) from error
    return vectors, list(again)


def _numbers(path: Path, number: int, rest: bytes, dimension: int) -> Vector | None:
    """The last d fields as float32 (d,); None if the fields before them show that the word itself holds spaces."""
    fields = rest.split(b" ")
    if len(fields) > dimension:
        if not _is_number(fields[-dimension - 1]):
            return None
        raise EncoderError(f"{path}:{number}: {len(fields)} numbers after the word, expected {dimension}")
    try:
        vector = np.array([float(field) for field in fields], dtype=np.float32)
    except ValueError as error:
        raise EncoderError(f"{path}:{number}: not a number among the values: {error}") from error
    if not np.isfinite(vector).all():
        raise EncoderError(f"{path}:{number}: a value is infinite or not a number")
    return vector


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _unreadable(path: Path, error: BaseException) -> EncoderError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return EncoderError(f"cannot read word vectors from {path}: {reason}")
