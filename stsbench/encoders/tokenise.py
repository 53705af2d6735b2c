"""Text to token ids, once per text, cut only at the limit that the encoder states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.encoders.template import Template
from stsbench.errors import EncoderError


class Tokeniser:
    """A transformers tokenizer with a template and a limit of its own.

    A tokenizer.json may carry truncation (128 in all-MiniLM-L6-v2's) and fixed padding: both are switched off here, or
    they would act in silence.
    """

    def __init__(self, tokenizer: Any, limit: int | None, template: Template) -> None:
        self.tokenizer = tokenizer
        self.limit = limit
        self.template = template
        self.backend = getattr(tokenizer, "backend_tokenizer", None) if getattr(tokenizer, "is_fast", False) else None
        if self.backend is not None:
            self.backend.no_truncation()
            self.backend.no_padding()
        least = len(self._one(""))
        if limit is not None and limit <= least:
            raise EncoderError(f"--max-length {limit} leaves no token for the sentence: the {least} around it fill it")

    def __call__(self, texts: Sequence[str]) -> tuple[list[list[int]], NDArray[np.bool_]]:
        """Token ids of n texts, and which of them were cut: bool (n,)."""
        filled = [self.template.fill(text) for text in texts]
        if self.backend is not None:
            fast = getattr(self.backend, "encode_batch_fast", self.backend.encode_batch)  # fast: without offsets
            ids = [encoding.ids for encoding in fast(filled)]
        else:
            ids = [list(row) for row in self.tokenizer(filled)["input_ids"]] if filled else []
        cut = np.array([self.limit is not None and len(row) > self.limit for row in ids], dtype=np.bool_)
        for i in np.flatnonzero(cut).tolist():
            ids[i] = self._shorten(filled[i], ids[i])
        return ids, cut

    def mark(self, ids: Sequence[int], text: str) -> int:
        """Where the template's mask token stands; EncoderError where a text has lost it."""
        mask = self.tokenizer.mask_token_id
        places = [i for i, token in enumerate(ids) if token == mask]
        if not places:
            raise EncoderError(f"the tokenizer lost the template's mask token in {text[:60]!r}")
        return places[-1] if self.template.mask_last else places[0]

    def _one(self, text: str) -> list[int]:
        filled = self.template.fill(text)
        if self.backend is not None:
            return list(self.backend.encode(filled).ids)
        return list(self.tokenizer(filled)["input_ids"])

    def _shorten(self, filled: str, ids: list[int]) -> list[int]:
        """`ids` without the sentence's last tokens, so that special tokens and template stay whole."""
        excess = len(ids) - (self.limit or 0)
        if self.backend is None:  # a slow tokenizer knows no offsets: its own truncation keeps the special tokens
            if self.template.after:
                raise EncoderError(f"--max-length {self.limit} would cut the template off {filled[:60]!r}")
            return list(self.tokenizer(filled, truncation=True, max_length=self.limit)["input_ids"])
        encoding = self.backend.encode(filled)
        start, stop = len(self.template.before), len(filled) - len(self.template.after)
        sentence = [
            i for i, (left, right) in enumerate(encoding.offsets)
            if not encoding.special_tokens_mask[i] and start <= left < right <= stop
        ]
        if excess >= len(sentence):  # tokens without characters, or a template that swallows the sentence
            raise EncoderError(f"--max-length {self.limit} cannot hold the template around {filled[:60]!r}")
        dropped = set(sentence[-excess:])
        return [token for i, token in enumerate(ids) if i not in dropped]
