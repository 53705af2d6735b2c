"""Arrays of observations as columns of a Parquet table: a row for each set, a list for each array.

A row is identified by a digest over its arrays, not over the file's bytes, as another version of pyarrow may write the same
arrays in other bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.data.sets.parquet_pages import BOUNDED, IN_DICTIONARY, check_footer, pages
from stsbench.evaluation.protocol import Observations
from stsbench.parsing import parse_json

ARRAY, NAMES = "observed.", "names."  # prefixes of the columns of arrays, and of names
STEP = 2.0**-26  # observations are rounded to its multiples; float32 has steps of 2^-24 between cosines above a half
LAYOUT = "layout"  # the column with a JSON text: array -> [numpy type, shape]
_TYPES = {np.dtype(kind).newbyteorder("<").str for kind in ("bool", *np.typecodes["AllInteger"], *"efd")}
# Memory that reading a file may take: the larger of a number of bytes and a multiple of the file's size. A run over every
# protocol takes thirty million bytes, one of millions of pairs 56 a pair, up to 18 times the file's size.
MOST_UNPACKED, OF_EACH_BYTE = 450_000_000, 20
_READING = 5  # memory for reading an array, in multiples of its size: pyarrow also holds the column's page and levels
_OBJECT = 400  # bytes, at most, of a value in a column without arrays
_JSON = 40  # bytes, at most, for a character of JSON


def observations_digest(observations: Observations) -> str:
    """Return the sha256 of the arrays (key, type, shape, little-endian values) and the names, both in the order of keys."""
    digest = hashlib.sha256()
    for key, array in sorted(observations.arrays.items()):
        fixed = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        digest.update(f"{key} {fixed.dtype.str} {array.shape}\n".encode())
        digest.update(fixed.reshape(-1).data)
    for key, listed in sorted(observations.names.items()):
        digest.update(json.dumps([key, listed]).encode())
    return digest.hexdigest()


def to_columns(rows: Sequence[Observations]) -> dict[str, Any]:
    """Return column -> pyarrow array with a value for each row, null where the row lacks the column's array.

    An array that rows hold in different types has a column for each type: observed.NAME:TYPE.
    """
    import pyarrow as pa

    types: dict[str, set[str]] = {}
    for row in rows:
        for key, array in row.arrays.items():
            types.setdefault(key, set()).add(array.dtype.name)
    columns: dict[str, Any] = {}
    for key, kinds in sorted(types.items()):
        for kind in sorted(kinds):
            lists = [np.ascontiguousarray(row.arrays[key], dtype=kind).reshape(-1)
                     if key in row.arrays and row.arrays[key].dtype.name == kind else None for row in rows]
            name = ARRAY + (key if len(kinds) == 1 else f"{key}:{kind}")
            columns[name] = pa.array(lists, pa.list_(pa.from_numpy_dtype(kind)))
    for key in sorted({key for row in rows for key in row.names}):
        columns[NAMES + key] = pa.array([row.names.get(key) for row in rows], pa.list_(pa.string()))
    layouts = [{key: [array.dtype.newbyteorder("<").str, array.shape] for key, array in row.arrays.items()} for row in rows]
    columns[LAYOUT] = pa.array([json.dumps(layout, sort_keys=True) for layout in layouts])
    return columns


def packed(columns: Mapping[str, Any], form: bytes) -> bytes:
    """Return the bytes of a Parquet file of these columns, uncompressed where `opened` would refuse the compressed file for
    its ratio, as for millions of equal numbers. form: the mark in its metadata that `opened` checks. Raises ValueError where
    `opened` refuses both."""
    import pyarrow as pa

    table = pa.table(dict(columns))
    content = _written(table, form, plain=False)
    try:
        opened(pa.BufferReader(content), form, ())
    except ValueError:
        content = _written(table, form, plain=True)
        opened(pa.BufferReader(content), form, ())
    return content


def _written(table: Any, form: bytes, plain: bool) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    lists = {f"{field.name}.list.element": field.type.value_type for field in table.schema if pa.types.is_list(field.type)}
    floats = [name for name, kind in lists.items() if pa.types.is_floating(kind)]
    whole = [name for name, kind in lists.items() if pa.types.is_integer(kind) or pa.types.is_boolean(kind)]
    stream = io.BytesIO()
    # Byte stream split stores all first bytes of the floats, then all second bytes: signs and exponents repeat, and rounded
    # digits are 0, so that they compress well.
    with pq.ParquetWriter(
        stream, table.schema, write_statistics=False, store_schema=False, use_byte_stream_split=floats or False,
        **({"compression": "none", "use_dictionary": False} if plain else
           {"compression": "zstd", "compression_level": 19, "use_dictionary": whole or False}),
    ) as writer:
        writer.write_table(table, row_group_size=max(1, len(table)))
        writer.add_key_value_metadata({"stsbench": form.decode()})
    return stream.getvalue()


def opened(path: Any, form: bytes, required: Sequence[str] = (LAYOUT,)) -> Any:
    """Return the pyarrow ParquetFile at a path, or of an open file. required: columns that the file must have.

    Raises ValueError where the file is not marked as `form`, lacks a column, or would take more memory than MOST_UNPACKED
    bytes and OF_EACH_BYTE times its size; this is computed from its pages, as a footer may be wrong. For a damaged file,
    pyarrow's own errors are passed on.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    stream = pa.OSFile(str(path)) if isinstance(path, str | Path) else path
    check_footer(stream)
    file = pq.ParquetFile(stream, pre_buffer=False)
    if file.metadata.metadata != {b"stsbench": form}:
        raise ValueError(f"it is not marked as {form.decode()}")
    names = file.schema_arrow.names
    if missing := set(required) - set(names):
        raise ValueError(f"it has no column {min(missing)}")
    if len(set(names)) < len(names):
        raise ValueError(f"it has two columns {max(names, key=names.count)}")
    size, besides, most = 0, 0, max(MOST_UNPACKED, OF_EACH_BYTE * stream.seek(0, 2))
    for group in (file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)):
        for i in range(group.num_columns):
            column, chunk = group.column(i), 0
            for filled, transient in _page_sizes(stream, column, file.schema.column(i)):
                size, chunk = size + filled, chunk + filled
                decoding = (_READING - 1) * chunk if column.path_in_schema.startswith(ARRAY) else 0
                besides = max(besides, transient, decoding)
                if size + max(size, besides) > most:  # while rows are scored, their arrays are in memory twice
                    raise ValueError(f"it would fill more than {most / 1e6:.0f} MB")
    return file


