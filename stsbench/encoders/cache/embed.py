"""The vectors of every text of a run, encoded once and asked for by text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse, vstack

from stsbench.encoders.base import Encoder, EncoderSpec, Progress, checked_texts
from stsbench.encoders.cache.cache import EmbeddingCache
from stsbench.encoders.cache.encode import encode_cached, not_finite
from stsbench.errors import EncoderError
from stsbench.plugins import calling


class Embed:
    """Text -> vector. `add` encodes; a call looks up, and encodes what nobody added before."""

    def __init__(self, encoder: Encoder, cache: EmbeddingCache | None = None, progress: Progress | None = None) -> None:
        encoder.use_cache(cache)
        self.encoder = encoder
        self.encoded = 0  # distinct texts held
        self._cache, self._progress = cache, progress
        self._row: dict[str, int] = {}
        self._vectors: Any = None
        self._truncated = np.zeros(0, dtype=bool)
        self._fitted: dict[str, Embed] = {}
        self._roles: dict[tuple[str | None, str | None], Embed] = {}

    @property
    def spec(self) -> EncoderSpec:
        """The encoder's."""
        return self.encoder.spec

    @property
    def dimension(self) -> int:
        """The width of the vectors; 0 before any text was encoded."""
        return 0 if self._vectors is None else int(self._vectors.shape[1])

    def add(self, texts: Sequence[str]) -> None:
        """Encode those of `texts` that are not held yet, in one pass. Raises EncoderError where that gives no vectors."""
        new = [text for text in dict.fromkeys(checked_texts(texts)) if text not in self._row]
        if not new:
            return
        got = encode_cached(self.encoder, new, self._cache, self._progress, tolerant=True)
        start = len(self._row)
        self._row.update({text: start + i for i, text in enumerate(new)})
        self._vectors = got.vectors if self._vectors is None else _stacked(self._vectors, got.vectors)
        self._truncated = np.concatenate([self._truncated, got.truncated])
        self.encoded = len(self._row)

    def __call__(self, texts: Sequence[str]) -> Any:
        """float32 (n, d) vectors of n texts, dense or CSR, in their order."""
        texts = checked_texts(texts)
        self.add(texts)
        if self._vectors is None:
            return np.zeros((0, 0), dtype=np.float32)
        return self._vectors[self._rows(texts)]

    def for_set(self, texts: Sequence[str], source: str) -> Embed:
        """This, or for an encoder that is fitted on each set by itself, the one fitted on `texts`, known as `source`.

        An encoder that was fitted before it came here stays as it is.
        """
        if self.spec.fitted_on is not None:
            return self
        if source not in self._fitted:
            encoder = self.encoder
            fitted = calling(type(encoder), "fit", lambda: encoder.fit(texts, source), raising=EncoderError)
            if fitted is encoder:
                return self
            self._fitted[source] = Embed(fitted, self._cache, self._progress)
        return self._fitted[source]

    def for_role(self, role: str | None, prompt: str | None = None) -> Embed:
        """The vectors of texts in a role, or behind `prompt` (Encoder.for_role); this where that is all one."""
        encoder = self.encoder.for_role(role, prompt)
        if encoder is self.encoder:
            return self
        return self._roles.setdefault((role, prompt), Embed(encoder, self._cache, None))

    def for_task(self, kind: str, name: str = "", metadata: Any = None) -> Embed:
        """The vectors of texts of a task (Encoder.for_task); this where that is all one."""
        encoder = self.encoder.for_task(kind, name, metadata)
        if encoder is self.encoder:
            return self
        return self._roles.setdefault((kind, name), Embed(encoder, self._cache, None))

    def unusable(self, texts: Sequence[str]) -> str | None:
        """One line when a text's vector is not finite, else None."""
        vectors = self(texts)
        bad = np.zeros(0, dtype=np.intp) if issparse(vectors) else np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        return not_finite(self.spec.name, texts, bad) if len(bad) else None

    def truncated(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """bool (n,): which of n texts lost tokens to the model's limit."""
        self.add(texts)
        return self._truncated[self._rows(texts)]

    def _rows(self, texts: Sequence[str]) -> NDArray[np.intp]:
        return np.array([self._row[text] for text in texts], dtype=np.intp)


def _stacked(first: Any, second: Any) -> Any:
    if not issparse(first):
        return np.concatenate([first, second])
    width = max(first.shape[1], second.shape[1])  # a vocabulary grows with every text
    for part in (first, second):
        part.resize(part.shape[0], width)
    return vstack([first, second]).tocsr()
