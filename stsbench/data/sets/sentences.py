"""Which scored pairs share sentences: numbers of the sentences of the catalog's sets, and of any other texts; in any script
letters decide whether two texts are the same but for case, punctuation and spaces.

`sentence_numbers.npz` holds no text: of every pair of STS12-16, STS-B and SICK the key that its records hold, and two
numbers, equal for equal sentences in whatever set, as `letters` compares them (case, spaces and punctuation do not count, so
SentEval's and the raw text have one numbering). `benchmarks/sentence_numbers.py` makes it.
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

# Full width and half width forms: ASCII as wide as an ideograph, katakana and hangul half as wide.
_WIDTHS = re.compile("[\uff00-\uffef\u3000]+")
# Scripts that put no space between words: Thai, Lao, Tibetan, Burmese, Khmer, kana, ideographs.
_UNSPACED = ("[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
             "\U00020000-\U0003ffff]")
_SPACE_WITHIN = re.compile(f"(?<={_UNSPACED}) (?={_UNSPACED})")
_WORDS = re.compile(r"[^\W_]+")
Keys = NDArray[np.uint64]
SENTENCES = ("sentence1", "sentence2", "sentence3")  # arrays: the keys of each side's texts, where two items share one
FILE = Path(__file__).with_name("sentence_numbers.npz")
_DROPPED = np.uint64(16)  # bits of a key that the file leaves out: 48 are enough for its 23,000 pairs


def unified(text: str) -> str:
    """Return the text with full and half width forms as their usual ones, and marks composed with their letters.

    >>> unified("ＡＢＣ　ｶﾞ")
    'ABC ガ'
    """
    if text.isascii():
        return text
    text = _WIDTHS.sub(lambda match: unicodedata.normalize("NFKC", match.group()), text)
    # Only where marks stand by themselves: NFC also replaces single letters (Greek oxia), and records hold keys of those.
    return unicodedata.normalize("NFC", text) if any(map(_may_compose, text)) else text


@cache
def _may_compose(char: str) -> bool:
    """Return whether a character is part of one that NFC may compose: a mark, or a piece of a hangul syllable."""
    return unicodedata.category(char)[0] == "M" or "\u1100" <= char <= "\u11ff"


@cache
def is_letter(char: str) -> bool:
    """Return whether a character is a letter, a digit, or a mark that belongs to one, such as a vowel sign of Hindi or Thai.

    `str.isalnum` and `\\w` take marks for punctuation, which makes different words of these scripts equal.

    >>> is_letter("\\u093f"), "\\u093f".isalnum()  # Devanagari's vowel sign i
    (True, False)
    """
    variation = "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef"  # how an emoji or ideograph looks
    return char.isalnum() or (unicodedata.category(char)[0] == "M" and not variation)


def letters(text: str) -> str:
    """Return the letters and digits of a text alone, without case.

    >>> letters("Ｔokyo, 東京!")
    'tokyo東京'
    """
    return "".join(letter for letter in unified(text).casefold() if is_letter(letter))


def words(text: str) -> str:
    """Return the letters and digits of a text as they stand, one space for whatever is between them; none between two
    letters of scripts without spaces between words, where it could only be punctuation.

    >>> words("it's — 3!"), words("你好，世界")
    ('it s 3', '你好世界')
    """
    kept = "".join(letter if is_letter(letter) else " " for letter in unified(text))
    return unified(_SPACE_WITHIN.sub("", " ".join(kept.split())))


def normalise(text: str) -> str:
    """Return lower case, letters and digits only, one space between; Moses' HTML entities (&apos;) count as punctuation.

    In any script: vowel signs and accents belong to their letters, widths do not count, and ideographs, kana and Thai, which
    have no spaces between words, get none for their punctuation.
    """
    text = html.unescape(text).lower()
    return " ".join(_WORDS.findall(text)) if text.isascii() else words(text)


def pair_keys(first: Sequence[str], second: Sequence[str]) -> Keys:
    """Return uint64 (n,): one number a pair of sentences, whatever their order, letter case, spaces and punctuation."""
    return np.array([_key("\0".join(sorted((letters(a), letters(b))))) for a, b in zip(first, second, strict=True)],
                    dtype=np.uint64)


def text_keys(texts: Sequence[str], exact: bool = False) -> Keys:
    """Return uint64 (n,): one number a text, whatever its letter case, spaces and punctuation unless `exact`."""
    return np.array([_key(text if exact else letters(text)) for text in texts], dtype=np.uint64)


def _key(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def packed(pairs: Keys, first: Sequence[str], second: Sequence[str]) -> dict[str, NDArray[np.generic]]:
    """Return what the file holds of n pairs, with their keys (n,): those of m different ones, ascending, and their numbers,
    each bit plane by bit plane (6 bytes and 2 numbers a pair)."""
    keys, at = np.unique(pairs >> _DROPPED, return_index=True)
    texts = [letters(text) for text in [*np.asarray(first, object)[at], *np.asarray(second, object)[at]]]
    numbers = np.unique(texts, return_inverse=True)[1].astype("<u2").reshape(2, -1)
    return {"key": np.ascontiguousarray(keys.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :6].T), "sentence": numbers}


@cache
def _known() -> tuple[Keys, Keys]:
    """Return (m,) keys, ascending, and (2, m) the numbers of their sentences."""
    with np.load(FILE) as stored:
        bytes_of = np.zeros((stored["key"].shape[1], 8), np.uint8)
        bytes_of[:, :6] = stored["key"].T
        return bytes_of.reshape(-1).view("<u8").astype(np.uint64), stored["sentence"].astype(np.uint64)


def _positions(pairs: Keys) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    keys, _ = _known()
    at = np.minimum(np.searchsorted(keys, pairs >> _DROPPED), len(keys) - 1)
    return at, np.asarray(keys[at] == pairs >> _DROPPED)


def rows_name(rows: Ints) -> str:
    """Return under which name the file holds the pairs in such an order of a set's rows, which the data alone decide."""
    return f"rows {hashlib.sha256(np.asarray(rows, '<i8').tobytes()).hexdigest()[:16]}"


