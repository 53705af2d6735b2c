"""The words of a text by their positions, and texts with some of them replaced."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .words import ARTICLES

# 1,200 and well-known are one word, as is "don 't", the way of tokenised texts
_WORD = re.compile(r"\w+(?:['’.,:/\-]\w+| ['’](?:s|t|re|m|ll|ve|d)\b)*", re.IGNORECASE)
_POSSESSIVE = re.compile(r" ?['’]s?$", re.IGNORECASE)
_APOSTROPHE = re.compile(" ?['’]")
_VOWEL_SOUND = re.compile(r"(?!eu|uni[^mn]|use|usu|one\b|once)[aeiou]|hour|honest|honou?r|heir", re.IGNORECASE)


@dataclass(frozen=True)
class Word:
    """A word of a text and where it stands."""

    text: str
    start: int
    end: int

    @property
    def lower(self) -> str:
        """In lower case, with a straight apostrophe and no space before it."""
        return _APOSTROPHE.sub("'", self.text.lower())

    @property
    def stem(self) -> str:
        """Without the possessive 's."""
        return _POSSESSIVE.sub("", self.text)


def words_of(text: str) -> list[Word]:
    """The words of a text, in order.

    >>> [word.text for word in words_of("A man's 1,200 well-known dogs.")]
    ['A', "man's", '1,200', 'well-known', 'dogs']
    """
    return [Word(match[0], match.start(), match.end()) for match in _WORD.finditer(text)]


def joined(text: str, words: Sequence[Word], first: int, last: int) -> bool:
    """Whether nothing but white space stands between the words from `first` to `last`."""
    return all(text[words[i].end : words[i + 1].start].isspace() for i in range(first, last))


def cased_like(new: str, old: str) -> str:
    """`new` with the capitals of `old`: all, the first one, or as it is.

    >>> cased_like("two", "Three"), cased_like("two", "THREE"), cased_like("two", "three")
    ('Two', 'TWO', 'two')
    """
    if len(old) > 1 and old.isupper():
        return new.upper()
    return new[:1].upper() + new[1:] if old[:1].isupper() else new


def article_for(word: str) -> str:
    """"a" or "an", by the letters that a word begins with.

    >>> article_for("orange"), article_for("European"), article_for("hour")
    ('an', 'a', 'an')
    """
    return "an" if _VOWEL_SOUND.match(word) else "a"


def with_spans(text: str, spans: Mapping[tuple[int, int], str]) -> str:
    """The text with each (start, end) replaced; they do not overlap."""
    for (start, end), new in sorted(spans.items(), reverse=True):
        text = text[:start] + new + text[end:]
    return text


def with_words(text: str, words: Sequence[Word], changes: Mapping[tuple[int, int], str]) -> str:
    """The text with words replaced, from the first to the last position of each key, in the case of the first one of them.

    An article "a" or "an" before them becomes the one that fits.

    >>> with_words("A dog runs", words_of("A dog runs"), {(1, 1): "elephant"})
    'An elephant runs'
    """
    spans = {}
    for (first, last), new in changes.items():
        spans[words[first].start, words[last].end] = cased_like(new, words[first].text)
        if first and words[first - 1].lower in ARTICLES and joined(text, words, first - 1, first):
            before = words[first - 1]
            spans[before.start, before.end] = cased_like(article_for(new), before.text)
    return with_spans(text, spans)
