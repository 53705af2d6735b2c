"""Split texts into words with positions, replace words and listed phrases, and find numbers, for the rules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from stsbench.extensions.robustness.words import ARTICLES, LARGE_NUMBERS, NUMBER_WORDS, Phrases

# 1,200 and well-known are one word, and so is "don 't", as tokenised texts write it.
_WORD = re.compile(r"\w+(?:['’.,:/\-]\w+| ['’](?:s|t|re|m|ll|ve|d)\b)*", re.IGNORECASE)
_POSSESSIVE = re.compile(r" ?['’]s?$", re.IGNORECASE)
_APOSTROPHE = re.compile(" ?['’]")
_VOWEL_SOUND = re.compile(r"(?!eu|uni[^mn]|use|usu|one\b|once)[aeiou]|hour|honest|honou?r|heir", re.IGNORECASE)
T = TypeVar("T")
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


@dataclass(frozen=True)
class Word:
    """A word of a text with its start and end, in characters."""

    text: str
    start: int
    end: int

    @property
    def lower(self) -> str:
        """Return the word in lower case, with a straight apostrophe and no space before it."""
        return _APOSTROPHE.sub("'", self.text.lower())

    @property
    def stem(self) -> str:
        """Return the word without the possessive 's."""
        return _POSSESSIVE.sub("", self.text)


def split_words(text: str) -> list[Word]:
    """Return the words of a text, in order.

    >>> [word.text for word in split_words("A man's 1,200 well-known dogs.")]
    ['A', "man's", '1,200', 'well-known', 'dogs']
    """
    return [Word(match[0], match.start(), match.end()) for match in _WORD.finditer(text)]


def blank_between(text: str, words: Sequence[Word], first: int, last: int) -> bool:
    """Return whether there is only white space between the words from `first` to `last`."""
    return all(text[words[i].end : words[i + 1].start].isspace() for i in range(first, last))


def cased_like(new: str, old: str) -> str:
    """Return `new` capitalised like `old`: all letters, the first one, or unchanged.

    >>> cased_like("two", "Three"), cased_like("two", "THREE"), cased_like("two", "three")
    ('Two', 'TWO', 'two')
    """
    if len(old) > 1 and old.isupper():
        return new.upper()
    return new[:1].upper() + new[1:] if old[:1].isupper() else new


def article_for(word: str) -> str:
    """Return "a" or "an", by the letters that a word begins with.

    >>> article_for("orange"), article_for("European"), article_for("hour")
    ('an', 'a', 'an')
    """
    return "an" if _VOWEL_SOUND.match(word) else "a"


def with_spans(text: str, spans: Mapping[tuple[int, int], str]) -> str:
    """Return the text with each span (start, end) replaced; spans must not overlap."""
    for (start, end), new in sorted(spans.items(), reverse=True):
        text = text[:start] + new + text[end:]
    return text


def with_words(text: str, words: Sequence[Word], changes: Mapping[tuple[int, int], str]) -> str:
    """Return the text with the words from the first to the last position of each key replaced, capitalised like the first.

    An article "a" or "an" before a replaced word is adjusted.

    >>> with_words("A dog runs", split_words("A dog runs"), {(1, 1): "elephant"})
    'An elephant runs'
    """
    spans = {}
    for (first, last), new in changes.items():
        spans[words[first].start, words[last].end] = cased_like(new, words[first].text)
        if first and words[first - 1].lower in ARTICLES and blank_between(text, words, first - 1, first):
            before = words[first - 1]
            spans[before.start, before.end] = cased_like(article_for(new), before.text)
    return with_spans(text, spans)


def pick(options: Sequence[T], rng: np.random.Generator) -> T:
    """Return one of the options, drawn uniformly."""
    return options[int(rng.integers(len(options)))]


def listed_phrases(
    text: str, words: Sequence[Word], table: Phrases, exact: bool = False
) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """Yield (first word, last word, replacements) of each listed phrase; where several begin at one word, the longest.

    exact: match letters' case, too.
    """
    longest = max(map(len, table))
    at = 0
    while at < len(words):
        for length in range(min(longest, len(words) - at), 0, -1):
            key = tuple(word.text if exact else word.lower for word in words[at : at + length])
            if key in table and blank_between(text, words, at, at + length - 1):
                if table[key]:
                    yield at, at + length - 1, table[key]
                at += length - 1  # also skips phrases without replacement, so that their words stay
                break
        at += 1


def change_phrase(text: str, table: Phrases, rng: np.random.Generator) -> str | None:
    """Return the text with a random one of its listed phrases replaced by a random alternative; None without a phrase."""
    words = split_words(text)
    options = [(first, last, new) for first, last, others in listed_phrases(text, words, table)
               if (new := absent(others, words))]
    if not options:
        return None
    first, last, others = pick(options, rng)
    return with_words(text, words, {(first, last): pick(others, rng)})


def absent(others: Sequence[str], words: Sequence[Word]) -> list[str]:
    """Return those of `others` that are not among `words`: "black and white" must not become "white and white"."""
    present = {word.lower for word in words}
    return [other for other in others if other.lower() not in present]


def numbers(text: str, words: Sequence[Word]) -> Iterator[int]:
    """Yield positions of free-standing numbers: figures without an attached sign or letter that are not a time of day, and
    number words from two to ninety that are not part of a larger number."""
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