def whole_table(file: Any) -> Any:
    """Return the table of a file from `opened`, read column by column, so that pyarrow's working memory is that of one
    column."""
    import pyarrow as pa

    columns = {}
    for name in file.schema_arrow.names:
        columns[name] = file.read(columns=[name], use_threads=False).column(name)
        pa.default_memory_pool().release_unused()
    return pa.table(columns)


def _page_sizes(stream: Any, column: Any, schema: Any) -> Iterator[tuple[int, int]]:
    """Yield, for each page of a column, the most bytes that its values fill, and those of the page itself, needed only while
    it is read. Each value may be the dictionary's longest text. Raises ValueError for an encoding that sets no bound."""
    path, texts = column.path_in_schema, column.physical_type == "BYTE_ARRAY"
    width = max(8 if path.startswith(ARRAY) else _OBJECT, schema.length) * max(1, schema.max_repetition_level)
    in_dictionary = 0
    for page in pages(stream, column):
        if page.encoding not in BOUNDED:
            raise ValueError(f"{path} is in an encoding in which a few bytes may be any number of values: write it in plain")
        unpacked = page.unpacked * (1 if path.startswith((ARRAY, NAMES)) else _JSON)
        of_each = in_dictionary if texts and page.encoding in IN_DICTIONARY and not page.dictionary else 0
        in_dictionary += unpacked if page.dictionary else 0
        yield page.values * (width + of_each) + (unpacked if texts else 0), page.packed + page.unpacked


