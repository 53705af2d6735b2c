"""Sizes that the pages of a Parquet file take when read, from the page headers that the reader itself uses: the sizes in
the footer may be wrong.

A page header is a struct of Thrift's compact protocol
(https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

MOST_FOOTER = 1_000_000  # bytes; when parsed by pyarrow each takes some hundred bytes of memory
_MOST_HEADER = 64_000  # bytes, enough for a header with statistics of long texts
# Parquet's numbers of encodings in which a value takes no more room than in its page, or is in a dictionary. In the
# delta encodings a few bytes can stand for any number of texts, each as long as the one before.
IN_DICTIONARY = frozenset({2, 8})  # PLAIN_DICTIONARY, RLE_DICTIONARY
BOUNDED = IN_DICTIONARY | {0, 3, 9}  # PLAIN, RLE, BYTE_STREAM_SPLIT
_DICTIONARY = 2  # type of a dictionary page
_HEADERS = {0: 5, _DICTIONARY: 7, 3: 8}  # type -> the field with its own header: data, dictionary, data of version 2
_ENCODING = {0: 2, _DICTIONARY: 2, 3: 4}  # type -> that header's field with the encoding; field 1 is the number of values


@dataclass(frozen=True)
class Page:
    """A page of a column. packed, unpacked: size in bytes; values: their number; encoding: Parquet's number of it."""

    dictionary: bool
    packed: int
    unpacked: int
    values: int
    encoding: int


def check_footer(stream: BinaryIO) -> None:
    """Raise ValueError for a footer of more than MOST_FOOTER bytes, without reading it."""
    stream.seek(-8, 2) if stream.seek(0, 2) >= 8 else stream.seek(0)
    length, end = int.from_bytes(stream.read(4), "little"), stream.read(4)
    if end == b"PAR1" and length > MOST_FOOTER:
        raise ValueError(f"its footer has {length:,} bytes, at most {MOST_FOOTER:,} are read")


def pages(stream: BinaryIO, chunk: Any) -> Iterator[Page]:
    """Yield the pages of a column chunk, given pyarrow's metadata of it. Raises ValueError where the pages do not fill the
    chunk or do not hold its number of values, as pyarrow might then read other pages."""
    at = chunk.data_page_offset
    if chunk.has_dictionary_page:
        at = min(at, chunk.dictionary_page_offset)
    end, values = at + chunk.total_compressed_size, 0
    while at < end:
        stream.seek(at)
        header, length = _struct(stream.read(min(_MOST_HEADER, end - at)), 0)
        kind = header.get(_HEADERS.get(header.get(1, -1), -1))
        if not isinstance(kind, dict):
            raise ValueError("a page is of an unknown kind")
        sizes = header.get(3, -1), header.get(2, -1), kind.get(1, -1), kind.get(_ENCODING[header[1]], -1)
        if not all(isinstance(size, int) and 0 <= size < 2**31 for size in sizes):
            raise ValueError("the header of a page is damaged")
        page = Page(header[1] == _DICTIONARY, *sizes)
        at += length + page.packed
        values += 0 if page.dictionary else page.values
        yield page
    if at != end or values != chunk.num_values:
        raise ValueError(f"the pages of {chunk.path_in_schema} are not those that its footer names")


def _struct(data: bytes, start: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """Return the fields of a struct, number -> int, bool, dict of a struct or None for a skipped value, and its end."""
    fields: dict[int, Any] = {}
    number = 0
    while kind := _byte(data, start):
        start += 1
        if not kind >> 4:
            raise ValueError("the header of a page is not as Thrift writes it")
        number += kind >> 4  # field numbers ascend, so none can repeat
        fields[number], start = _value(data, start, kind & 15, depth)
    return fields, start + 1


def _value(data: bytes, start: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (1, 2):
        return kind == 1, start
    if kind == 3:
        return _byte(data, start), start + 1
    if kind in (4, 5, 6):
        number, start = _varint(data, start)
        return number >> 1 ^ -(number & 1), start
    if kind == 8:
        length, start = _varint(data, start)
        return None, start + length
    if kind == 12 and depth < 3:
        return _struct(data, start, depth + 1)
    raise ValueError("the header of a page holds what no header has")


def _varint(data: bytes, start: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 35, 7):
        byte = _byte(data, start)
        start += 1
        number |= (byte & 127) << shift
        if byte < 128:
            break
    else:
        raise ValueError("a number in the header of a page is too large")
    if number >= 2**32:
        raise ValueError("a number in the header of a page is too large")
    return number, start


def _byte(data: bytes, start: int) -> int:
    if start >= len(data):
        raise ValueError("the header of a page is too long")
    return data[start]
