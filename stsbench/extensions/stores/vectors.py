"""Reading a store of vectors: by row, by text, or from end to end, a part of it in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stsbench.data.text.cache import Ragged
from stsbench.encoders.base import EncoderSpec
from stsbench.errors import StsbenchError
from stsbench.extensions.stores.manifest import read_manifest, shard_folder
from stsbench.extensions.stores.numbers import KINDS, Floats, restored, width
from stsbench.extensions.stores.shard import DIGESTS, TEXT, TRUNCATED, VECTORS, fault, text_digests

BLOCK = 16_384  # rows in memory at a time
Rows = NDArray[np.int64]


class VectorStore:
    """n vectors of d numbers, and their texts. `len(store)` is n; rows count from 0, in the order of the input."""

    def __init__(self, folder: Path) -> None:
        """StsbenchError, one line: not a store, not complete, or a file is not of the size that it had."""
        self.folder, self.manifest = folder, read_manifest(folder)
        if not self.manifest.complete:
            raise StsbenchError(f"{folder} is not complete: run the `stsbench encode` again that began it")
        for number, note in enumerate(self.manifest.shards):
            if problem := fault(shard_folder(folder, number), note, digests=False):
                raise StsbenchError(f"{problem}: run the `stsbench encode` again that wrote it")
        self.dtype, self.dimension = self.manifest.dtype, self.manifest.dimension
        self.digest = self.manifest.digest()
        self.encoder = EncoderSpec(**self.manifest.encoder)
        self._scales = None if self.manifest.scales is None else np.array(self.manifest.scales, np.float32)
        self._starts = np.cumsum([0, *(shard.rows for shard in self.manifest.shards)])

    def __len__(self) -> int:
        return self.manifest.rows

    def __fspath__(self) -> str:
        return str(self.folder)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return len(self), self.dimension

    def rows(self, rows: Sequence[int] | Rows) -> Floats:
        """float32 (k, d) of k rows, in their order. IndexError: one is out of range."""
        vectors = np.empty((len(rows), self.dimension), np.float32)
        for number, at, inside in self._by_shard(rows):
            vectors[at] = self._restored(self._vectors(number)[inside])
        return vectors

    def blocks(self, size: int = BLOCK) -> Iterator[Floats]:
        """float32 (m, d) blocks of all vectors in order, m = size at most."""
        for number, shard in enumerate(self.manifest.shards):
            for start in range(0, shard.rows, size):
                # opened for each block: what was mapped earlier does not stay in memory
                yield self._restored(self._vectors(number)[start : start + size])

    def text(self, row: int) -> str:
        """The text of a row."""
        [(number, _, inside)] = self._by_shard([row])
        return self._text(number)[int(inside[0])].tobytes().decode("utf-8", "surrogatepass")

    def texts(self, rows: Sequence[int] | Rows) -> list[str]:
        """The texts of k rows."""
        texts = [""] * len(rows)
        for number, at, inside in self._by_shard(rows):
            stored = self._text(number)
            for position, row in zip(at.tolist(), inside.tolist(), strict=True):
                texts[position] = stored[row].tobytes().decode("utf-8", "surrogatepass")
        return texts

    def truncated(self, rows: Sequence[int] | Rows) -> NDArray[np.bool_]:
        """bool (k,): which texts lost tokens to the model's limit."""
        flags = np.zeros(len(rows), dtype=bool)
        for number, at, inside in self._by_shard(rows):
            flags[at] = self._load(number, TRUNCATED)[inside]
        return flags

    def find(self, texts: Sequence[str]) -> Rows:
        """int64 (k,): the first row of each of k distinct texts, -1: none. Reads 16 bytes of each row of the store."""
        rows = np.full(len(texts), -1, np.int64)
        for first, at, inside in self._matches(texts):
            ascending = np.argsort(-inside, kind="stable")  # the lowest row is written last
            new = ascending[rows[at[ascending]] < 0]
            rows[at[new]] = first + inside[new]
            if (rows >= 0).all():
                break
        return rows

    def copies(self, texts: Sequence[str]) -> tuple[Rows, Rows]:
        """Of k distinct texts the first row (-1: none) and how many rows there are."""
        rows, counts = np.full(len(texts), -1, np.int64), np.zeros(len(texts), np.int64)
        for first, at, inside in self._matches(texts):
            np.add.at(counts, at, 1)
            for position, row in zip(at.tolist(), inside.tolist(), strict=True):
                rows[position] = first + row if rows[position] < 0 else rows[position]
        return rows, counts

    def _matches(self, texts: Sequence[str]) -> Iterator[tuple[int, Rows, Rows]]:
        """For each shard that has some of the texts: its first row; positions of texts, and their rows inside, ascending."""
        wanted = text_digests(texts)
        order = np.argsort(wanted[:, 0], kind="stable")
        ordered = wanted[order]
        for number in range(len(self.manifest.shards) if len(texts) else 0):
            digests = self._load(number, DIGESTS)
            position = np.minimum(np.searchsorted(ordered[:, 0], digests[:, 0]), len(ordered) - 1)
            inside = np.flatnonzero((ordered[position] == digests).all(axis=1))
            if len(inside):
                yield int(self._starts[number]), order[position[inside]], inside

    def _by_shard(self, rows: Sequence[int] | Rows) -> Iterator[tuple[int, Rows, Rows]]:
        """Shard, positions among `rows`, rows inside the shard."""
        numbers = np.asarray(rows, np.int64)
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(self):
            raise IndexError(f"rows from {numbers.min()} to {numbers.max()} are out of range: there are {len(self)} rows")
        shard = np.searchsorted(self._starts, numbers, side="right") - 1
        order = np.argsort(shard, kind="stable")
        bounds = np.flatnonzero(np.diff(shard[order])) + 1
        for at in np.split(order, bounds):
            if len(at):
                number = int(shard[at[0]])
                yield number, at, numbers[at] - self._starts[number]

    def _restored(self, rows: NDArray[np.generic]) -> Floats:
        return restored(rows, self.dtype, self.dimension, self._scales)

    def _vectors(self, number: int) -> NDArray[np.generic]:
        stored: NDArray[np.generic] = np.load(self._path(number) / VECTORS, mmap_mode="r", allow_pickle=False)
        if stored.dtype != np.dtype(KINDS[self.dtype]) or stored.shape[1:] != (width(self.dtype, self.dimension),):
            raise StsbenchError(f"{self._path(number) / VECTORS} holds {stored.dtype} of shape {stored.shape}")
        return stored

    def _text(self, number: int) -> Ragged:
        return Ragged(self._path(number), TEXT, "u1")

    def _load(self, number: int, name: str) -> NDArray[np.generic]:
        loaded: NDArray[np.generic] = np.load(self._path(number) / name, allow_pickle=False)
        return loaded

    def _path(self, number: int) -> Path:
        return shard_folder(self.folder, number)
