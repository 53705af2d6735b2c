"""Letters of any script: which texts are the same but for case, punctuation and spaces, and which are not."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from realdata import real_data

from stsbench.data.fetch.sources import load_data
from stsbench.data.sets.sentences import is_letter, letters, normalise, unified, words
from stsbench.encoders.light.lexical import CharNgrams
from stsbench.protocols.sts import pair_keys

SAME = {
    "full width": ("ＡＢＣ １２", "abc 12"), "half width katakana": ("ｶﾞﾗｽ", "ガラス"),
    "ideographic space": ("東京　駅", "東京 駅"),
    "punctuation without spaces": ("你好，世界。", "你好世界"), "thai clauses": ("ฉันกินข้าว แล้ว", "ฉันกินข้าวแล้ว"),
    "composed accents": ("cafe\u0301", "café"),
    "decomposed hangul": (unicodedata.normalize("NFD", "한국어"), "한국어"),
    "marks of direction": ("\u200fשלום עולם\u200e!", "שלום עולם"), "emoji's look": ("I \u2764\ufe0f it", "I \u2764 it"),
    "arabic punctuation": ("كيف حالك؟", "كيف حالك"), "danda": ("वह जाता है।", "वह जाता है"),
}
DIFFERENT = {  # one letter, other marks: without them these were equal
    "hindi": ("की", "का"), "hindi, within a word": ("दिन", "दीन"), "thai tones": ("ข้าว", "ข่าว"), "bengali": ("কি", "কে"),
    "tamil": ("கி", "கு"), "kana": ("かき", "かぎ"), "accents": ("ou\u0300", "ou"), "arabic": ("كتب", "كتاب"),
}


def test_equal_but_for_form_or_different_words():
    for one, other in SAME.values():
        assert normalise(one) == normalise(other) != "" and letters(one) == letters(other)
        assert pair_keys([one], ["x"]) == pair_keys(["X"], [other])
    for one, other in DIFFERENT.values():
        assert normalise(one) != normalise(other) and letters(one) != letters(other)
        assert pair_keys([one], ["x"]) != pair_keys([other], ["x"])


def test_words_of_other_scripts_keep_their_spaces():
    assert words("मैं घर, जाता हूँ") == "मैं घर जाता हूँ" and words("집에 간다!") == "집에 간다"
    assert words("the 猫 sat") == "the 猫 sat"
    assert not is_letter("\ufe0f") and is_letter("\u0e49") and not is_letter("।")
    assert unified("µ ½ ύ") == "µ ½ ύ"  # other compatibility forms stay: keys of such texts are in records


@settings(max_examples=20, deadline=None)
@given(st.text())
def test_words_of_words_are_the_same(text):
    assert words(words(text)) == words(text) and normalise(normalise(text)) == normalise(text)


@pytest.mark.parametrize("set_id", ["sts16/test", "stsb/test"])
def test_keys_in_older_records_stay(set_id):
    """On English data a letter is what `str.isalnum` says."""
    data = load_data(set_id, data_dir=real_data())
    for text in data.texts:
        assert letters(text) == "".join(letter for letter in text.casefold() if letter.isalnum())


def naive(text):
    return {text[i:j] for i in range(len(text)) for j in range(i + 1, min(i + 3, len(text)) + 1)} - {" "}


def test_character_n_grams_are_those_of_a_naive_loop():
    encoder = CharNgrams()
    texts = ["a cat sat", "猫が寝る", "ねこ", "x", "", "  "]
    rows = [naive(" ".join(text.split())) for text in texts]
    vectors = encoder.encode(texts).toarray()
    for one, left in enumerate(rows):
        for other, right in enumerate(rows):
            assert vectors[one] @ vectors[other] == len(left & right)
    assert vectors.sum(axis=1).tolist() == [len(row) for row in rows]
    same = encoder.encode(["\u200fＡ　 Cat", "a cat"])
    assert (same[0] != same[1]).nnz == 0
