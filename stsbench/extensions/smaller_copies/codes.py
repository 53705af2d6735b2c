"""Quantisation of vectors to one byte or one bit per dimension: stored codes, and the numbers that are compared.

int8, uint8  floor((x - low) / step), cut to 0..255, step = (high - low) / 255, low and high of each dimension being those
             of the vectors that it is calibrated on; int8: less 128. The codes are compared as they stand: each dimension
             is shifted and scaled, so that a cosine of codes is not a rounded cosine of vectors.
binary       the bits x > 0, eight in a byte, the first the highest, the byte less 128; compared as 1 and -1, whose cosine
             is 1 - 2 h / d of the Hamming distance h.
ubinary      the same bits, the byte as it is; compared as 1 and 0, as sentence-transformers' EmbeddingSimilarityEvaluator
             and mteb's CompressionWrapper (BINARY) do.

The codes are those of sentence_transformers.util.quantize_embeddings (6.2).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.encoders.similarity import packed, signs, unpacked

Floats = NDArray[np.float32]
WHOLE = "float32"
BYTES, BITS = ("int8", "uint8"), ("binary", "ubinary")
PRECISIONS = (*BYTES, *BITS)
_STEPS = 255
_SORTED = 16_000_000  # numbers that torch.quantile sorts at once, at most


@dataclass(frozen=True)
class Ranges:
    """The calibration of int8 and uint8: float32 (d,) least and greatest values of each dimension."""

    low: Floats
    high: Floats

    @classmethod
    def from_vectors(cls, vectors: Floats, clip: tuple[float, float] | None = None) -> Ranges:
        """Return the ranges of (n, d) vectors; clip: quantiles of each dimension to use as low and high, None: extremes."""
        if clip is None:
            return cls(vectors.min(axis=0), vectors.max(axis=0))
        return cls(*_quantiles(vectors, clip))

    def digest(self) -> str:
        """Return sha256 over low and high."""
        return hashlib.sha256(np.stack([self.low, self.high]).astype("<f4").tobytes()).hexdigest()

    @property
    def constant(self) -> NDArray[np.intp]:
        """Return the indices of constant dimensions, which have a single code."""
        return np.flatnonzero(self.low == self.high)


def codes(vectors: Floats, precision: str, ranges: Ranges | None = None) -> NDArray[Any]:
    """Return (n, d) vectors as they are stored: int8 or uint8 (n, d), or a byte for eight numbers (n, ceil(d / 8)).

    ranges: of int8 and uint8; a number outside of them gets the nearest code.
    """
    if precision in BITS:
        rows = packed(vectors)
        return rows if precision == "ubinary" else (rows.astype(np.int16) - 128).astype(np.int8)
    if precision in BYTES:
        assert ranges is not None
        steps = (ranges.high - ranges.low) / np.float32(_STEPS)
        steps[steps == 0] = 1
        whole = np.clip(np.floor((vectors - ranges.low) / steps), 0, _STEPS)
        return whole.astype(np.uint8) if precision == "uint8" else (whole - 128).astype(np.int8)
    return vectors


def compared(rows: NDArray[Any], precision: str, dimension: int) -> Floats:
    """Return float32 (n, d) numbers of stored codes, from which similarities are computed."""
    if precision == "ubinary":
        return unpacked(rows, dimension)
    if precision == "binary":
        return signs((rows.astype(np.int16) + 128).astype(np.uint8), dimension)
    return rows.astype(np.float32, copy=False)


def size(precision: str, dimension: int) -> int:
    """Return the bytes of a stored vector with this number of dimensions."""
    if precision in BITS:
        return -(-dimension // 8)
    return dimension if precision in BYTES else 4 * dimension


def _quantiles(vectors: Floats, clip: tuple[float, float]) -> tuple[Floats, Floats]:
    """By torch, whose last digits mteb's are."""
    import torch

    at = torch.tensor(clip)
    wide = max(1, _SORTED // max(1, len(vectors)))
    parts = [torch.quantile(torch.from_numpy(np.ascontiguousarray(vectors[:, start : start + wide])), at, dim=0).numpy()
             for start in range(0, vectors.shape[1], wide)]
    low, high = np.concatenate(parts, axis=1)
    return low, high
