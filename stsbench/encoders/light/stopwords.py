"""Named lists of English stop words. The name and the digest of the list go into the encoder's spec."""

from __future__ import annotations

import hashlib
import string

from stsbench.errors import EncoderError

# What sentence-transformers' WordTokenizer drops beyond scikit-learn's 318 words: every ASCII punctuation mark, the two
# Penn Treebank quotes, and these, mostly what is left of contractions (checked against its 386 entries in the tests).
_CONTRACTIONS = (
    "ain",
    "aren",
    "couldn",
    "d",
    "did",
    "didn",
    "does",
    "doesn",
    "doing",
    "don",
    "hadn",
    "hasn",
    "haven",
    "having",
    "isn",
    "just",
    "ll",
    "m",
    "ma",
    "mightn",
    "mustn",
    "needn",
    "o",
    "s",
    "shan",
    "shouldn",
    "t",
    "theirs",
    "ve",
    "wasn",
    "weren",
    "won",
    "wouldn",
    "y",
)

STOP_WORD_LISTS = ("none", "sklearn", "sentence-transformers")


def stop_words(name: str) -> frozenset[str]:
    """The list called `name`; EncoderError when there is none of that name."""
    if name == "none":
        return frozenset()
    if name not in STOP_WORD_LISTS:
        raise EncoderError(f"unknown stop-word list '{name}': choose one of {', '.join(STOP_WORD_LISTS)}")
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    words = frozenset(ENGLISH_STOP_WORDS)
    return words if name == "sklearn" else words.union(_CONTRACTIONS, string.punctuation, ("``", "''"))


def words_digest(words: frozenset[str]) -> str:
    """sha256 over a list of words, whatever their order: a library that edits its list changes the fingerprint."""
    return hashlib.sha256("\n".join(sorted(words)).encode()).hexdigest()
