"""Normalisation of sentences, keys of texts and pairs, and graphs of the items that share a sentence. Texts count as equal,
in any script, where their letters and digits are, whatever their case, punctuation and spaces.

`sentence_numbers.npz` holds no text: for every pair of STS12-16, STS-B and SICK it has the pair's key in records, and the
numbers of its two sentences, equal for equal sentences of all sets as `letters` compares them, so that SentEval's and the
raw text have one numbering. `benchmarks/sentence_numbers.py` makes it.
"""

from __future__ import annotations

import hashlib
import html
import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.metrics.shared_sentences import Ints, SharedSentences

# Full-width forms of ASCII, and half-width forms of katakana and hangul.
_WIDTHS = re.compile("[\uff00-\uffef\u3000]+")
# Scripts that put no space between words: Thai, Lao, Tibetan, Burmese, Khmer, kana, ideographs.
_UNSPACED = ("[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
             "\U00020000-\U0003ffff]")
_SPACE_WITHIN = re.compile(f"(?<={_UNSPACED}) (?={_UNSPACED})")
_WORDS = re.compile(r"[^\W_]+")
Keys = NDArray[np.uint64]
SENTENCES = ("sentence1", "sentence2", "sentence3")  # arrays with the keys of each side's texts, where items share texts
FILE = Path(__file__).with_name("sentence_numbers.npz")
_DROPPED = np.uint64(16)  # bits of a key that the file leaves out: 48 are enough for its 23,000 pairs


def unified(text: str) -> str:
    """Return the text with full- and half-width forms replaced by the usual ones, and marks composed with their letters.

    >>> unified("ＡＢＣ　ｶﾞ")
    'ABC ガ'
    """
    if text.isascii():
        return text
    text = _WIDTHS.sub(lambda match: unicodedata.normalize("NFKC", match.group()), text)
    # Only with separate marks: NFC also replaces single letters (Greek oxia), which would change keys in records.
    return unicodedata.normalize("NFC", text) if any(map(_may_compose, text)) else text


@cache
def _may_compose(char: str) -> bool:
    """Return whether a character is part of one that NFC may compose: a mark, or a piece of a hangul syllable."""
    return unicodedata.category(char)[0] == "M" or "\u1100" <= char <= "\u11ff"


@cache
def is_letter(char: str) -> bool:
    """Return whether a character is a letter, a digit, or a mark that belongs to one, such as a vowel sign of Hindi or Thai.

    `str.isalnum` and `\\w` take such marks for punctuation, which would make different words of these scripts equal.

    >>> is_letter("\\u093f"), "\\u093f".isalnum()  # Devanagari's vowel sign i
    (True, False)
    """
    variation = "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef"  # change only how a character looks
    return char.isalnum() or (unicodedata.category(char)[0] == "M" and not variation)


def letters(text: str) -> str:
    """Return only the letters and digits of a text, case-folded.

    >>> letters("Ｔokyo, 東京!")
    'tokyo東京'
    """
    return "".join(letter for letter in unified(text).casefold() if is_letter(letter))


def words(text: str) -> str:
    """Return the letters and digits of a text, case kept, with one space in place of any other characters between them.
    Between letters of scripts that are written without spaces, such as Chinese, nothing is inserted.

    >>> words("it's — 3!"), words("你好，世界")
    ('it s 3', '你好世界')
    """
    kept = "".join(letter if is_letter(letter) else " " for letter in unified(text))
    return unified(_SPACE_WITHIN.sub("", " ".join(kept.split())))


def normalise(text: str) -> str:
    """Return the text in lower case, with only letters and digits and one space between words; Moses' HTML entities (&apos;)
    count as punctuation.

    In any script vowel signs and accents belong to their letters and widths do not count; punctuation between ideographs,
    kana or Thai, which are written without spaces, is removed without a space."""
    text = html.unescape(text).lower()
    return " ".join(_WORDS.findall(text)) if text.isascii() else words(text)


def pair_keys(first: Sequence[str], second: Sequence[str]) -> Keys:
    """Return uint64 (n,), a key for each pair, independent of the sentences' order, case, spaces and punctuation."""
    return np.array([_key("\0".join(sorted((letters(a), letters(b))))) for a, b in zip(first, second, strict=True)],
                    dtype=np.uint64)


