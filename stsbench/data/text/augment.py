"""Changes to a sentence's words, each a pure function of a list of words and a numpy Generator."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stsbench.data.sets.readers import read_lines
from stsbench.errors import DataError

Thesaurus = dict[str, tuple[str, ...]]  # lower-case word -> its synonyms

_WORD = re.compile(r"(\W*)(.*?)(\W*)", re.DOTALL)  # punctuation, the word itself, punctuation
_ROUNDING = 1e-9  # 0.29 * 100 is 28.999... in floating point


def crop(words: Sequence[str], rate: float, rng: np.random.Generator) -> list[str]:
    """Return one contiguous span of ceil((1 - rate) * n) of the n words, its start uniform; no words give no words.

    rate: the share cut off, in [0, 1), so that one word stays one word.
    """
    kept = len(words) - int(rate * len(words) + _ROUNDING)
    start = int(rng.integers(0, len(words) - kept + 1))
    return list(words[start : start + kept])


def delete_words(words: Sequence[str], rate: float, rng: np.random.Generator) -> list[str]:
    """Without round_share(n, rate) of the n words, drawn without replacement, but never without all of them."""
    return _without(words, min(round_share(len(words), rate), len(words) - 1), rng)


def delete_one_word(words: Sequence[str], rng: np.random.Generator) -> list[str]:
    """Without one word, uniformly drawn; one word or none stay as they are."""
    return _without(words, 1 if len(words) > 1 else 0, rng)


def synonym(words: Sequence[str], thesaurus: Thesaurus, rng: np.random.Generator) -> list[str]:
    """With one word replaced by a synonym, both uniformly drawn: the word among those that have one, if any has.

    Punctuation around the word stays. A word that starts with a capital gets a synonym that does.
    """
    split = [(i, *_split(word)) for i, word in enumerate(words)]
    candidates = [entry for entry in split if entry[2].lower() in thesaurus]
    changed = list(words)
    if candidates:
        index, before, word, after = candidates[int(rng.integers(len(candidates)))]
        synonyms = thesaurus[word.lower()]
        other = synonyms[int(rng.integers(len(synonyms)))]
        changed[index] = before + (other[0].upper() + other[1:] if word[0].isupper() else other) + after
    return changed


def round_share(count: int, rate: float) -> int:
    """Return rate * count rounded to the nearest whole number, halves up."""
    return int(rate * count + 0.5 + _ROUNDING)


def read_thesaurus(path: Path) -> Thesaurus:
    """Return a file of rows "word TAB synonym TAB synonym ...", in any case; rows of one word add up, blank lines are
    skipped.

    Raises DataError naming file and line for a row without a synonym other than the word, or with an empty cell.
    """
    synonyms: dict[str, dict[str, None]] = {}
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        word, *alternatives = (cell.strip() for cell in line.split("\t"))
        if not word or not all(alternatives):
            raise DataError(f"{path}:{number}: an empty cell; expected word TAB synonym TAB synonym ...")
        alternatives = [other for other in alternatives if other.lower() != word.lower()]
        if not alternatives:
            raise DataError(f"{path}:{number}: no synonym of '{word}'; expected word TAB synonym TAB synonym ...")
        synonyms.setdefault(word.lower(), {}).update(dict.fromkeys(alternatives))
    if not synonyms:
        raise DataError(f"{path} contains no synonyms; expected rows of word TAB synonym TAB synonym ...")
    return {word: tuple(alternatives) for word, alternatives in synonyms.items()}


def _without(words: Sequence[str], count: int, rng: np.random.Generator) -> list[str]:
    if count < 1:
        return list(words)
    dropped = set(rng.choice(len(words), count, replace=False).tolist())
    return [word for index, word in enumerate(words) if index not in dropped]


def _split(word: str) -> tuple[str, str, str]:
    match = _WORD.fullmatch(word)
    assert match is not None  # the pattern takes any text
    before, inner, after = match.groups()
    return before, inner, after
