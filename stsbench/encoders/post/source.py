"""Vectors to fit on: encoded as they are asked for, or read from a folder that holds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from stsbench.encoders.base import Encoded, Encoder
from stsbench.encoders.cache.encode import not_finite
from stsbench.encoders.post.base import VectorSource
from stsbench.encoders.post.texts import FitTexts
from stsbench.errors import EncoderError
from stsbench.registry import names, resolve

GROUP = "stsbench.vector_formats"  # entry points
_BLOCK = 16_384  # texts encoded at a time: what is in memory


class EncodedTexts:
    """The VectorSource of some texts. encode: texts, any n, to the vectors that `encoder` gives for them."""

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
        """Return its vectors to fit on. StsbenchError, one line: not readable, or not those of `encoder`."""


def vector_formats() -> list[VectorFormat]:
    """Return all formats that are installed: the core has none of its own."""
    return [resolve(GROUP, name) for name in names(GROUP)]


def vector_format(path: Path) -> VectorFormat | None:
    """Return the format of the folder `path`; None where no installed one recognises it."""
    return next((candidate for candidate in vector_formats() if candidate.recognises(path)), None)
