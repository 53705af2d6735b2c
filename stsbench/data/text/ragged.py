"""Sequences of different lengths in two files, written once from front to end and read through a memory map."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

RowNumbers = Sequence[int] | NDArray[np.integer]


class ArrayWriter:
    """One array of a fixed type, appended to NAME."""

    def __init__(self, folder: Path, name: str, dtype: str) -> None:
        self.dtype = np.dtype(dtype)
        self._stream = (folder / name).open("wb")

    def add(self, values: Any) -> None:
        """Append numbers, or the bytes of a whole number of them."""
        self._stream.write(values if isinstance(values, bytes) else np.asarray(values, self.dtype).tobytes())

    def __enter__(self) -> ArrayWriter:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stream.close()


class RaggedWriter:
    """Sequences one after another: NAME.values, and where each starts in NAME.starts (one more than there are sequences)."""

    def __init__(self, folder: Path, name: str, dtype: str) -> None:
        self._values = ArrayWriter(folder, f"{name}.values", dtype)
        self._starts = ArrayWriter(folder, f"{name}.starts", "<i8")
        self._starts.add([0])
        self._end = 0

    def add(self, values: bytes, lengths: Sequence[int]) -> None:
        """Append sequences of these lengths; values: all of them, joined, as bytes of the type."""
        starts = self._end + np.cumsum(np.asarray(lengths, np.int64))
        self._values.add(values)
        self._starts.add(starts)
        self._end = int(starts[-1]) if len(starts) else self._end

    def __enter__(self) -> RaggedWriter:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._values.__exit__(kind, error, trace)
        self._starts.__exit__(kind, error, trace)


class Ragged:
    """What a RaggedWriter wrote. `ragged[i]` is a read-only view of sequence i."""

    def __init__(self, folder: Path, name: str, dtype: str) -> None:
        self.values = mapped(folder / f"{name}.values", dtype)
        self._starts = mapped(folder / f"{name}.starts", "<i8")

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, i: int) -> NDArray[Any]:
        if not 0 <= i < len(self):
            raise IndexError(f"row {i} is out of range: there are {len(self)} rows")
        return self.values[self._starts[i] : self._starts[i + 1]]

    def lengths(self) -> NDArray[np.int64]:
        """int64 (n,): the length of every sequence."""
        return np.diff(self._starts)


def checked(rows: RowNumbers, count: int) -> NDArray[np.int64]:
    """Row numbers as int64 (n,). Raises IndexError for one outside 0 ... count-1: -1 marks an end and is not a row."""
    numbers = np.asarray(rows, np.int64)
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < count:
        raise IndexError(f"rows from {numbers.min()} to {numbers.max()} are out of range: there are {count} rows")
    return numbers


def mapped(path: Path, dtype: str) -> NDArray[Any]:
    """A file's numbers, read-only, read from disk on access."""
    if not path.stat().st_size:  # an empty file cannot be mapped
        return np.zeros(0, dtype)
    return np.memmap(path, dtype, mode="r").view(np.ndarray)
