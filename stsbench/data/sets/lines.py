"""Readers of the lines of text files of any size, in strict UTF-8, split at line feeds only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from stsbench.errors import DataError

LONGEST = 16 * 1024 * 1024  # bytes per line: bounds memory on a file that is not text

_BLOCK = 4 * 1024 * 1024  # bytes read at a time by `line_blocks`
_BOM = b"\xef\xbb\xbf"
_NOT_TEXT = {
    b"\x1f\x8b": "gzip-compressed", b"PK\x03\x04": "a zip archive", b"BZh": "bzip2-compressed",
    b"\xfd7zXZ\x00": "xz-compressed", b"\x28\xb5\x2f\xfd": "zstd-compressed", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16",
}


def numbered_lines(path: Path, on_bytes: Callable[[bytes], object] | None = None) -> Iterator[tuple[int, str]]:
    """Yield (number from 1, line with its line end) for every line; `on_bytes` is called with all bytes, in order.

    U+2028 or U+0085 inside a sentence is text, not a line end; a byte order mark is dropped. Raises DataError, naming file
    and line, where the file is unreadable, compressed or not UTF-8, and for a NUL byte or a line longer than LONGEST.
    """
    if path.exists() and not path.is_file():
        raise DataError(f"{path} is not a regular file")
    try:
        with path.open("rb") as stream:
            yield from stream_lines(stream, path, on_bytes)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


def stream_lines(
    stream: BinaryIO, name: Path | str, on_bytes: Callable[[bytes], object] | None = None
) -> Iterator[tuple[int, str]]:
    """Yield the lines of a stream, `name` in messages, as `numbered_lines` does. Raises OSError if it cannot be read."""
    number = 0
    while raw := stream.readline(LONGEST + 1):
        number += 1
        if on_bytes is not None:
            on_bytes(raw)
        if number == 1 and not (raw := _text_of_start(raw, name)):
            continue
        yield number, _decoded(raw, name, number)


def line_blocks(
    path: Path, on_bytes: Callable[[bytes], object] | None = None
) -> Iterator[tuple[int, list[str], list[bytes]]]:
    """Yield (number of the first line, lines without their ends, the same lines as UTF-8 bytes) in blocks of many lines,
    with the lines and errors of `numbered_lines` and `without_end` in a third of the time."""
    number = 1
    try:
        with path.open("rb") as stream:
            while raw := stream.read(_BLOCK) + stream.readline(LONGEST + 1):
                if on_bytes is not None:
                    on_bytes(raw)
                if number == 1 and not (raw := _text_of_start(raw, path)):
                    return
                texts, fields = _split(raw, path, number)
                yield number, texts, fields
                number += len(texts)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


def _split(raw: bytes, path: Path, number: int) -> tuple[list[str], list[bytes]]:
    """Return the lines of a block of whole lines, as text and as bytes."""
    fields = raw.removesuffix(b"\n").split(b"\n")
    try:
        texts = raw.removesuffix(b"\n").decode("utf-8").split("\n")
    except UnicodeDecodeError:
        texts = []
    if not texts or b"\0" in raw or max(map(len, fields)) >= LONGEST:
        texts = [without_end(_decoded(line, path, number + i)) for i, line in enumerate(BytesIO(raw))]  # or raises
    if b"\r" in raw:
        last = len(fields) - (not raw.endswith(b"\n"))  # a carriage return is text unless a line feed follows
        fields = [*(field.removesuffix(b"\r") for field in fields[:last]), *fields[last:]]
        texts = [field.decode("utf-8") for field in fields]
    return texts, fields


def without_end(line: str) -> str:
    """Return a line without its line feed, and without a carriage return before the line feed."""
    return line[:-2] if line.endswith("\r\n") else line.removesuffix("\n")


def check_text(text: str, location: str, what: str) -> None:
    """Raise DataError, beginning with `location`, for a lone surrogate, which JSON can hold and UTF-8 cannot."""
    if text.isascii():
        return
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(f"{location}: {what} holds half a surrogate pair (\\u{ord(text[error.start]):x})") from error


def check_no_nul(text: str, location: str, what: str) -> None:
    """Raise DataError, beginning with `location`, for a NUL character, which JSON and Parquet can hold, but which is not
    allowed in text files either."""
    if "\0" in text:
        raise DataError(f"{location}: {what} holds a NUL character (\\u0000): leave it out")


def _text_of_start(raw: bytes, path: Path | str) -> bytes:
    """Return the first bytes of a file without a byte order mark. Raises DataError where they are those of another kind of
    file, such as a zip archive."""
    for start, what in _NOT_TEXT.items():
        if raw.startswith(start) and not (start == b"BZh" and raw[4:10] != b"1AY&SY"):
            wanted = "convert it to UTF-8" if what == "UTF-16" else "unpack it first"
            raise DataError(f"{path} is {what}, not plain text: {wanted}")
    return raw.removeprefix(_BOM)


def _decoded(raw: bytes, path: Path | str, number: int) -> str:
    if len(raw) > LONGEST:
        raise DataError(f"{path}:{number}: a line of more than {LONGEST:,} bytes: not a text file")
    if b"\0" in raw:
        raise DataError(f"{path}:{number}: a NUL byte: not a text file")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}:{number}: not valid UTF-8 (byte 0x{raw[error.start]:02x}): convert the file") from error
