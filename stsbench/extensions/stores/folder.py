"""What the core reads of a store: an encoder that looks texts up, and vectors to fit on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stsbench.encoders.base import Encoded, Encoder, EncoderSpec, Progress, Traits
from stsbench.encoders.post.source import EncodedTexts
from stsbench.errors import EncoderError
from stsbench.extensions.stores.manifest import is_store
from stsbench.extensions.stores.vectors import BLOCK, VectorStore


class StoreFormat:
    """The format of stores, as the core knows formats of folders of vectors."""

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
        """Return a store's vectors, if they are `encoder`'s."""
        return StoredVectorSource(VectorStore(folder), encoder)


class StoreEncoder(Encoder):
    """Looks each text up in a store, which is itself a cache; white space around a text does not count."""

    cacheable = False
    computes_in = "nothing"

    def __init__(self, folder: str | Path, name: str | None = None) -> None:
        """StsbenchError, one line: not a complete store."""
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
        """float32 (n, d). EncoderError naming the first text that is not in the store, and how many are not."""
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
    """The texts of a store, one a row; duplicates stay, empty ones too."""

    sides = 1

    def __init__(self, store: VectorStore) -> None:
        self._store, self.items = store, len(store)
        self.name = f"{store.folder.resolve().name}@{store.digest}"

    def side(self, side: int, rows: Sequence[int]) -> list[str]:
        """The texts of these rows."""
        return self._store.texts(rows)


class StoredVectorSource:
    """The VectorSource of a store: nothing is encoded, but for vectors with dropout."""

    sides = 1

    def __init__(self, store: VectorStore, encoder: Encoder) -> None:
        """EncoderError: the store holds signs alone, or vectors that are not `encoder`'s."""
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
        """float32 (m, d) blocks, in order."""
        return self.store.blocks()

    def shuffled(self, batch_size: int, rng: np.random.Generator) -> Iterator[NDArray[np.float32]]:
        """float32 (m, 1, d) batches of a random order."""
        order = rng.permutation(len(self.store))
        many = max(1, BLOCK // batch_size) * batch_size  # whole batches
        for start in range(0, len(order), many):
            vectors = self.store.rows(order[start : start + many])[:, None]
            for first in range(0, len(vectors), batch_size):
                yield vectors[first : first + batch_size]

    def with_dropout(self, seed: int) -> EncodedTexts:
        """The same texts, encoded with dropout."""
        dropping = self._encoder.with_dropout(seed)
        return EncodedTexts(self.texts, dropping.run, dropping)