def text_keys(texts: Sequence[str], exact: bool = False) -> Keys:
    """Return uint64 (n,), a key for each text, independent of case, spaces and punctuation unless `exact`."""
    return np.array([_key(text if exact else letters(text)) for text in texts], dtype=np.uint64)


def _key(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def packed(pairs: Keys, first: Sequence[str], second: Sequence[str]) -> dict[str, NDArray[np.generic]]:
    """Return the file's arrays for n pairs with keys (n,): key uint8 (6, m), the bytes of the m distinct keys in ascending
    order, and sentence uint16 (2, m), the numbers of their sentences."""
    keys, at = np.unique(pairs >> _DROPPED, return_index=True)
    texts = [letters(text) for text in [*np.asarray(first, object)[at], *np.asarray(second, object)[at]]]
    numbers = np.unique(texts, return_inverse=True)[1].astype("<u2").reshape(2, -1)
    return {"key": np.ascontiguousarray(keys.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :6].T), "sentence": numbers}


@cache
def _known() -> tuple[Keys, Keys]:
    """Return the file's keys (m,), ascending, and the numbers (2, m) of their sentences."""
    with np.load(FILE) as stored:
        bytes_of = np.zeros((stored["key"].shape[1], 8), np.uint8)
        bytes_of[:, :6] = stored["key"].T
        return bytes_of.reshape(-1).view("<u8").astype(np.uint64), stored["sentence"].astype(np.uint64)


def _positions(pairs: Keys) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    keys, _ = _known()
    at = np.minimum(np.searchsorted(keys, pairs >> _DROPPED), len(keys) - 1)
    return at, np.asarray(keys[at] == pairs >> _DROPPED)


def rows_name(rows: Ints) -> str:
    """Return the name of the file's array of pairs for this order of a set's rows, which depends on the data alone."""
    return f"rows {hashlib.sha256(np.asarray(rows, '<i8').tobytes()).hexdigest()[:16]}"


def pairs_of_rows(rows: Ints) -> Keys | None:
    """Return the known bits of the keys of test pairs, from their row numbers in SentEval's splits of STS-B, SICK-R and
    SICK-E; None for any other rows."""
    with np.load(FILE) as stored:
        name = rows_name(rows)
        return _known()[0][stored[name]] << _DROPPED if name in stored else None


def has_numbers(pairs: Keys) -> bool:
    """Return whether the file holds all these pairs."""
    return bool(_positions(pairs)[1].all())


def known_sentences(pairs: Keys) -> tuple[Keys, Keys]:
    """Return uint64 (n,) twice, the numbers of each pair's two sentences; an unknown pair gets numbers of its own, as if it
    shared no sentence.

    pairs: (n,) keys from `pair_keys`.
    """
    at, known = _positions(pairs)
    first, second = _known()[1][:, at]
    return np.where(known, first, pairs), np.where(known, second, ~pairs)


def sentence_arrays(*sides: Sequence[str], exact: bool = True) -> dict[str, Keys]:
    """Return array name -> uint64 (n,), the keys of one side's texts; {} where no two items share a text.

    exact: whether texts that differ only in case, spaces or punctuation are different.
    """
    keys = [text_keys(side, exact=exact) for side in sides]
    return dict(zip(SENTENCES, keys, strict=False)) if SharedSentences(*keys).dependent else {}


def sentence_graph(arrays: Mapping[str, NDArray[Any]], rows: Ints | slice = slice(None)) -> SharedSentences | None:
    """Return the graph of the items in `rows` that share sentences, by the keys in `arrays`; None where the items are
    independent."""
    sides = [arrays[name][rows] for name in SENTENCES if name in arrays]
    graph = shared_graph(sides, np.zeros(len(sides[0]), np.int64)) if sides else None
    return graph if graph is not None and graph.dependent else None


def shared_graph(sides: Sequence[Keys], stratum: Ints) -> SharedSentences:
    """Return the graph of n items, cached, as all encoders have the same items. stratum: as for `SharedSentences`."""
    return _cached_graph(tuple(side.tobytes() for side in sides), stratum.tobytes())


@lru_cache(maxsize=64)
def _cached_graph(sides: tuple[bytes, ...], stratum: bytes) -> SharedSentences:
    keys = [np.frombuffer(side, dtype=np.uint64) for side in sides]
    return SharedSentences(*keys, stratum=np.frombuffer(stratum, dtype=np.int64))
