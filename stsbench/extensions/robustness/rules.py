"""The edit rules by name, the edits that keep a sentence's meaning, and the application of rules to texts."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from stsbench.extensions.robustness import changing
from stsbench.extensions.robustness.tokens import NUMBER, blank_between, numbers, pick, split_words, with_spans, with_words
from stsbench.extensions.robustness.words import (
    CONTRACTED_NOT,
    ENDINGS,
    KEYS,
    LARGE_NUMBERS,
    LISTED,
    NOT_CONTRACTED,
    NUMBER_WORDS,
    PRONOUN_VERBS,
)

Rng = np.random.Generator
SHORTEST = 5  # letters of the shortest word that gets a typo, as typos often turn shorter ones into other words
_CURRENCY = "$€£¥"
_FIGURES = {str(number): word for word, number in NUMBER_WORDS.items()}
Edit = Callable[[str, np.random.Generator], str | None]
RuleName = Literal[
    "typo", "case", "punctuation", "number-word", "contraction",
    "negation", "entity", "name", "number", "word-order", "quantifier", "time", "antonym",
]
_CHANGING: dict[RuleName, Edit] = {
    "negation": changing.negation, "entity": changing.entity, "name": changing.name, "number": changing.number,
    "word-order": changing.word_order, "quantifier": changing.quantifier, "time": changing.time, "antonym": changing.antonym,
}


def typo(text: str, rng: Rng) -> str | None:
    """Return the text with a typo in one lower-case word of five letters or more: two letters swapped, one left out,
    doubled, or replaced by a neighbouring key. The first letter stays. None without such a word.

    >>> text = "A dog is running."
    >>> typo(text, np.random.default_rng(0)) != text, typo("A dog ran.", np.random.default_rng(0))
    (True, None)
    """
    words = split_words(text)
    plain = [word for word in words if len(word.text) >= SHORTEST and re.fullmatch("[a-z]+", word.text)]
    if not plain:
        return None
    word = pick(plain, rng)
    present = {other.lower for other in words}
    for _ in range(20):
        slip = _slip(word.text, rng)
        if slip != word.text and slip not in present and slip not in LISTED:
            return with_spans(text, {(word.start, word.end): slip})
    return None


def _slip(word: str, rng: Rng) -> str:
    at = int(rng.integers(1, len(word)))
    kind = int(rng.integers(4))
    if kind == 0 and at + 1 < len(word):
        return word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    if kind == 1:
        return word[:at] + word[at + 1 :]
    if kind == 2:
        return word[:at] + word[at] + word[at:]
    return word[:at] + pick(KEYS[word[at]], rng) + word[at + 1 :]


def case(text: str, rng: Rng) -> str | None:
    """Return the text in lower case, in capitals, or with every word capitalised, whichever differs; None if none does.

    >>> case("a", np.random.default_rng(0)), case("12", np.random.default_rng(0))
    ('A', None)
    """
    titled = with_spans(text, {(word.start, word.start + 1): word.text[0].upper() for word in split_words(text)})
    # The length excludes texts with "ß" or "ŉ", which become two letters in capitals.
    options = [new for new in dict.fromkeys((text.lower(), text.upper(), titled)) if new != text and len(new) == len(text)]
    return pick(options, rng) if options else None


def punctuation(text: str, rng: Rng) -> str | None:
    """Return the text with the final full stop removed or added, a space before the last mark added or removed, or a space
    doubled; None where nothing applies.

    >>> punctuation("Rain", np.random.default_rng(0)), punctuation("?", np.random.default_rng(0))
    ('Rain.', None)
    """
    options = []
    if mark := re.search(r"(?<=[^\W_])( ?)([.!?])$", text):
        options.append(text[: mark.start()] + ("" if mark[1] else " ") + mark[2])
        if mark[2] == ".":
            options.append(text[: mark.start()])
    elif text[-1:].isalnum():
        options.append(text + ".")
    if gaps := [match.start() for match in re.finditer(r"(?<=\S) (?=\S)", text)]:
        at = pick(gaps, rng)
        options.append(f"{text[:at]} {text[at:]}")
    return pick(options, rng) if options else None


def number_word(text: str, rng: Rng) -> str | None:
    """Return the text with a number word (two to twelve, or tens up to ninety) as figures, or the reverse; None without any.

    >>> rng = np.random.default_rng(0)
    >>> number_word("Two dogs", rng), number_word("In 12 days", rng), number_word("For $5", rng)
    ('2 dogs', 'In twelve days', None)
    """
    words = split_words(text)
    options = {}
    for i in numbers(text, words):
        word = words[i]
        if word.lower in NUMBER_WORDS:
            options[i] = str(NUMBER_WORDS[word.lower])
        elif word.text in _FIGURES and (text[: word.start].rstrip()[-1:] or " ") not in _CURRENCY:
            neighbours = [words[j].lower for j in (i - 1, i + 1) if 0 <= j < len(words)]
            if text[word.end :].lstrip()[:1] not in ("%", "°") and not any(
                one in LARGE_NUMBERS or one in NUMBER_WORDS or NUMBER.fullmatch(one) for one in neighbours
            ):
                options[i] = _FIGURES[word.text]
    if not options:
        return None
    i = pick(sorted(options), rng)
    return with_words(text, words, {(i, i): options[i]})


def contraction(text: str, rng: Rng) -> str | None:
    """Return the text with "is not", "do not", "it is", "they have been" or the like contracted, or the reverse, or None.

    >>> rng = np.random.default_rng(0)
    >>> contraction("It is raining.", rng), contraction("They can't swim.", rng), contraction("What it is.", rng)
    ("It's raining.", 'They cannot swim.', None)
    """
    words = split_words(text)
    lower = [word.lower for word in words]
    options: list[tuple[int, int, str]] = []
    for i in range(len(words)):
        if lower[i] == "cannot":
            options.append((i, i, "can't"))
        elif lower[i] in CONTRACTED_NOT and (i or lower[i] == "don't"):  # "Isn't it" would become "Is not it"
            options.append((i, i, "cannot" if lower[i] == "can't" else f"{CONTRACTED_NOT[lower[i]]} not"))
        pronoun, mark, rest = lower[i].partition("'")
        if mark and mark + rest in ENDINGS and pronoun in PRONOUN_VERBS:
            options.append((i, i, f"{pronoun} {ENDINGS[mark + rest]}"))
        if i + 1 < len(words) and blank_between(text, words, i, i + 1):
            if lower[i + 1] == "not" and lower[i] in NOT_CONTRACTED and i:
                options.append((i, i + 1, NOT_CONTRACTED[lower[i]]))
            ending = PRONOUN_VERBS.get(lower[i], {}).get(lower[i + 1])
            if ending and i + 2 < len(words) and blank_between(text, words, i + 1, i + 2) and (
                lower[i + 1] != "have" or lower[i + 2].endswith("ed") or lower[i + 2] == "been"):  # an auxiliary
                options.append((i, i + 1, lower[i] + ending))
    if not options:
        return None
    first, last, new = pick(options, rng)
    return with_words(text, words, {(first, last): new})


@dataclass(frozen=True)
class Rule:
    """An edit and whether it keeps the meaning."""

    name: RuleName
    keeps: bool
    edit: Edit


_KEEPING: dict[RuleName, Edit] = {
    "typo": typo, "case": case, "punctuation": punctuation, "number-word": number_word,
    "contraction": contraction,
}
RULES: dict[str, Rule] = {name: Rule(name, name in _KEEPING, edit) for name, edit in (_KEEPING | _CHANGING).items()}


def edited(text: str, rule: str, seed: int) -> str | None:
    """Return the text edited by a rule of `RULES`; None where the rule does not apply to it.

    Random choices depend on the seed, the rule and the text alone, so that equal texts are edited equally.

    >>> edited("A big dog sleeps.", "antonym", 0), edited("Rain.", "antonym", 0)
    ('A small dog sleeps.', None)
    """
    digest = hashlib.blake2b(f"{rule}\0{text}".encode(), digest_size=16).digest()
    return RULES[rule].edit(text, np.random.default_rng([seed, *digest]))


@lru_cache(maxsize=8)  # called twice by a protocol: for the texts to encode, and when it observes their vectors
def apply_rule(texts: tuple[str, ...], rule: str, seed: int, share: float) -> tuple[str | None, ...]:
    """Return each text edited by a rule, None where it does not apply, and for all but a `share` of the texts to which it
    does. The share, at least one text, is drawn with the seed.

    >>> apply_rule(("A big dog.", "Rain.", "A big cat."), "antonym", 0, 1.0)
    ('A small dog.', None, 'A small cat.')
    """
    edits = [edited(text, rule, seed) for text in texts]
    applies = [i for i, new in enumerate(edits) if new is not None]
    kept = set(_draw(applies, rule, seed, share))
    return tuple(new if i in kept else None for i, new in enumerate(edits))


def _draw(positions: Sequence[int], rule: str, seed: int, share: float) -> Sequence[int]:
    if share == 1 or not positions:
        return positions
    order = np.random.default_rng([seed, *b"share", *rule.encode()]).permutation(len(positions))
    return [positions[i] for i in order[: max(1, round(share * len(positions)))].tolist()]
