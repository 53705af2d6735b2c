"""Read a store of vectors: by row, by text, or all of it in blocks, with only a part in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stsbench.data.text.cache import Ragged
from stsbench.encoders.base import Encoded, Encoder, EncoderSpec, Progress, Traits
from stsbench.encoders.post.source import EncodedTexts
from stsbench.errors import EncoderError, StsbenchError
from stsbench.extensions.stores.shard import (
    DIGESTS,
    KINDS,
    TEXT,
    TRUNCATED,
    VECTORS,
    Floats,
    fault,
    is_store,
    read_manifest,
    restored,
    shard_folder,
    text_digests,
    width,
)

BLOCK = 16_384  # rows per block in memory
Rows = NDArray[np.int64]


class VectorStore:
    """A store of n vectors of d dimensions and their texts. `len(store)` is n; rows count from 0, in the input's order."""

    def __init__(self, folder: Path) -> None:
        """Open a store. Raises StsbenchError, one line, for no store, an incomplete one, or a file of a wrong size."""
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
        """Return (n, d)."""
        return len(self), self.dimension

    def rows(self, rows: Sequence[int] | Rows) -> Floats:
        """Return the float32 (k, d) vectors of k rows, in the given order. Raises IndexError for a row out of range."""
        vectors = np.empty((len(rows), self.dimension), np.float32)
        for number, at, inside in self._by_shard(rows):
            vectors[at] = self._restored(self._vectors(number)[inside])
        return vectors

    def blocks(self, size: int = BLOCK) -> Iterator[Floats]:
        """Yield float32 (m, d) blocks of all vectors in order, m = size at most."""
        for number, shard in enumerate(self.manifest.shards):
            for start in range(0, shard.rows, size):
                # The file is mapped anew for each block, so that pages of earlier blocks do not stay in memory.
                yield self._restored(self._vectors(number)[start : start + size])

    def text(self, row: int) -> str:
        """Return the text of a row."""
        [(number, _, inside)] = self._by_shard([row])
        return self._text(number)[int(inside[0])].tobytes().decode("utf-8", "surrogatepass")

    def texts(self, rows: Sequence[int] | Rows) -> list[str]:
        """Return the texts of k rows, in the given order."""
        texts = [""] * len(rows)
        for number, at, inside in self._by_shard(rows):
            stored = self._text(number)
            for position, row in zip(at.tolist(), inside.tolist(), strict=True):
                texts[position] = stored[row].tobytes().decode("utf-8", "surrogatepass")
        return texts

    def truncated(self, rows: Sequence[int] | Rows) -> NDArray[np.bool_]:
        """Return bool (k,), True for texts that lost tokens to the model's limit."""
        flags = np.zeros(len(rows), dtype=bool)
        for number, at, inside in self._by_shard(rows):
            flags[at] = self._load(number, TRUNCATED)[inside]
        return flags

    def find(self, texts: Sequence[str]) -> Rows:
        """Return int64 (k,), the first row of each of k distinct texts, -1 for a text that is not in the store. Reads 16
        bytes per row of the store."""
        rows = np.full(len(texts), -1, np.int64)
        for first, at, inside in self._matches(texts):
            ascending = np.argsort(-inside, kind="stable")  # descending, so that the lowest row is written last and stays
            new = ascending[rows[at[ascending]] < 0]
            rows[at[new]] = first + inside[new]
            if (rows >= 0).all():
                break
        return rows

    def copies(self, texts: Sequence[str]) -> tuple[Rows, Rows]:
        """Return the first row (-1: none) and the number of rows of each of k distinct texts, both int64 (k,)."""
        rows, counts = np.full(len(texts), -1, np.int64), np.zeros(len(texts), np.int64)
        for first, at, inside in self._matches(texts):
            np.add.at(counts, at, 1)
            for position, row in zip(at.tolist(), inside.tolist(), strict=True):
                rows[position] = first + row if rows[position] < 0 else rows[position]
        return rows, counts

    def _matches(self, texts: Sequence[str]) -> Iterator[tuple[int, Rows, Rows]]:
        """Yield for each shard with some of the texts its first row, the texts' positions, and their rows in the shard."""
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
        """Yield for each shard its number, positions among `rows`, and the rows within the shard."""
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