def pairs_of_rows(rows: Ints) -> Keys | None:
    """Return the keys, as far as they are known, of the test pairs in SentEval's splits by where they stand there, of STS-B,
    SICK-R and SICK-E; None for any other rows."""
    with np.load(FILE) as stored:
        name = rows_name(rows)
        return _known()[0][stored[name]] << _DROPPED if name in stored else None


def has_numbers(pairs: Keys) -> bool:
    """Return whether the sentences of all these pairs are numbered."""
    return bool(_positions(pairs)[1].all())


def known_sentences(pairs: Keys) -> tuple[Keys, Keys]:
    """Return uint64 (n,) and (n,), the numbers of each pair's two sentences; a pair that is not known shares none with any
    other pair.

    pairs: (n,) as `pair_keys` gives them.
    """
    at, known = _positions(pairs)
    first, second = _known()[1][:, at]
    return np.where(known, first, pairs), np.where(known, second, ~pairs)


def sentence_arrays(*sides: Sequence[str], exact: bool = True) -> dict[str, Keys]:
    """Return the keys of each item's texts, uint64 (n,) a side, by their arrays' names; {} where no two items share a text.

    exact: whether texts of other case, spaces and punctuation are other texts.
    """
    keys = [text_keys(side, exact=exact) for side in sides]
    return dict(zip(SENTENCES, keys, strict=False)) if SharedSentences(*keys).dependent else {}


def sentence_graph(arrays: Mapping[str, NDArray[Any]], rows: Ints | slice = slice(None)) -> SharedSentences | None:
    """Return the graph of these `rows` of the items by the keys among the `arrays` that are kept of them; None where they
    are independent."""
    sides = [arrays[name][rows] for name in SENTENCES if name in arrays]
    graph = shared_graph(sides, np.zeros(len(sides[0]), np.int64)) if sides else None
    return graph if graph is not None and graph.dependent else None


def shared_graph(sides: Sequence[Keys], stratum: Ints) -> SharedSentences:
    """Return the graph of n items, computed once for all encoders that met them. stratum: as for `SharedSentences`."""
    return _cached_graph(tuple(side.tobytes() for side in sides), stratum.tobytes())


@lru_cache(maxsize=64)
def _cached_graph(sides: tuple[bytes, ...], stratum: bytes) -> SharedSentences:
    keys = [np.frombuffer(side, dtype=np.uint64) for side in sides]
    return SharedSentences(*keys, stratum=np.frombuffer(stratum, dtype=np.int64))
