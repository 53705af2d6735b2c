"""Sources of vectors that a post-processing is fitted on: texts in memory or in a file of any size, encoded on demand, or a
folder of stored vectors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from stsbench.data.own.texts import checked_texts
from stsbench.data.text.rows import VALUES
from stsbench.data.text.store import TextStore, open_store
from stsbench.encoders.base import Encoded, Encoder
from stsbench.encoders.cache.encode import not_finite
from stsbench.encoders.post.base import VectorSource
from stsbench.errors import DataError, EncoderError
from stsbench.registry import names, resolve

GROUP = "stsbench.vector_formats"  # entry points
_BLOCK = 16_384  # texts encoded at a time: what is in memory


class FitTexts(Protocol):
    """Texts to fit on: n items of one text, or of the two of a pair; duplicates stay."""

    name: str  # id@digest
    sides: int  # texts of an item
    items: int  # n

    def side(self, side: int, rows: Sequence[int]) -> list[str]:
        """Return the text of one side, 0 or 1, of each of these items."""


class ListedTexts(list[str]):
    """Texts to fit on in memory: a list of all first sides, then all second ones."""

    def __init__(self, columns: Sequence[Sequence[str]], name: str) -> None:
        super().__init__(text for column in columns for text in column)
        self.columns, self.name = columns, name
        self.sides, self.items = len(columns), len(columns[0])

    def side(self, side: int, rows: Sequence[int]) -> list[str]:
        """Return the text of one side of each of these items."""
        return [self.columns[side][row] for row in rows]


class StoredTexts:
    """Texts to fit on from the text columns of a file, without labels and scores."""

    def __init__(self, store: TextStore) -> None:
        self._store, self._roles = store, [role for role in store.roles if role not in VALUES]
        self.name, self.sides, self.items = f"{store.path.name}@{store.digest}", len(self._roles), len(store)

    def side(self, side: int, rows: Sequence[int]) -> list[str]:
        """Return the text of one side of each of these items."""
        return self._store.texts(self._roles[side], rows)


def listed_texts(texts: Iterable[str]) -> ListedTexts:
    """Return texts in memory to fit on, blank ones left out. DataError: there are none, or one is not a str."""
    kept = [text for text in checked_texts(texts, "text") if text.strip()]
    if not kept:
        raise DataError("there is no text to fit on")
    return ListedTexts([kept], f"texts@{hashlib.sha256(chr(10).join(kept).encode()).hexdigest()}")


def read_texts(file: Path, log: Callable[[str], None] | None = None) -> StoredTexts:
    """Return a file's texts: one a line (.txt), or all of each row of a table (.csv, .tsv, .jsonl), of NLI both sentences.

    Blank rows are left out, duplicates stay. DataError, one line: not readable, or a table whose columns are not known.
    """
    try:
        store = open_store(file, drop_blank=True, log=log)
    except DataError as error:
        reason = str(error)
        if "data.columns" not in reason and "data.format" not in reason:
            raise
        raise DataError(
            f"{file}: cannot tell which columns are texts; it must be .txt, a sentence a line, or .csv, .tsv or .jsonl "
            "with the columns premise and hypothesis, sent0 and sent1, anchor and positive, or sentence"
        ) from error
    if log and (doubt := store.doubt()):
        log(doubt)
    return StoredTexts(store)


class EncodedTexts:
    """A VectorSource that encodes texts on demand. encode: returns the vectors that `encoder` has for any n texts."""

    def __init__(self, texts: FitTexts, encode: Callable[[Sequence[str]], Encoded], encoder: Encoder) -> None:
        self.texts, self.name, self.sides = texts, texts.name, texts.sides
        self._encode, self._encoder = encode, encoder

    def __len__(self) -> int:
        return self.texts.items * self.sides

    def blocks(self) -> Iterator[NDArray[np.float32]]:
        for side in range(self.sides):
            for start in range(0, self.texts.items, _BLOCK):
                yield self._vectors(self.texts.side(side, range(start, min(start + _BLOCK, self.texts.items))))

    def shuffled(self, batch_size: int, rng: np.random.Generator) -> Iterator[NDArray[np.float32]]:
        order = rng.permutation(self.texts.items)
        many = max(1, _BLOCK // (batch_size * self.sides)) * batch_size  # whole batches
        for start in range(0, len(order), many):
            rows = order[start : start + many].tolist()
            flat = self._vectors([text for side in range(self.sides) for text in self.texts.side(side, rows)])
            items = flat.reshape(self.sides, len(rows), -1).transpose(1, 0, 2)
            for first in range(0, len(rows), batch_size):
                yield items[first : first + batch_size]

    def with_dropout(self, seed: int) -> EncodedTexts:
        dropping = self._encoder.with_dropout(seed)
        return EncodedTexts(self.texts, dropping.run, dropping)

    def _vectors(self, texts: list[str]) -> NDArray[np.float32]:
        vectors = self._encode(texts).vectors
        if issparse(vectors):
            raise EncoderError(f"{self._encoder.spec.name} gives sparse vectors, which cannot be post-processed")
        bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        if len(bad):
            raise EncoderError(not_finite(self._encoder.spec, texts, bad))
        dense: NDArray[np.float32] = vectors
        return dense


class VectorFormat(Protocol):
    """A format of folders of texts with their vectors, registered in the entry points `stsbench.vector_formats`."""

    def recognises(self, folder: Path) -> bool:
        """Return whether `folder` looks like one of this format, complete or not."""

    def encoder(self, folder: Path, name: str) -> Encoder:
        """Return an encoder, known as `name`, that looks texts up. StsbenchError, one line: not readable."""

    def source(self, folder: Path, encoder: Encoder) -> VectorSource:
        """Return the folder's vectors to fit on. StsbenchError, one line: not readable, or not those of `encoder`."""


def vector_formats() -> list[VectorFormat]:
    """Return all formats that are installed: the core has none of its own."""
    return [resolve(GROUP, name) for name in names(GROUP)]


def vector_format(path: Path) -> VectorFormat | None:
    """Return the format of the folder `path`; None where no installed one recognises it."""
    return next((candidate for candidate in vector_formats() if candidate.recognises(path)), None)