class StoreFormat:
    """The registration of stores as a format of folders of vectors."""

    @staticmethod
    def recognises(folder: Path) -> bool:
        """Return whether `folder` looks like a store, complete or not."""
        return is_store(folder)

    @staticmethod
    def encoder(folder: Path, name: str) -> Encoder:
        """Return the encoder that looks texts up in a store."""
        return StoreEncoder(folder, name)

    @staticmethod
    def source(folder: Path, encoder: Encoder) -> StoredVectorSource:
        """Return a store's vectors. Raises EncoderError if they are not `encoder`'s."""
        return StoredVectorSource(VectorStore(folder), encoder)


class StoreEncoder(Encoder):
    """An encoder that looks each text up in a store; white space around a text is ignored."""

    cacheable = False
    computes_in = "nothing"

    def __init__(self, folder: str | Path, name: str | None = None) -> None:
        """Open the store. Raises StsbenchError, one line, for a folder that is not a complete store."""
        self.store = store = VectorStore(Path(folder))
        maker, self.dimension = store.encoder, store.dimension
        self.spec = EncoderSpec(
            name=name or f"vectors:{folder}", kind="vectors", weights=store.digest, max_length=maker.max_length,
            options={"dtype": store.dtype},
        )
        self.traits = Traits(
            similarity=store.manifest.similarity or "cosine", trained_on=store.manifest.trained_on,
            training_overlap=store.manifest.training_overlap,
        )
        self.notes = (f"{folder}: vectors of {maker.name} (fingerprint {store.manifest.fingerprint[:12]}), {store.dtype}",)

    def run(self, texts: Sequence[str], progress: Progress | None = None) -> Encoded:
        """Return float32 (n, d) vectors. Raises EncoderError naming the first of the texts that are not in the store."""
        stripped = [text.strip() for text in texts]
        distinct = list(dict.fromkeys(stripped))
        row_of = dict(zip(distinct, self.store.find(distinct).tolist(), strict=True))
        rows = [row_of[text] for text in stripped]
        if missing := [text for text, row in zip(texts, rows, strict=True) if row < 0]:
            raise EncoderError(
                f"{self.store.folder} has no vector for {len(missing)} of {len(texts)} texts, the first: {missing[0]!r} "
                "(texts must match to the letter; is this another text version?)"
            )
        encoded = Encoded(self.store.rows(rows), self.store.truncated(rows))
        if progress is not None:
            progress(len(texts))
        return encoded


class StoreTexts:
    """The texts of a store, one per row, duplicates and empty texts included."""

    sides = 1

    def __init__(self, store: VectorStore) -> None:
        self._store, self.items = store, len(store)
        self.name = f"{store.folder.resolve().name}@{store.digest}"

    def side(self, side: int, rows: Sequence[int]) -> list[str]:
        """Return the texts of these rows."""
        return self._store.texts(rows)


class StoredVectorSource:
    """The VectorSource of a store: vectors are read, and only those with dropout are encoded."""

    sides = 1

    def __init__(self, store: VectorStore, encoder: Encoder) -> None:
        """Raise EncoderError for a store of signs alone, or of another encoder than `encoder`."""
        if store.dtype == "binary":
            raise EncoderError(f"{store.folder} holds signs alone, on which nothing can be fitted: encode with another "
                               "--store-dtype")
        if store.manifest.fingerprint != encoder.spec.fingerprint():
            raise EncoderError(f"{store.folder} was made by another encoder ({store.encoder.name}) than "
                               f"{encoder.spec.name}: what is fitted on it does not suit")
        self.store, self.texts, self._encoder = store, StoreTexts(store), encoder
        self.name = self.texts.name

    def __len__(self) -> int:
        return len(self.store)

    def blocks(self) -> Iterator[NDArray[np.float32]]:
        """Return an iterator over float32 (m, d) blocks, in order."""
        return self.store.blocks()

    def shuffled(self, batch_size: int, rng: np.random.Generator) -> Iterator[NDArray[np.float32]]:
        """Yield float32 (m, 1, d) batches of all vectors in random order."""
        order = rng.permutation(len(self.store))
        many = max(1, BLOCK // batch_size) * batch_size  # whole batches
        for start in range(0, len(order), many):
            vectors = self.store.rows(order[start : start + many])[:, None]
            for first in range(0, len(vectors), batch_size):
                yield vectors[first : first + batch_size]

    def with_dropout(self, seed: int) -> EncodedTexts:
        """Return the source of the same texts, encoded with dropout."""
        dropping = self._encoder.with_dropout(seed)
        return EncodedTexts(self.texts, dropping.run, dropping)