def check_columns(table: Any) -> None:
    """Raise ValueError unless a table of `to_columns` holds only the lists of numbers that its layouts name, and lists of
    names, so that a file cannot carry other data."""
    import pyarrow as pa

    texts = table.column(LAYOUT).to_pylist()
    layouts = [parse_json(text) for text in texts]
    if not all(map(_is_layout, layouts)) or texts != [json.dumps(layout, sort_keys=True) for layout in layouts]:
        raise ValueError("a layout is not as it would be written: array -> [type, shape]")
    kinds = Counter((key, kind) for layout in layouts for key, (kind, _) in layout.items())
    named = Counter[str]()
    for (key, kind), count in kinds.items():
        named[_column(table, key, np.dtype(kind))] += count
    for field in table.schema:
        if field.name == LAYOUT:
            continue
        inner = field.type.value_type if pa.types.is_list(field.type) else None
        if field.name.startswith(NAMES):
            if inner != pa.string() or table.column(field.name).null_count == len(table):
                raise ValueError(f"{field.name} does not hold lists of names")
            continue
        if inner is None or not (pa.types.is_integer(inner) or pa.types.is_floating(inner) or pa.types.is_boolean(inner)):
            raise ValueError(f"{field.name} does not hold lists of numbers")
        if not 0 < named[field.name] == len(table) - table.column(field.name).null_count:
            raise ValueError(f"{field.name} holds lists that its layout does not name")


def _is_layout(layout: Any) -> bool:
    """Return whether `layout` maps names of arrays to a little-endian numpy type of numbers and a shape."""
    return isinstance(layout, dict) and all(
        isinstance(part, list) and len(part) == 2 and part[0] in _TYPES and isinstance(part[1], list)
        and all(type(size) is int and size >= 0 for size in part[1]) for part in layout.values()
    )


def _column(table: Any, key: str, dtype: np.dtype[Any]) -> str:
    name = f"{ARRAY}{key}:{dtype.name}"
    return name if name in table.column_names else ARRAY + key


def unpacked(table: Any, row: int) -> Observations:
    """Return the observations in a row of a table of `to_columns`. Raises ValueError where an array's type or length is not
    that of the row's layout."""
    layout = parse_json(table.column(LAYOUT)[row].as_py())
    arrays: dict[str, NDArray[Any]] = {}
    for key, (kind, shape) in layout.items():
        dtype = np.dtype(kind)
        values = table.column(_column(table, key, dtype))[row].values
        if dtype.kind not in "biuf" or values is None or prod(shape) != len(values) or values.null_count:
            raise ValueError(f"{key} is not an array of numbers of the shape that is named")
        numbers = values.cast("uint8") if str(values.type) == "bool" else values
        arrays[key] = np.from_dlpack(numbers).astype(dtype).reshape(shape)  # to_numpy would import pandas
    names = {column.removeprefix(NAMES): listed for column in table.column_names
             if column.startswith(NAMES) and (listed := table.column(column)[row].as_py()) is not None}
    if empty := next((key for key, listed in names.items() if None in listed), None):
        raise ValueError(f"a name of {empty} is missing")
    return Observations(arrays, names)


def in_steps(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the values as multiples of STEP, in the same order and with the same ties.

    Two different values that would be rounded to the same multiple are set a step apart, so that ranks, and statistics of
    ranks, do not change.
    """
    distinct, inverse = np.unique(values, return_inverse=True)
    steps = np.rint(distinct / STEP)
    for at in np.flatnonzero(steps[1:] <= steps[:-1]) + 1:
        while at < len(steps) and steps[at] <= steps[at - 1]:
            steps[at] = steps[at - 1] + 1
            at += 1
    return np.asarray((steps * STEP)[inverse].reshape(values.shape))


def split(observations: Observations, shared: Iterable[str]) -> tuple[Observations, Observations]:
    """Return two parts of `observations`: the arrays and names whose keys are in `shared`, which depend on the data alone,
    and the rest, which differs between encoders."""
    keys = set(shared)

    def part(fields: Mapping[str, Any], inside: bool) -> dict[str, Any]:
        return {key: value for key, value in fields.items() if (key in keys) == inside}

    return (Observations(part(observations.arrays, True), part(observations.names, True)),
            Observations(part(observations.arrays, False), part(observations.names, False)))


def joined(shared: Observations, rest: Observations) -> Observations:
    """Return observations with the arrays and names of both parts of `split`. Raises ValueError where both have one key."""
    if twice := (shared.arrays.keys() & rest.arrays.keys()) | (shared.names.keys() & rest.names.keys()):
        raise ValueError(f"{min(twice)} is in both files")
    return Observations({**shared.arrays, **rest.arrays}, {**shared.names, **rest.names})
