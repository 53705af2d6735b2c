"""`vectors:DIR`: the vectors of a folder that `stsbench encode` wrote."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stsbench.encoders.base import Encoded, Encoder, EncoderSpec, Progress
from stsbench.encoders.store.vectors import VectorStore
from stsbench.errors import EncoderError


class StoreEncoder(Encoder):
    """Looks each text up in a store, which is itself a cache; white space around a text does not count."""

    cacheable = False

    def __init__(self, folder: str | Path, name: str | None = None) -> None:
        """StsbenchError, one line: not a complete store."""
        self.store = store = VectorStore(Path(folder))
        maker, self.dimension = store.encoder, store.dimension
        self.spec = EncoderSpec(
            name=name or f"vectors:{folder}", kind="vectors", weights=store.digest, max_length=maker.max_length,
            options={"dtype": store.dtype},
        )  # fmt: skip
        self.similarity, self.trained_on = store.manifest.similarity, store.manifest.trained_on
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
