"""An encoder whose vectors stay in memory, for all the encoders that are made of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stsbench.encoders.base import Call, Encoded, Encoder, Progress, Wrapper
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.probe import TEXTS


class Vectors:
    """The vectors that encoders have computed, by encoder: each distinct text once, whoever asks for it."""

    def __init__(self, cache: Any = None) -> None:
        """cache: an EmbeddingCache, where they are looked up before anything is computed, or None."""
        self._cache = cache
        self._of: dict[str, Embed] = {}

    def of(self, encoder: Encoder) -> Embed:
        """What holds the vectors of an encoder as it reads its texts."""
        key = encoder.spec.fingerprint()
        if key not in self._of:
            self._of[key] = Embed(encoder, self._cache)
        return self._of[key]

    def of_length_one(self, base: Encoder) -> bool:
        """Return whether all vectors of `base` that were computed, in whatever role, have length 1; where none was, those
        of the probe's texts. Whoever made the model need not have said so: a function or a server cannot."""
        identity = base.identity.fingerprint()
        embeds = [embed for embed in self._of.values() if embed.encoder.identity.fingerprint() == identity and embed.encoded]
        if not embeds:
            embeds = [self.of(base)]
            embeds[0].add(TEXTS)
        return all(embed.of_length_one() for embed in embeds)


class Held(Wrapper):
    """`base` itself, by its own fingerprint; its vectors are kept in `vectors`."""

    cacheable = False  # those of `base` are
    computes_in = "nothing"  # it looks its vectors up: what they cost is the base's to tell

    def __init__(self, base: Encoder, vectors: Vectors) -> None:
        super().__init__(base)
        self._vectors = vectors

    def run(self, texts: Sequence[str], progress: Progress | None = None) -> Encoded:
        """float32 (n, d) vectors of the base, computed once each; a text whose vector is not finite keeps one of NaN."""
        embed = self._vectors.of(self.base)
        embed.progress = progress
        try:
            encoded = Encoded(embed(texts), embed.truncated(texts))
        finally:
            embed.progress = None
        self.take_notes()
        return encoded

    def on(self, base: Encoder, call: Call) -> Encoder:
        """Return the vectors of another base."""
        return Held(base, self._vectors)
