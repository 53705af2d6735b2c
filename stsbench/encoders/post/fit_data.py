"""Fitting on a file of texts, which are encoded, or on a store, whose vectors are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stsbench.encoders.base import Encoder, Progress
from stsbench.encoders.post.encoder import PostProcessed
from stsbench.encoders.post.source import EncodedTexts
from stsbench.encoders.post.texts import FitTexts, listed_texts, read_texts
from stsbench.encoders.store.manifest import is_store
from stsbench.encoders.store.vectors import VectorStore
from stsbench.errors import EncoderError
from stsbench.wording import counted

_BLOCK = 16_384  # vectors in memory at a time


def fitted_on_data(
    wrapped: PostProcessed, data: Path | Iterable[str], log: Callable[[str], None],
    progress: Callable[[int], Progress] | None = None, post: str | None = None,
) -> tuple[PostProcessed, FitTexts]:
    """`wrapped` fitted on texts, on a file of them or on a folder of `stsbench encode`, and those texts.

    post: what the fit is called in `log`, by default with all its settings. StsbenchError, one line: not readable, or the
    folder holds the vectors of another encoder.
    """
    stored = StoredVectorSource(VectorStore(data), wrapped.base) if isinstance(data, Path) and is_store(data) else None
    texts: FitTexts = stored.texts if stored else read_texts(data, log) if isinstance(data, Path) else listed_texts(data)
    count = texts.items * texts.sides
    where = "" if stored is None else ", whose vectors are read"
    log(f"fitting {post or wrapped.chain.spelled()} on {texts.name.partition('@')[0]}: {counted(count, 'text')}{where}")
    if stored is None:
        return wrapped.fit_on(texts, progress(count) if progress else None), texts
    return wrapped.fit_vectors(stored), texts


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
        return self.store.blocks(_BLOCK)

    def shuffled(self, batch_size: int, rng: np.random.Generator) -> Iterator[NDArray[np.float32]]:
        """float32 (m, 1, d) batches of a random order."""
        order = rng.permutation(len(self.store))
        many = max(1, _BLOCK // batch_size) * batch_size  # whole batches
        for start in range(0, len(order), many):
            vectors = self.store.rows(order[start : start + many])[:, None]
            for first in range(0, len(vectors), batch_size):
                yield vectors[first : first + batch_size]

    def with_dropout(self, seed: int) -> EncodedTexts:
        """The same texts, encoded with dropout."""
        dropping = self._encoder.with_dropout(seed)
        return EncodedTexts(self.texts, dropping.run, dropping)
