"""What an encoder is: text in, vectors out, and a spec that names everything which changes a vector."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Progress = Callable[[int], None]  # called with the number of texts just finished


@dataclass(frozen=True)
class EncoderSpec:
    """Everything that changes a vector. `name` and `kind` are for people; the rest decides the fingerprint."""

    name: str  # as the user wrote it; not part of the fingerprint
    kind: str  # "transformers", "sentence-transformers", "words", "lexical", "vectors", "callable"
    weights: str  # sha256 over the weights (or the source, for encoders without any)
    tokenizer: str = ""  # sha256 over the tokenizer's files
    pooler: str | None = None
    template: str | None = None
    prefix: str | None = None
    max_length: int | None = None  # tokens, special ones included
    dtype: str = "float32"
    normalize: bool = False
    post: str | None = None  # post-processing, e.g. "whitening"
    fitted_on: str | None = None  # id@digest of what an encoder or its post-processing was fitted on
    options: dict[str, Any] = field(default_factory=dict)  # further named settings of one kind of encoder

    def fingerprint(self) -> str:
        """sha256 over every field but the display name."""
        fields = asdict(self)
        del fields["name"]
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Encoded:
    """vectors: float32 (n, d), dense or scipy CSR; truncated: bool (n,), texts that lost tokens to max_length."""

    vectors: Any
    truncated: NDArray[np.bool_]


class Encoder(ABC):
    """Text to vectors. Implementations give `spec` and `run`; `run` may assume distinct texts."""

    spec: EncoderSpec
    cacheable: bool = True  # False: cheaper to compute than to read, or not a function of the text alone
    # True: `fit` on a set's own texts before encoding them, so that a score does not depend on which other tasks were run.
    fitted_per_set: bool = False
    notes: tuple[str, ...] = ()  # what a user should know before a run, a line each

    @abstractmethod
    def run(self, texts: Sequence[str], progress: Progress | None = None) -> Encoded:
        """Vectors of n distinct texts, in their order."""

    def encode(self, texts: Sequence[str]) -> Any:
        """float32 (n, d) vectors of any texts; each distinct one is computed once."""
        distinct = list(dict.fromkeys(texts))
        vectors = self.run(distinct).vectors
        if len(distinct) == len(texts):
            return vectors
        row = {text: i for i, text in enumerate(distinct)}
        return vectors[[row[text] for text in texts]]

    def fit(self, texts: Sequence[str], source: str) -> Encoder:
        """This encoder fitted on `texts`, known as `source`; those that need no fitting return themselves."""
        return self
