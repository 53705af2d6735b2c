"""A transformer whose spec is known before its weights are loaded: what is all in the cache needs no torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from stsbench.encoders.base import Encoded, Encoder, EncoderSpec, Progress
from stsbench.errors import EncoderError

# Architectures whose position limit follows from config.json; RoBERTa's kin count positions from the padding index on.
_PLAIN, _OFFSET = ("bert", "distilbert", "electra"), ("roberta", "xlm-roberta", "camembert", "mpnet")


def stated_limit(folder: Path) -> int | None:
    """Tokens that a checkpoint has positions for, read off config.json; None where loading the model must tell."""
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    positions, kind = config.get("max_position_embeddings"), config.get("model_type")
    if not isinstance(positions, int) or kind not in (*_PLAIN, *_OFFSET):
        return None
    return positions if kind in _PLAIN else positions - config.get("pad_token_id", 1) - 1


class LazyEncoder(Encoder):
    """Stands for `build()` by its `spec` and builds it at the first text that has to be encoded."""

    def __init__(self, spec: EncoderSpec, build: Callable[[], Encoder]) -> None:
        self.spec = spec
        self._build = build
        self._built: Encoder | None = None

    @property
    def built(self) -> Encoder:
        """The encoder itself. Raises EncoderError when it is not the one the spec promised."""
        if self._built is None:
            encoder = self._build()
            if encoder.spec != self.spec:  # vectors would be cached under another encoder's fingerprint
                raise EncoderError(
                    f"{self.spec.name} changed while it was being loaded, or its config.json misstates it: "
                    f"{encoder.spec} instead of {self.spec}"
                )
            self._built = encoder
        return self._built

    def run(self, texts: Sequence[str], progress: Progress | None = None) -> Encoded:
        """Vectors of n distinct texts."""
        return self.built.run(texts, progress)
