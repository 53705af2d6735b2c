"""Arrays of observations in a Parquet file: one row, a list for each array. What many encoders share is a file of its own.

A file is known by what it holds, not by its bytes, which another version of the library would write otherwise.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.evaluation.protocol import Observations
from stsbench.parsing import parse_json

NAMES = "names."  # begins a column of names
STEP = 2.0**-26  # what observations are rounded to; float32 has steps of 2^-24 between cosines above a half
LAYOUT = "layout"  # the column of a JSON text: array -> [numpy's type, shape]


def digest_of(observations: Observations) -> str:
    """sha256 over the arrays and names, by their names: type, shape and little-endian values of each."""
    digest = hashlib.sha256()
    for key, array in sorted(observations.arrays.items()):
        fixed = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        digest.update(f"{key} {fixed.dtype.str} {array.shape}\n".encode())
        digest.update(fixed.tobytes())
    for key, listed in sorted(observations.names.items()):
        digest.update(json.dumps([key, listed]).encode())
    return digest.hexdigest()


def packed(observations: Observations) -> bytes:
    """A Parquet file of these."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    layout = {key: [array.dtype.newbyteorder("<").str, array.shape] for key, array in observations.arrays.items()}
    columns = {key: pa.array([np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("=")).reshape(-1)])
               for key, array in observations.arrays.items()}
    columns |= {NAMES + key: pa.array([listed], pa.list_(pa.string())) for key, listed in observations.names.items()}
    columns[LAYOUT] = pa.array([json.dumps(layout, sort_keys=True)])
    floats = [_leaf(key) for key, array in observations.arrays.items() if array.dtype.kind == "f"]
    stream = io.BytesIO()
    # All first bytes of a list's floats, then all second ones: signs and exponents repeat, rounded digits are 0, and what
    # repeats packs.
    pq.write_table(
        pa.table(columns), stream, compression="zstd", compression_level=19, write_statistics=False, store_schema=False,
        use_byte_stream_split=floats or False, use_dictionary=[_leaf(key) for key in columns if _leaf(key) not in floats],
    )
    return stream.getvalue()


def _leaf(column: str) -> str:
    return f"{column}.list.element"


def unpacked(path: Path, most: int) -> Observations:
    """The arrays and names in `path`. Raises ValueError where they would fill more than `most` bytes, and whatever pyarrow
    and numpy raise for a file that is damaged."""
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path)
    groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    columns = [group.column(i) for group in groups for i in range(group.num_columns)]
    # Of texts, one may stand in a file once and be all of a column's values.
    sizes = [column.num_values * (column.total_uncompressed_size if column.physical_type == "BYTE_ARRAY" else 8)
             for column in columns]
    if file.metadata.num_rows != 1 or sum(sizes) > most:
        raise ValueError(f"it is not one row of arrays of at most {most / 1e6:.0f} MB")
    table = file.read(use_threads=False)
    layout = parse_json(table.column(LAYOUT)[0].as_py())
    arrays: dict[str, NDArray[Any]] = {}
    names: dict[str, list[str]] = {}
    for key in set(table.column_names) - {LAYOUT}:
        values = table.column(key).chunk(0).values
        if key.startswith(NAMES):
            names[key.removeprefix(NAMES)] = [str(each) for each in values.to_pylist()]
        else:
            kind, shape = layout[key]
            if np.dtype(kind).kind not in "biuf" or prod(shape) != len(values):
                raise ValueError(f"{key} is not an array of numbers of the shape that is named")
            arrays[key] = values.to_numpy(zero_copy_only=False).astype(kind).reshape(shape)
    return Observations(arrays, names)


def in_steps(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The values as multiples of STEP, in the same order and with the same ties.

    Two values that would become one are set a step from each other: ranks, and all that is computed from them, stay as they
    are.
    """
    distinct, place = np.unique(values, return_inverse=True)
    steps = np.rint(distinct / STEP)
    for at in np.flatnonzero(steps[1:] <= steps[:-1]) + 1:
        while at < len(steps) and steps[at] <= steps[at - 1]:
            steps[at] = steps[at - 1] + 1
            at += 1
    return np.asarray((steps * STEP)[place].reshape(values.shape))


def split(observations: Observations, shared: Iterable[str]) -> tuple[Observations, Observations]:
    """What the data decide, and what differs from one encoder to the next; names are of the data where they name subsets."""
    keys = set(shared)

    def part(of: Mapping[str, Any], wanted: bool) -> dict[str, Any]:
        return {key: value for key, value in of.items() if (key in keys) == wanted}

    return (Observations(part(observations.arrays, True), part(observations.names, True)),
            Observations(part(observations.arrays, False), part(observations.names, False)))


def joined(shared: Observations, mine: Observations) -> Observations:
    """Both parts. Raises ValueError where they hold one array twice."""
    if twice := (shared.arrays.keys() & mine.arrays.keys()) | (shared.names.keys() & mine.names.keys()):
        raise ValueError(f"{min(twice)} is in both files")
    return Observations({**shared.arrays, **mine.arrays}, {**shared.names, **mine.names})
