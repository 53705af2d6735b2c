"""An encoder whose vectors stay in memory, for all the encoders that are made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stsbench.encoders.base import Encoded, Encoder, EncoderSpec, Progress
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.probe import TEXTS
from stsbench.encoders.roles import TextTask

if TYPE_CHECKING:
    import torch


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


class Held(Encoder):
    """`base` itself, by its own fingerprint; its vectors are kept in `vectors`."""

    cacheable = False  # those of `base` are
    computes_in = "nothing"  # it looks its vectors up: what they cost is the base's to tell

    def __init__(self, base: Encoder, vectors: Vectors) -> None:
        self.base, self._vectors = base, vectors
        self.spec, self.notes, self.dimension = base.spec, base.notes, base.dimension
        self.similarity_fn_name, self.prompts = base.similarity_fn_name, base.prompts
        self.default_prompt, self.adapters, self.default_route = base.default_prompt, base.adapters, base.default_route
        self.libraries, self.equal_lengths, self.trained_on = base.libraries, base.equal_lengths, base.trained_on
        self.training_overlap = base.training_overlap
        self.attention = base.attention

    @property
    def identity(self) -> EncoderSpec:
        """The base's."""
        return self.base.identity

    @property
    def spent(self) -> Mapping[str, Any]:
        """What the base asked a server for."""
        return self.base.spent

    def spent_in_words(self) -> str:
        """The base's."""
        return self.base.spent_in_words()

    @property
    def reads_by_task(self) -> bool:
        """Whether the base does."""
        return self.base.reads_by_task

    @property
    def engine(self) -> str:  # type: ignore[override]
        """What runs the base."""
        return self.base.engine

    @property
    def device(self) -> torch.device:
        """The base's."""
        return self.base.device

    def ready(self) -> None:
        """Load the base."""
        self.base.ready()
        self._noted()

    def run(self, texts: Sequence[str], progress: Progress | None = None) -> Encoded:
        """float32 (n, d) vectors of the base, computed once each; a text whose vector is not finite keeps one of NaN."""
        embed = self._vectors.of(self.base)
        embed.progress = progress
        try:
            encoded = Encoded(embed(texts), embed.truncated(texts))
        finally:
            embed.progress = None
        self._noted()
        return encoded

    def for_role(self, role: str | None, prompt: str | None = None) -> Encoder:
        """The base's texts in a role."""
        return self._on(self.base.for_role(role, prompt))

    def behind(self, prompt: str) -> Encoder:
        """The base behind one prompt."""
        return self._on(self.base.behind(prompt))

    def for_task(self, task: TextTask) -> Encoder:
        """The base's texts of a task."""
        return self._on(self.base.for_task(task))

    def anew(self) -> Encoder:
        """Of a base that is fitted on its texts as it reads them now."""
        return self._on(self.base.anew())

    def _on(self, base: Encoder) -> Encoder:
        return self if base is self.base else self._made(base)

    def _made(self, base: Encoder) -> Held:
        return Held(base, self._vectors)

    def _noted(self) -> None:
        self.equal_lengths = self.base.equal_lengths
        self.notes = (*self.notes, *(line for line in self.base.notes if line not in self.notes))
