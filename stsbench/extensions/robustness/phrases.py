"""Choices among what a rule may change, and the change of one listed phrase."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np

from .tokens import Word, joined, with_words, words_of
from .words import LARGE_NUMBERS, NUMBER_WORDS, Phrases

T = TypeVar("T")
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def pick(options: Sequence[T], rng: np.random.Generator) -> T:
    """One of several, uniformly drawn."""
    return options[int(rng.integers(len(options)))]


def listed_phrases(
    text: str, words: Sequence[Word], table: Phrases, exact: bool = False
) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """(first word, last word, what may stand there) of the table's phrases, of several at one position the longest.

    exact: whether their letters' case counts, too.
    """
    longest = max(map(len, table))
    at = 0
    while at < len(words):
        for length in range(min(longest, len(words) - at), 0, -1):
            key = tuple(word.text if exact else word.lower for word in words[at : at + length])
            if key in table and joined(text, words, at, at + length - 1):
                if table[key]:
                    yield at, at + length - 1, table[key]
                at += length - 1  # the words of a phrase that stays as it is stay, too
                break
        at += 1


def change_phrase(text: str, table: Phrases, rng: np.random.Generator) -> str | None:
    """The text with one of its listed phrases replaced, both drawn; None where it has none."""
    words = words_of(text)
    options = [(first, last, new) for first, last, others in listed_phrases(text, words, table)
               if (new := absent(others, words))]
    if not options:
        return None
    first, last, others = pick(options, rng)
    return with_words(text, words, {(first, last): pick(others, rng)})


def absent(others: Sequence[str], words: Sequence[Word]) -> list[str]:
    """Those that the text does not hold: a white cow that is black, too, becomes no white and white one."""
    present = {word.lower for word in words}
    return [other for other in others if other.lower() not in present]


def numbers(text: str, words: Sequence[Word]) -> Iterator[int]:
    """Positions of the numbers that stand alone: figures without a sign or letter at them, no time of day; two to ninety."""
    for at, word in enumerate(words):
        before, after = text[max(word.start - 1, 0) : word.start], text[word.end : word.end + 1]
        if NUMBER.fullmatch(word.text):
            clock = text[: word.start].rstrip().endswith(":") or re.match(r"\s*:\s*\d", text[word.end :])  # 10 : 15
            if not (before and before in "-+/#.,'’") and not (after and after in "/+'’-") and not clock:
                yield at
        elif word.lower in NUMBER_WORDS:
            near = {words[i].lower for i in (at - 1, at + 1) if 0 <= i < len(words)}
            if not near & (NUMBER_WORDS.keys() | LARGE_NUMBERS) and not any(NUMBER.fullmatch(one) for one in near):
                yield at
