"""TSDAE's noise: what is a word, what is deleted and how often, and what the text looks like afterwards."""

import numpy as np
import pytest
from method_oracle import tokens
from test_tsdae import TEXTS, rows_of, tsdae

from stsbench.methods.tsdae.method import damaged, damaged_ids, joined, keep, pieces

SENTENCES = {
    "He didn't pay $1,000 (or 3.5 %): \"Why?\"": [
        "He", "did", "n't", "pay", "$", "1,000", "(", "or", "3.5", "%", ")", ":", '"', "Why", "?", '"'],
    "Mr. Reed's well-known cats' bowl, U.S. made...": [
        "Mr.", "Reed", "'s", "well-known", "cats", "'", "bowl", ",", "U.S.", "made", "..."],
    "It's 'fine', they'll say -- at 10:30.": [
        "It", "'s", "'", "fine", "'", ",", "they", "'ll", "say", "--", "at", "10:30", "."],
    "": [], "  \t": [], "Öl, ça va?": ["Öl", ",", "ça", "va", "?"], "...": ["..."], "a": ["a"],
}


def test_words_are_those_of_the_penn_treebank():
    for text, words in SENTENCES.items():
        assert [piece.text for piece in pieces(text)] == words


@pytest.mark.parametrize("text", [
    "He didn't pay (or not): \"Why?\"", "Mr. Reed's cats' bowl, U.S. made...", "A [big] dog; 'red', 5% of $3.",
    "She said: “No.”",
])
def test_nothing_deleted_is_the_text_again(text):
    rng = np.random.default_rng(0)
    assert damaged(text, 0.0, "treebank-like", rng) == text
    assert damaged(text, 0.0, "join", rng) == " ".join(piece.text for piece in pieces(text))


def test_punctuation_is_joined_where_its_word_is_gone():
    every = pieces("He said (today): \"I don't know.\"")
    without = {"said", "today", "do", "I"}
    assert joined([piece for piece in every if piece.text not in without], "treebank-like") == "He (): \"n't know.\""


@pytest.mark.parametrize("share", [0.4, 0.9])
def test_so_many_are_deleted(share):
    """40,000 words in sentences of 20: the share that is kept, within four standard deviations."""
    rng = np.random.default_rng(1)
    kept = sum(len(keep(20, share, rng)) for _ in range(2000)) / 40_000
    certain = share**20 / 20  # a sentence without a word gets one
    assert kept == pytest.approx(1 - share + certain, abs=4 * (share * (1 - share) / 40_000) ** 0.5)


def test_one_word_stays_and_any_of_them_may():
    rng = np.random.default_rng(2)
    draws = [damaged("a dog runs", 0.999, "treebank-like", rng) for _ in range(600)]
    assert {*draws} == {"a", "dog", "runs"} and min(map(draws.count, {*draws})) > 150
    assert damaged("  ", 0.6, "treebank-like", rng) == "  " and keep(0, 0.6, rng).tolist() == []


def test_sub_words_are_deleted_and_special_tokens_stay(masked_lms):
    ids = np.array([1, 9, 10, 11, 12, 2], np.int32)
    rng = np.random.default_rng(4)
    draws = [damaged_ids(ids, np.array([0, 1, 2, 3]), 0.6, rng).tolist() for _ in range(400)]
    assert all(row[0] == 1 and row[-1] == 2 and 3 <= len(row) <= 6 and row == [*sorted(row[:-1]), 2] for row in draws)
    assert {token for row in draws for token in row} == {*ids.tolist()}
    assert damaged_ids(np.array([1, 2], np.int32), np.array([1, 2]), 0.6, rng).tolist() == [1, 2]
    method = tsdae(masked_lms["bert"], unit="subword")
    rows = rows_of(masked_lms["bert"])
    source, target = method.views(rows, rng).tokens
    assert [list(map(int, ids)) for ids in target] == tokens(masked_lms["bert"], TEXTS)
    assert sum(map(len, source)) < sum(map(len, target)) and min(map(len, source)) >= 3
