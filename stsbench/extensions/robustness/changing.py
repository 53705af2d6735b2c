"""Edits that change the meaning of a sentence. Each is a pure function of the text and a random generator, and returns
None where it does not apply."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from stsbench.extensions.robustness.tokens import (
    NUMBER,
    Word,
    absent,
    blank_between,
    cased_like,
    change_phrase,
    listed_phrases,
    numbers,
    pick,
    split_words,
    with_spans,
    with_words,
)
from stsbench.extensions.robustness.words import (
    ANTONYMS,
    AUXILIARIES,
    BE,
    CALENDAR,
    CONTRACTED_NOT,
    DETERMINERS,
    HAVE,
    LINKS,
    MODALS,
    NAME_BEFORE,
    NAMES,
    NEGATIVE,
    NOUNS,
    NUMBER_WORDS,
    PARTICIPLES,
    QUANTIFIERS,
    RELATIVE,
    TIMES,
    WORDS_TOO,
    Groups,
    Phrases,
)

Rng = np.random.Generator
_YEAR = re.compile(r"(?:19|20)\d\d")
_LOWER_NAMES: Groups = {name.lower(): tuple(map(str.lower, group)) for name, group in NAMES.items()}
_LOWER_CALENDAR: Phrases = {tuple(map(str.lower, day)): tuple(map(str.lower, others)) for day, others in CALENDAR.items()}


def negation(text: str, rng: Rng) -> str | None:
    """Return the text with "not" after the first auxiliary, or without a "not" there; None for other negative sentences.

    >>> rng = np.random.default_rng(0)
    >>> negation("A dog is running.", rng), negation("It doesn't rain.", rng), negation("Nobody is here.", rng)
    ('A dog is not running.', 'It does rain.', None)
    """
    words = split_words(text)
    lower = [word.lower for word in words]
    spans: list[tuple[int, int, str]] = []
    for i, word in enumerate(words):
        if lower[i] in CONTRACTED_NOT and (i or lower[i] == "don't"):
            spans.append((word.start, word.end, cased_like(CONTRACTED_NOT[lower[i]], word.text)))
        only = i + 1 < len(words) and lower[i + 1] == "only"
        if i and lower[i] == "not" and lower[i - 1] in AUXILIARIES and not only and blank_between(text, words, i - 1, i):
            spans.append((words[i - 1].end, word.end, ""))
    if spans:
        start, end, new = pick(spans, rng)
        return with_spans(text, {(start, end): new})
    if NEGATIVE & set(lower):
        return None
    positions = [i for i in range(1, len(words) - 1) if _takes_not(text, words, lower, i)]
    main = [i for i in positions if lower[i - 1] not in RELATIVE] or positions
    return with_spans(text, {(words[main[0]].end, words[main[0]].end): " not"}) if main else None


def _takes_not(text: str, words: Sequence[Word], lower: Sequence[str], i: int) -> bool:
    """Return whether the word is an auxiliary: no capital, no noun (a can, the will), words on both sides."""
    if words[i].text != lower[i] or lower[i - 1] in DETERMINERS or not blank_between(text, words, i - 1, i + 1):
        return False
    participle = lower[i + 1].endswith("ed") or lower[i + 1] in PARTICIPLES
    return lower[i] in BE | MODALS or (lower[i] in HAVE and participle)


def entity(text: str, rng: Rng) -> str | None:
    """Return the text with a listed common noun replaced everywhere by another of its kind that is not in the text, or None.

    >>> entity("A man sees the man's wife.", np.random.default_rng(1))
    "A woman sees the woman's wife."
    """
    words = split_words(text)
    present = {word.stem.lower() for word in words}
    options = sorted((noun, other) for noun in present & NOUNS.keys() for other in NOUNS[noun] if other not in present)
    if not options:
        return None
    noun = pick(sorted({one for one, _ in options}), rng)
    return _replaced(text, words, noun, pick([other for one, other in options if one == noun], rng), False)


def name(text: str, rng: Rng) -> str | None:
    """Return the text with a country, nationality, city, continent or first name replaced by another of its kind everywhere,
    None where there is none.

    >>> name("Floods in Italy", np.random.default_rng(0)) is not None, name("South China Sea", np.random.default_rng(0))
    (True, None)
    """
    words, table = split_words(text), _cased_names(text)
    present = {word.stem for word in words}
    known = sorted({words[i].stem for i in _names(words, table)})
    options = {one: [other for other in table[one] if other not in present] for one in known}
    known = [one for one in known if options[one]]
    if not known:
        return None
    chosen = pick(known, rng)
    return _replaced(text, words, chosen, pick(options[chosen], rng), True)


def _cased_names(text: str) -> Groups:
    """Return the groups of names in the text's case: in lower case for a text without capitals."""
    return _LOWER_NAMES if text == text.lower() else NAMES


def _names(words: Sequence[Word], table: Groups) -> Iterator[int]:
    """Yield positions of names that do not follow a word such as "South", as parts of longer names do (South China Sea)."""
    for i, word in enumerate(words):
        if word.stem in table and not (i and words[i - 1].lower in NAME_BEFORE):
            yield i


def _replaced(text: str, words: Sequence[Word], old: str, new: str, exact: bool) -> str:
    changes = {}
    for i, word in enumerate(words):
        if (word.stem if exact else word.stem.lower()) == old:
            changes[i, i] = new + word.text[len(word.stem) :]
    return with_words(text, words, changes)


