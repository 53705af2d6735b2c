"""Text to token ids, once per text, cut only at the limit that the encoder states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.encoders.prompt.template import FullStop, Template, with_full_stop
from stsbench.encoders.prompt.tokenizer import known_text, panics_are_errors
from stsbench.errors import EncoderError


class Tokeniser:
    """A transformers tokenizer with our template and limit.

    A tokenizer.json may carry truncation (128 in all-MiniLM-L6-v2's) and fixed padding: both are switched off here, or
    they would act in silence. full_stop: whether one is put behind texts, and behind which (with_full_stop).
    """

    def __init__(
        self, tokenizer: Any, limit: int | None, template: Template, full_stop: FullStop = False,
        limit_name: str = "--max-length",
    ) -> None:
        self.tokenizer = tokenizer
        self.limit, self.limit_name = limit, limit_name
        self.template = template
        self.full_stop = full_stop
        self.drops_first = getattr(tokenizer, "truncation_side", "right") == "left"
        self.backend = _backend(tokenizer)
        if self.backend is not None:
            self.backend.no_truncation()
            self.backend.no_padding()
        self.head, self.tail = self._ends()
        least = len(self._one(template.fill("")))
        if limit is not None and limit <= least:
            raise EncoderError(f"{limit_name} {limit} leaves no token for the sentence: the {least} around it fill it")

    def __call__(self, texts: Sequence[str]) -> tuple[list[list[int]], NDArray[np.bool_]]:
        """Token ids of n texts, and which of them were cut: bool (n,)."""
        filled = [self.template.fill(with_full_stop(text, self.full_stop)) for text in texts]
        if self.backend is not None:
            fast = getattr(self.backend, "encode_batch_fast", self.backend.encode_batch)  # fast: without offsets
            with panics_are_errors(str(getattr(self.tokenizer, "name_or_path", "") or "this model")):
                ids = [encoding.ids for encoding in fast(filled)]
        else:
            ids = [list(row) for row in self.tokenizer(filled)["input_ids"]] if filled else []
        cut = np.array([self.limit is not None and len(row) > self.limit for row in ids], dtype=np.bool_)
        for i in np.flatnonzero(cut).tolist():
            ids[i] = self._shorten(filled[i], ids[i])
        return ids, cut

    def mark(self, ids: Sequence[int], text: str) -> int:
        """Where the template's mask token stands; EncoderError where a text has lost it.

        A text may hold mask tokens of its own, so it is counted to: from the end where it stands behind the sentence, else
        from the start. A tokenizer splits a text at mask tokens first, so what is beyond one is the same for every text.
        """
        mask, last = self.tokenizer.mask_token_id, self.template.mask_last
        side = self.tail if last else self.head
        if mask in side:
            position = len(ids) - len(side) + side.index(mask) if last else side.index(mask)
            if 0 <= position < len(ids) and ids[position] == mask:
                return position
        raise EncoderError(f"the tokenizer lost the template's mask token in {text[:60]!r}")

    def _one(self, filled: str) -> list[int]:
        if self.backend is not None:
            return list(self.backend.encode(filled).ids)
        return list(self.tokenizer(filled)["input_ids"])

    def _ends(self) -> tuple[list[int], list[int]]:
        """The tokens before and behind every sentence, special ones included, each part of the template by itself."""
        special, probe = self._one(""), self._one(known_text(self.tokenizer))
        first = next((i for i, pair in enumerate(zip(special, probe, strict=False)) if pair[0] != pair[1]), len(special))
        before, after = self._one(self.template.before.rstrip()), self._one(self.template.after)
        return before[: len(before) - (len(special) - first)], after[first:]

    def _shorten(self, filled: str, ids: list[int]) -> list[int]:
        """`ids` without the sentence's last tokens (its first ones where the tokenizer's truncation_side is left), so that
        special tokens and template stay whole."""
        excess = len(ids) - (self.limit or 0)
        start, stop = len(self.head), len(ids) - len(self.tail)
        if start <= stop and ids[:start] == self.head and ids[stop:] == self.tail:
            sentence = list(range(start, stop))
        else:  # template and sentence share a token; a slow tokenizer knows no offsets
            sentence = [] if self.backend is None else self._inside(filled)
        if excess >= len(sentence):
            raise EncoderError(f"{self.limit_name} {self.limit} cannot hold the template around {filled[:60]!r}")
        dropped = set(sentence[:excess] if self.drops_first else sentence[-excess:])
        return [token for i, token in enumerate(ids) if i not in dropped]

    def _inside(self, filled: str) -> list[int]:
        """Which tokens are the sentence's alone, by the characters that they stand for."""
        assert self.backend is not None
        encoding, before = self.backend.encode(filled), self.template.before
        start, stop = len(before.rstrip()), len(filled) - len(self.template.after)
        return [
            i for i, (left, right) in enumerate(encoding.offsets)
            if not encoding.special_tokens_mask[i] and start <= left < right <= stop
        ]


def _backend(tokenizer: Any) -> Any:
    """The tokenizer that transformers' own fast classes pass texts on to. None for slow ones, and for a class of a folder's
    or a program's own, which may change texts or ids on the way."""
    fast = getattr(tokenizer, "is_fast", False) and type(tokenizer).__module__.partition(".")[0] == "transformers"
    return getattr(tokenizer, "backend_tokenizer", None) if fast else None
