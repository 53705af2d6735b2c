"""TSDAE's noise: some words, or sub-words, of a sentence are deleted, and one at least stays.

The authors' library splits and joins with nltk. Here two expressions do so, in the manner of the Penn Treebank.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

_ENDING = r"(?:n['’]t|['’](?:s|m|d|ll|re|ve))(?!\w)"  # a contraction's ending: don't is do and n't
_MARKS = r";@#$%&?!…–—\"“”«»()\[\]{}<>"  # never part of a word
_CLOSING_STOP = r"\.[\"'”’)\]}>]*\s*\Z"  # the full stop that ends the text
_PIECE = re.compile(
    rf"{_ENDING}|\.{{2,}}|-{{2,}}"
    # a word: up to a mark, an ending, a comma or colon that no digit follows, a quote at its end, the last full stop
    rf"|(?!['‘])(?:(?!{_ENDING}|\.{{2,}}|-{{2,}}|[,:](?!\d)|['’](?!\w)|{_CLOSING_STOP})[^\s{_MARKS}])+"
    r"|\S",
    re.IGNORECASE,
)
_TO_THE_LEFT = re.compile(rf"{_ENDING}|[,:;.?!%…”»)\]}}>]|\.{{2,}}|['’]", re.IGNORECASE)
_TO_THE_RIGHT = re.compile(r"[$#“«(\[{<]")


class Piece(NamedTuple):
    """A word, the ending of a contraction, or a mark. side: the neighbour that it is written together with."""

    text: str
    side: Literal["left", "right", ""]


def pieces(text: str) -> list[Piece]:
    """Return the words and marks of a text, in their order; [] of a blank one.

    >>> [piece.text for piece in pieces('He said: "I don\\'t know 3.5 of them."')]
    ['He', 'said', ':', '"', 'I', 'do', "n't", 'know', '3.5', 'of', 'them', '.', '"']
    """
    return [Piece(match[0], _side(text, match)) for match in _PIECE.finditer(text)]


def joined(pieces: Sequence[Piece], detokenise: Literal["treebank-like", "join"]) -> str:
    """Return the text of some pieces. treebank-like: as written English; join: a blank between any two.

    >>> joined(pieces("( I don't know, )"), "treebank-like"), joined(pieces("(I don't know,)"), "join")
    ("(I don't know,)", "( I do n't know , )")
    """
    if detokenise == "join":
        return " ".join(piece.text for piece in pieces)
    text, before = "", ""
    for number, piece in enumerate(pieces):
        blank = "" if number == 0 or piece.side == "left" or before == "right" else " "
        text, before = text + blank + piece.text, piece.side
    return text


def keep(count: int, delete: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return which of `count` items stay, in increasing order: each with probability 1 - delete; where that leaves none,
    one of them, uniform. [] for none."""
    kept = np.flatnonzero(rng.random(count) >= delete)
    return kept if len(kept) or not count else rng.integers(count, size=1)


def damaged(
    text: str, delete: float, detokenise: Literal["treebank-like", "join"], rng: np.random.Generator
) -> str:
    """Return the text without some of its words; a text without words as it is."""
    every = pieces(text)
    return joined([every[index] for index in keep(len(every), delete, rng)], detokenise) if every else text


def damaged_ids(
    ids: NDArray[np.int32], special: NDArray[np.int64], delete: float, rng: np.random.Generator
) -> NDArray[np.int32]:
    """Return token ids without some of those that are not special. ids: (L,); special: ids of special tokens, which stay."""
    stays = np.isin(ids, special)
    ordinary = np.flatnonzero(~stays)
    stays[ordinary[keep(len(ordinary), delete, rng)]] = True
    return ids[stays]


def _side(text: str, match: re.Match[str]) -> Literal["left", "right", ""]:
    piece = match[0]
    if piece in ('"', "'", "‘"):  # opening or closing: by what stands beside it
        after, before = text[match.end() : match.end() + 1], text[: match.start()][-1:]
        opens = bool(after.strip()) and (not before.strip() or before in "([{<")
        return "right" if opens else "left" if before.strip() else ""
    if _TO_THE_LEFT.fullmatch(piece):
        return "left"
    return "right" if _TO_THE_RIGHT.fullmatch(piece) else ""
