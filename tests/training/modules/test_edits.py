"""Words and tokens cut, taken out, put in, replaced, repeated and shuffled: read back from what is left, by hand with known
draws, and counted."""

from collections import Counter
from fractions import Fraction
from itertools import pairwise
from math import ceil, floor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from stsbench.training.modules import edits

SPECIAL = CLS, SEP, MASK, UNK = 1, 2, 3, 4
DRAWS = 4000
NUMBERED = [f"w{i}" for i in range(40)]
percents = st.integers(1, 99)
seeds = st.integers(0, 2**32 - 1)
SHORT = settings(max_examples=40)


def rng(seed=0):
    return np.random.default_rng(seed)


def uniform(counter, values):
    """Each value as often as any other, and no other."""
    assert set(counter) == set(values)
    assert chisquare(list(counter.values())).pvalue > 1e-3


# --- words ---


@SHORT
@given(st.integers(0, 40), percents, seeds)
def test_of_words_a_span_or_all_but_the_stated_share_are_left_in_their_order(count, percent, seed):
    words, rate = NUMBERED[:count], Fraction(percent, 100)
    kept = edits.crop(words, float(rate), rng(seed))
    assert len(kept) == ceil((1 - rate) * count)  # exact: rate is a fraction
    start = words.index(kept[0]) if kept else 0
    assert kept == words[start : start + len(kept)]
    for left, gone in ((edits.delete_words(words, float(rate), rng(seed)), floor(rate * count + Fraction(1, 2))),
                       (edits.delete_one_word(words, rng(seed)), 1)):
        assert len(words) - len(left) == (min(gone, count - 1) if count else 0)  # never everything
        assert [word for word in words if word in set(left)] == left
    assert words == NUMBERED[:count]  # the argument stays as it was


def test_every_span_and_every_word_is_as_likely_as_any_other():
    generator, words = rng(), NUMBERED[:10]
    uniform(Counter(edits.crop(words, 0.3, generator)[0] for _ in range(DRAWS)), words[:4])
    deleted = (set(words) - set(edits.delete_words(words, 0.2, generator)) for _ in range(DRAWS))
    uniform(Counter(word for pair in deleted for word in pair), words)
    for count, rate, wanted in ((0, 0.5, 0), (3, 0.15, 0), (10, 0.15, 2), (100, 0.29, 29)):
        assert edits.round_share(count, rate) == wanted  # halves up


def test_synonym_replaces_one_word_that_has_one(tmp_path):
    """The rows of one word in the file add up."""
    for words in ([], ["cat"], ["--"], [""], ["cat", "..."]):
        assert edits.synonym(words, {"dog": ("hound",)}, rng()) == words
    path = tmp_path / "words.tsv"
    path.write_text("Dog\thound\tdog\r\n\nbig\thuge\ndog\tpup\thound\n", encoding="utf-8")
    thesaurus = edits.read_thesaurus(path)
    assert thesaurus == {"dog": ("hound", "pup"), "big": ("huge",)}
    words, generator = ["The", "big", "Dog,", "(dog)", "barks"], rng()
    seen = Counter(tuple(edits.synonym(words, thesaurus, generator)) for _ in range(3000))
    expected = {("The", "huge", "Dog,", "(dog)", "barks"): 1000}
    expected |= {("The", "big", dog, "(dog)", "barks"): 500 for dog in ("Hound,", "Pup,")}
    expected |= {("The", "big", "Dog,", dog, "barks"): 500 for dog in ("(hound)", "(pup)")}
    assert set(seen) == set(expected)
    assert all(abs(seen[key] - count) < 120 for key, count in expected.items())
    assert words == ["The", "big", "Dog,", "(dog)", "barks"]


# --- tokens ---


@st.composite
def rows(draw):
    """Rows of distinct ordinary tokens, unknown ones among them, most between [CLS] and [SEP]."""
    actual = []
    for _ in range(draw(st.integers(0, 5))):
        length = draw(st.integers(0, 14))
        unknown = draw(st.sets(st.integers(0, 13), max_size=3))
        row = [UNK if place in unknown else 10 + place for place in range(length)]
        actual.append([CLS, *row, SEP] if draw(st.booleans()) or draw(st.booleans()) else row)
    return actual


