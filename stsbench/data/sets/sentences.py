"""Which scored pairs share sentences: numbers of the sentences of the catalog's sets, and of any other texts.

`sentence_numbers.npz` holds no text: of every pair of STS12-16, STS-B and SICK the key that its records hold, and two
numbers, equal for equal sentences in whatever set, as `letters` compares them (case, spaces and punctuation do not count, so
SentEval's and the raw text have one numbering). `benchmarks/sentence_numbers.py` makes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.data.sets.scripts import letters
from stsbench.metrics.shared_sentences import Ints, SharedSentences

Keys = NDArray[np.uint64]
SENTENCES = ("sentence1", "sentence2", "sentence3")  # arrays: the keys of each side's texts, where two items share one
FILE = Path(__file__).with_name("sentence_numbers.npz")
_DROPPED = np.uint64(16)  # bits of a key that the file leaves out: 48 are enough for its 23,000 pairs


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
