"""Tokenise texts inside a preset's template, and locate the text and a placeholder among the tokens."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.encoders.prompt.template import Template, Tokeniser, with_full_stop
from stsbench.encoders.prompt.tokenizer import known_text
from stsbench.errors import EncoderError
from stsbench.extensions.decoders.base import PresetReading

_PLACEHOLDER = "\ue000PST\ue001"  # of Unicode's private use area, so that texts do not contain it
_OPENING = ' "{}"'  # the placeholder is put directly before this part of a template
_Placed = tuple[list[int], list[int], list[int]]  # token ids, positions of the first copy, positions of the second


# Rules by which released code changes a text before it is put into a template.
CLEAN_UPS: dict[str, Callable[[str], str]] = {
    "none": lambda text: text,
    "full_stop": with_full_stop,  # PromptBERT's evaluation.py
    "prompteol": partial(with_full_stop, rule="prompteol"),  # PromptEOL's code and code based on it
}


@dataclass(frozen=True)
class Rows:
    """Token ids of n texts. cut: bool (n,), truncated; tails: (n,) number of last tokens that are pooled under
    PresetReading.over; prepended: (n,) positions of the placeholder, or None."""

    ids: list[list[int]]
    cut: NDArray[np.bool_]
    tails: NDArray[np.int64]
    prepended: NDArray[np.int64] | None = None


class _Tokeniser:
    """Base class of the three ways to put a text into a template."""

    def __init__(self, tokenizer: Any, reading: PresetReading, limit: int | None, limit_name: str) -> None:
        """Prepare the tokenizer. limit: most tokens of a text with its template, None for no limit."""
        self.tokenizer, self.clean = tokenizer, CLEAN_UPS[reading.clean_up]
        self.limit, self.limit_name = limit, limit_name
        self.trailing = 0 if reading.own_ends else trailing_tokens(tokenizer)
        self._plain = Tokeniser(tokenizer, None, Template())

    def __call__(self, texts: Sequence[str]) -> Rows:
        """Return the token ids of n texts. Raises EncoderError where the limit leaves no token of a text."""
        return self._rows([self.clean(text) for text in texts])

    def _rows(self, texts: list[str]) -> Rows:
        raise NotImplementedError

    def _alone(self, texts: list[str]) -> list[list[int]]:
        """Return the token ids of texts without template and special tokens."""
        if not texts:
            return []
        rows = self.tokenizer(texts, add_special_tokens=False, padding=False, truncation=False, verbose=False)["input_ids"]
        return [list(row) for row in rows]

    def _no_room(self, text: str) -> EncoderError:
        return EncoderError(f"{self.limit_name} {self.limit} leaves no token of {text[:60]!r} beside its template")


class OneCopy(_Tokeniser):
    """Tokenises the filled template as a whole, as the released code of PromptEOL and code based on it do."""

    def __init__(self, tokenizer: Any, reading: PresetReading, template: str, limit: int | None, limit_name: str) -> None:
        self.placeholder: int | None = None
        if reading.prepend is not None:
            tokenizer, template = copy.deepcopy(tokenizer), template.replace(_OPENING, f" {_PLACEHOLDER}{_OPENING}")
            tokenizer.add_tokens([_PLACEHOLDER])
            self.placeholder = int(tokenizer.convert_tokens_to_ids(_PLACEHOLDER))
        super().__init__(tokenizer, reading, limit, limit_name)
        before, _, after = template.partition("{}")
        filled = Template(reading.shots + before, after)
        self._filled = Tokeniser(
            tokenizer, None if limit is None else limit + self.trailing, filled, limit_name=limit_name
        )
        self._after = after if reading.over == "alone" else None

    def _rows(self, texts: list[str]) -> Rows:
        ids, cut = self._filled(texts)
        ids = [row[: len(row) - self.trailing] for row in ids]
        tails = np.array([len(row) for row in ids], dtype=np.int64)
        if self._after is not None:
            alone = [len(row) for row in self._alone([text + self._after for text in texts])]
            tails = np.minimum(np.maximum(np.array(alone, dtype=np.int64), 1), tails)
        if self.placeholder is None:
            return Rows(ids, cut, tails)
        prepended = np.array([row.index(self.placeholder) for row in ids], dtype=np.int64)
        for row, position in zip(ids, prepended.tolist(), strict=True):
            row[position] = 0  # any valid id, as its embedding is replaced
        return Rows(ids, cut, tails, prepended)


class TwoCopies(_Tokeniser):
    """Tokenises a filled template that holds the text twice; truncation removes the last tokens of both copies."""

    def __init__(self, tokenizer: Any, reading: PresetReading, template: str, limit: int | None, limit_name: str) -> None:
        super().__init__(tokenizer, reading, limit, limit_name)
        self._parts = template.split("{}")
        if self._plain.backend is None:
            raise EncoderError(f"--preset {reading.preset} needs a fast tokenizer, which says where its tokens stand")

    def _rows(self, texts: list[str]) -> Rows:
        read = [self._placed(text) for text in texts]
        cut = np.array([self.limit is not None and len(ids) > self.limit for ids, _, _ in read], dtype=np.bool_)
        for i in np.flatnonzero(cut).tolist():
            read[i] = self._shorten(*read[i], texts[i])
        tails = np.array([max(1, len(second)) for _, _, second in read], dtype=np.int64)
        return Rows([ids for ids, _, _ in read], cut, tails)

    def _placed(self, text: str) -> _Placed:
        """Return token ids, and the positions of the two copies in them. A blank that is a token by itself belongs to
        neither."""
        first, between, after = self._parts
        filled = first + text + between + text + after
        encoding = self._plain.backend.encode(filled)
        size = len(encoding.ids) - self.trailing
        start = len(first)
        again = start + len(text) + len(between)
        copies = [
            [i for i, (left, right) in enumerate(encoding.offsets[:size]) if right > begin and left < begin + len(text)]
            for begin in (start, again)
        ]
        return list(encoding.ids[:size]), copies[0], copies[1]

    def _shorten(self, ids: list[int], first: list[int], second: list[int], text: str) -> _Placed:
        assert self.limit is not None
        dropped = (len(ids) - self.limit + 1) // 2
        if dropped >= min(len(first), len(second)):
            raise self._no_room(text)
        gone = {*first[-dropped:], *second[-dropped:]}
        return [token for i, token in enumerate(ids) if i not in gone], first[:-dropped], second[:-dropped]


class Segments(_Tokeniser):
    """Tokenises every part of a template separately, with no other special tokens than those that it names."""

    def __init__(self, tokenizer: Any, reading: PresetReading, template: str, limit: int | None, limit_name: str) -> None:
        super().__init__(tokenizer, reading, limit, limit_name)
        named = {"{bos}": tokenizer.bos_token or "", "{eos}": tokenizer.eos_token or ""}
        parts = [part if part == "{}" else _replaced(part, named) for part in reading.segments]
        self._parts = [None if part == "{}" else self._alone([part])[0] for part in parts]
        self._behind = len(self._parts) - 1 - max(i for i, part in enumerate(self._parts) if part is None)

    def _rows(self, texts: list[str]) -> Rows:
        around, copies = sum(len(part) for part in self._parts if part is not None), self._parts.count(None)
        room = None if self.limit is None else (self.limit - around) // copies
        if room is not None and room < 1 and texts:
            raise self._no_room(texts[0])
        whole = self._alone(texts)
        kept = [row[:room] for row in whole]
        behind = sum(len(part) for part in self._parts[len(self._parts) - self._behind:] if part is not None)
        ids = [[token for part in self._parts for token in (row if part is None else part)] for row in kept]
        cut = np.array([room is not None and len(row) > room for row in whole], dtype=np.bool_)
        return Rows(ids, cut, np.array([max(1, len(row) + behind) for row in kept], dtype=np.int64))


def tokeniser(tokenizer: Any, reading: PresetReading, template: str, limit: int | None, limit_name: str) -> _Tokeniser:
    """Return the tokeniser for one template of a reading, by its form."""
    kind = Segments if reading.segments else TwoCopies if template.count("{}") == 2 else OneCopy
    return kind(tokenizer, reading, template, limit, limit_name)


def trailing_tokens(tokenizer: Any) -> int:
    """Return how many special tokens a tokenizer appends to a text by default."""
    texts = ("", known_text(tokenizer))
    special, probe = (list(tokenizer(text, padding=False, truncation=False)["input_ids"]) for text in texts)
    first = next((i for i, pair in enumerate(zip(special, probe, strict=False)) if pair[0] != pair[1]), len(special))
    return len(special) - first


def _replaced(part: str, values: dict[str, str]) -> str:
    for name, token in values.items():
        part = part.replace(name, token)
    return part
