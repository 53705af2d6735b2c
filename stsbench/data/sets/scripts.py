"""Letters of any script: what of a text decides whether two texts are the same but for case, punctuation and spaces."""

from __future__ import annotations

import html
import re
import unicodedata
from functools import cache

# Full width and half width forms: ASCII as wide as an ideograph, katakana and hangul half as wide.
_WIDTHS = re.compile("[\uff00-\uffef\u3000]+")
# Scripts that put no space between words: Thai, Lao, Tibetan, Burmese, Khmer, kana, ideographs.
_UNSPACED = ("[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
             "\U00020000-\U0003ffff]")
_SPACE_WITHIN = re.compile(f"(?<={_UNSPACED}) (?={_UNSPACED})")
_WORDS = re.compile(r"[^\W_]+")


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
