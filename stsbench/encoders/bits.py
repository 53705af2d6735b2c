"""Vectors of one bit a number, eight in a byte."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def packed(vectors: Floats) -> NDArray[np.uint8]:
    """(n, ceil(d / 8)): a bit for each of n vectors' d numbers, 1 where it is above 0, the first bit the highest."""
    return np.packbits(vectors > 0, axis=1)


def unpacked(rows: NDArray[np.uint8], dimension: int) -> Floats:
    """float32 (n, d) of 1 and 0."""
    return np.unpackbits(np.asarray(rows), axis=1, count=dimension).astype(np.float32)


def signs(rows: NDArray[np.uint8], dimension: int) -> Floats:
    """float32 (n, d) of 1 and -1, so that the dot product of two vectors is d minus twice their Hamming distance."""
    return unpacked(rows, dimension) * 2 - 1