def number(text: str, rng: Rng) -> str | None:
    """Return the text with another number: its first figure changed, the last one of a year, or a number word replaced by
    another of its range, two to twelve or twenty to ninety. None without a number.

    >>> number("In 5 days", np.random.default_rng(0)) != "In 5 days", number("Boeing B52", np.random.default_rng(0))
    (True, None)
    """
    words = split_words(text)
    positions = list(numbers(text, words))
    if not positions:
        return None
    i = pick(positions, rng)
    word = words[i]
    if NUMBER.fullmatch(word.text):
        at = 3 if _YEAR.fullmatch(word.text) else 0
        digit = pick([figure for figure in "23456789" if figure != word.text[at]], rng)  # not 1, which would need a singular
        return with_spans(text, {(word.start + at, word.start + at + 1): digit})
    value = NUMBER_WORDS[word.lower]
    return with_words(text, words, {(i, i): pick(
        [other for other, number in NUMBER_WORDS.items() if number != value and (number < 20) == (value < 20)], rng
    )})


def word_order(text: str, rng: Rng) -> str | None:
    """Return the text with two parts swapped: subject and object of "a X is Y-ing a Z", or two listed nouns, names or
    figures; None without such parts. Members of a list ("a dog and a cat") are not swapped, as their order has no meaning.

    >>> rng = np.random.default_rng(0)
    >>> word_order("A boy is chasing the dog.", rng), word_order("A dog and a cat sleep.", rng)
    ('The dog is chasing a boy.', None)
    """
    words = split_words(text)
    if (roles := _roles(text, words)) is not None:
        (a, b), (c, d) = roles
        one, other = text[words[a].start : words[b].end], text[words[c].start : words[d].end]
        plain = one[0].lower() + one[1:]
        if plain.lower() != other.lower():
            return with_spans(text, {
                (words[a].start, words[b].end): cased_like(other, one[:1]), (words[c].start, words[d].end): plain,
            })
    nouns = [i for i, word in enumerate(words) if word.stem.lower() in NOUNS]
    names = _cased_names(text)
    named = list(_names(words, names))
    figures = [i for i in numbers(text, words) if NUMBER.fullmatch(words[i].text)]
    pairs = [(i, j) for kind in (nouns, named, figures) for i in kind for j in kind
             if i < j and _swappable(words, i, j, names if kind is named else None)]
    if not pairs:
        return None
    i, j = pick(pairs, rng)
    one, other = words[i].stem, words[j].stem
    if i in nouns:
        one = one.lower()
    return with_words(text, words, {
        (i, i): other + words[i].text[len(words[i].stem) :], (j, j): one + words[j].text[len(words[j].stem) :],
    })


def _swappable(words: Sequence[Word], i: int, j: int, groups: Groups | None) -> bool:
    """Return whether two words differ, are of one group where there are groups, and are not members of one list."""
    one, other = words[i].stem, words[j].stem
    if one.lower() == other.lower() or (groups is not None and other not in groups[one]):
        return False
    return any(word.lower not in DETERMINERS | {"and", "or"} for word in words[i + 1 : j])


def _roles(text: str, words: Sequence[Word]) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Return first and last word of subject and object of "a X is Y-ing a Z"; None of any other sentence."""
    lower = [word.lower for word in words]
    verb = next((i for i, word in enumerate(lower[:5]) if word in ("is", "was")), 0)
    if verb < 2 or lower[0] not in DETERMINERS or any(word in LINKS for word in lower[:verb]):
        return None
    start = verb + 2
    if start + 1 >= len(words) or not lower[verb + 1].endswith("ing") or lower[start] not in DETERMINERS:
        return None
    end = start
    while (end + 1 < len(words) and end < start + 3 and blank_between(text, words, end, end + 1)
           and lower[end + 1] not in LINKS and not lower[end + 1].endswith(("ly", "ing"))):
        end += 1
    return ((0, verb - 1), (start, end)) if end > start and blank_between(text, words, 0, start) else None


def quantifier(text: str, rng: Rng) -> str | None:
    """Return the text with another quantifier: all, some, no, many, more than, at least, always, ...; None without any.

    >>> quantifier("At least ten men left.", np.random.default_rng(0))
    'At most ten men left.'
    """
    return change_phrase(text, QUANTIFIERS, rng)


def time(text: str, rng: Rng) -> str | None:
    """Return the text with another time: before and after, days, months, parts of the day, units, last and next; or None.

    >>> time("He left before noon.", np.random.default_rng(0))
    'He left after noon.'
    """
    words = split_words(text)
    lower = text == text.lower()  # without capitals, May cannot be distinguished from may
    calendar = _LOWER_CALENDAR if lower else CALENDAR
    dates = [(first, last, others) for first, last, others in listed_phrases(text, words, calendar, exact=True)
             if not (lower or not first) or words[first].text.capitalize() not in WORDS_TOO]
    options = [(first, last, new) for first, last, others in [*listed_phrases(text, words, TIMES), *dates]
               if (new := absent(others, words))]
    if not options:
        return None
    first, last, others = pick(options, rng)
    return with_words(text, words, {(first, last): pick(others, rng)})


def antonym(text: str, rng: Rng) -> str | None:
    """Return the text with a word replaced by its opposite, or a colour by another colour; None without such a word.

    >>> antonym("A big dog", np.random.default_rng(0))
    'A small dog'
    """
    return change_phrase(text, ANTONYMS, rng)