def share(row, percent):
    """The stated share of a row's ordinary tokens: to the nearest whole number, halves up."""
    return floor(Fraction(percent, 100) * sum(token not in SPECIAL for token in row) + Fraction(1, 2))


def gaps(row):
    return sum(left not in SPECIAL or right not in SPECIAL for left, right in pairwise(row))


@SHORT
@given(rows(), percents, seeds, st.integers(2, 12))
def test_inserted_masks_can_be_taken_out_again_and_long_rows_are_cut_as_a_tokenizer_cuts(given_rows, percent, seed, limit):
    arguments = given_rows, SPECIAL, MASK
    copies, labels = edits.insert_masks(*arguments, rng(seed), percent / 100)
    assert len(copies) == len(labels) == len(given_rows)
    for row, copy, label in zip(given_rows, map(np.ndarray.tolist, copies), map(np.ndarray.tolist, labels), strict=True):
        assert [token for token, new in zip(copy, label, strict=True) if not new] == row
        places = [place for place, new in enumerate(label) if new]
        assert len(places) == min(share(row, percent), gaps(row))
        for place in places:
            assert copy[place] == MASK and 0 < place < len(copy) - 1
            around = copy[place - 1], copy[place + 1]
            assert MASK not in around and any(token not in SPECIAL for token in around)
    cut = edits.insert_masks(*arguments, rng(seed), percent / 100, limit)
    for copy, label, short, short_label in zip(copies, labels, *cut, strict=True):
        last = copy.tolist()[-1:] if copy.tolist()[-1:] in ([SEP], [UNK]) else []
        if len(copy) <= limit:
            assert short.tolist() == copy.tolist() and short_label.tolist() == label.tolist()
        else:
            assert short.tolist() == copy.tolist()[: limit - len(last)] + last
            assert short_label.tolist() == label.tolist()[: limit - len(last)] + [0] * len(last)


@SHORT
@given(rows(), percents, seeds)
def test_a_label_says_that_the_token_before_is_gone(given_rows, percent, seed):
    copies, labels = edits.delete_tokens(given_rows, SPECIAL, rng(seed), percent / 100)
    assert len(copies) == len(labels) == len(given_rows)
    for row, copy, label in zip(given_rows, map(np.ndarray.tolist, copies), map(np.ndarray.tolist, labels), strict=True):
        kept = [token in SPECIAL or token in copy for token in row]
        assert copy == [token for token, stays in zip(row, kept, strict=True) if stays]
        assert label == [int(place > 0 and not kept[place - 1]) for place, stays in enumerate(kept) if stays]
        assert kept.count(False) == max(min(share(row, percent), sum(token not in SPECIAL for token in row) - 1), 0)


@pytest.mark.parametrize("insert", [True, False])
def test_every_set_of_places_is_as_likely_as_any_other(insert):
    many, known = [[CLS, 10, 11, 12, 13, SEP]] * DRAWS, (SPECIAL, MASK) if insert else (SPECIAL,)
    copies, _ = (edits.insert_masks if insert else edits.delete_tokens)(many, *known, rng(5), 0.5)
    seen = Counter(tuple(copy.tolist()) for copy in copies)
    assert len(seen) == (10 if insert else 6)  # 2 of 5 gaps, 2 of 4 tokens
    uniform(seen, seen)


class Scripted:
    """A generator whose draws are known. It also says below what each of them had to be."""

    def __init__(self, *draws):
        self.draws, self.below = list(draws), []

    def integers(self, high):
        self.below.append(high)
        return self.draws.pop(0)


def test_what_is_deleted_and_what_is_repeated_draw_by_draw():
    """How many: methods/pcl/test_pcl.py."""
    draws = Scripted(3, 0)  # the second 7, for which the first goes; then the 8, now the first of nine
    assert edits.with_deletions([7, 8, 1, 7, 2, 3, 4, 9, 5, 6], draws).tolist() == [1, 7, 2, 3, 4, 9, 5, 6]
    assert draws.below == [10, 9]
    draws = Scripted(2, 0, 0, 9)  # 3 to the front; then that 3, now the first of nine, before index 9: the end
    assert edits.with_repetitions([1, 2, 3, 4, 5, 6, 7, 8], draws).tolist() == [3, 1, 2, 3, 4, 5, 6, 7, 8, 3]
    assert draws.below == [8, 9, 9, 10]
