"""How the numbers of a vector are stored, and what reading gives back.

float32  as computed.
float16  rounded to 11 bits; a number beyond 65,504 is an error.
int8     round(x / s), from -127 to 127, with a scale s for each dimension; reading gives s times that. s is the largest |x|
         of the calibration vectors over 127: later numbers beyond it are cut, and counted.
binary   one bit, 1 where x > 0, eight in a byte, the first the highest (numpy.packbits); reading gives 1 and -1, so that the
         dot product of two vectors is d minus twice their Hamming distance.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.encoders.similarity import packed, signs
from stsbench.errors import EncoderError

Floats = NDArray[np.float32]
KINDS = {"float32": "<f4", "float16": "<f2", "int8": "|i1", "binary": "|u1"}
_MOST = 127


def width(dtype: str, dimension: int) -> int:
    """Numbers of a stored row."""
    return -(-dimension // 8) if dtype == "binary" else dimension


def calibrated(vectors: Floats) -> Floats:
    """float32 (d,): the scales for int8 by these (n, d) vectors; 1 for a dimension that is 0 throughout."""
    most = np.abs(vectors).max(axis=0).astype(np.float64)
    return np.where(most > 0, most / _MOST, 1).astype(np.float32)


def stored(vectors: Floats, dtype: str, scales: Floats | None) -> tuple[NDArray[Any], int]:
    """The rows (n, width) as they are stored, and how many numbers were cut for int8.

    EncoderError: a number that float16 cannot hold.
    """
    if dtype == "float16":
        with np.errstate(over="ignore"):
            rows = vectors.astype("<f2")
        if not np.isfinite(rows).all():
            raise EncoderError(f"--store-dtype float16 cannot hold {np.abs(vectors).max():g}: use float32 or int8")
        return rows, 0
    if dtype == "int8":
        assert scales is not None
        exact = np.rint(vectors / scales)
        cut = int(np.count_nonzero(np.abs(exact) > _MOST))
        return np.clip(exact, -_MOST, _MOST).astype(np.int8), cut
    if dtype == "binary":
        return packed(vectors), 0
    return np.ascontiguousarray(vectors, "<f4"), 0


def restored(rows: NDArray[Any], dtype: str, dimension: int, scales: Floats | None) -> Floats:
    """float32 (n, d) of stored rows (n, width)."""
    if dtype == "int8":
        assert scales is not None
        return rows.astype(np.float32) * scales
    if dtype == "binary":
        return signs(rows, dimension)
    return np.asarray(rows, np.float32)
