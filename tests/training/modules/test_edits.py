"""Tokens put in, taken out, repeated and shuffled: read back from what is left, by hand with known draws, and counted."""

from collections import Counter
from fractions import Fraction
from itertools import pairwise, permutations
from math import floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from stsbench.training.modules.edits import (
    backwards,
    delete_tokens,
    insert_masks,
    shuffled,
    with_deletions,
    with_repetitions,
)

CLS, SEP, MASK, UNK = 1, 2, 3, 4
SPECIAL = (CLS, SEP, MASK, UNK)
percents = st.integers(1, 99)
seeds = st.integers(0, 2**32 - 1)


@st.composite
def rows(draw):
    """Rows of distinct ordinary tokens, unknown ones among them, most between [CLS] and [SEP]."""
    found = []
    for _ in range(draw(st.integers(0, 5))):
        length = draw(st.integers(0, 14))
        unknown = draw(st.sets(st.integers(0, 13), max_size=3))
        row = [UNK if place in unknown else 10 + place for place in range(length)]
        found.append([CLS, *row, SEP] if draw(st.booleans()) or draw(st.booleans()) else row)
    return found


def share(row, percent):
    """The stated share of a row's ordinary tokens: to the nearest whole number, halves up."""
    return floor(Fraction(percent, 100) * sum(token not in SPECIAL for token in row) + Fraction(1, 2))


def gaps(row):
    return sum(left not in SPECIAL or right not in SPECIAL for left, right in pairwise(row))


@given(rows(), percents, seeds)
def test_inserted_masks_can_be_taken_out_again(given_rows, percent, seed):
    copies, labels = insert_masks(given_rows, SPECIAL, MASK, np.random.default_rng(seed), percent / 100)
    assert len(copies) == len(labels) == len(given_rows)
    for row, copy, label in zip(given_rows, map(np.ndarray.tolist, copies), map(np.ndarray.tolist, labels), strict=True):
        assert [token for token, new in zip(copy, label, strict=True) if not new] == row
        places = [place for place, new in enumerate(label) if new]
        assert len(places) == min(share(row, percent), gaps(row))
        for place in places:
            assert copy[place] == MASK and 0 < place < len(copy) - 1
            around = copy[place - 1], copy[place + 1]
            assert MASK not in around and any(token not in SPECIAL for token in around)


@given(rows(), percents, seeds, st.integers(2, 12))
def test_long_rows_are_cut_as_a_tokenizer_cuts(given_rows, percent, seed, limit):
    arguments = given_rows, SPECIAL, MASK
    whole = insert_masks(*arguments, np.random.default_rng(seed), percent / 100)
    cut = insert_masks(*arguments, np.random.default_rng(seed), percent / 100, limit)
    for copy, label, short, short_label in zip(*whole, *cut, strict=True):
        last = copy.tolist()[-1:] if copy.tolist()[-1:] in ([SEP], [UNK]) else []
        if len(copy) <= limit:
            assert short.tolist() == copy.tolist() and short_label.tolist() == label.tolist()
        else:
            assert short.tolist() == copy.tolist()[: limit - len(last)] + last
            assert short_label.tolist() == label.tolist()[: limit - len(last)] + [0] * len(last)


@given(rows(), percents, seeds)
def test_a_label_says_that_the_token_before_is_gone(given_rows, percent, seed):
    copies, labels = delete_tokens(given_rows, SPECIAL, np.random.default_rng(seed), percent / 100)
    assert len(copies) == len(labels) == len(given_rows)
    for row, copy, label in zip(given_rows, map(np.ndarray.tolist, copies), map(np.ndarray.tolist, labels), strict=True):
        kept = [token in SPECIAL or token in copy for token in row]
        assert copy == [token for token, stays in zip(row, kept, strict=True) if stays]
        assert label == [
            int(place > 0 and not kept[place - 1]) for place, stays in enumerate(kept) if stays
        ]
        ordinary = sum(token not in SPECIAL for token in row)
        assert kept.count(False) == max(min(share(row, percent), ordinary - 1), 0)


@pytest.mark.parametrize("insert", [True, False])
def test_every_set_of_places_is_as_likely_as_any_other(insert):
    row, rng, seen = [CLS, 10, 11, 12, 13, SEP], np.random.default_rng(5), {}
    many = [row] * 4000
    copies, _ = insert_masks(many, SPECIAL, MASK, rng, 0.5) if insert else delete_tokens(many, SPECIAL, rng, 0.5)
    for copy in copies:
        seen[tuple(copy.tolist())] = seen.get(tuple(copy.tolist()), 0) + 1
    assert len(seen) == (10 if insert else 6)  # 2 of 5 gaps, 2 of 4 tokens
    assert chisquare(list(seen.values())).pvalue > 0.001


DRAWS = 4000


class Scripted:
    """A generator whose draws are known. It also says below what each of them had to be."""

    def __init__(self, *draws):
        self.draws, self.below = list(draws), []

    def integers(self, high):
        self.below.append(high)
        return self.draws.pop(0)


def rng():
    return np.random.default_rng(0)


def expected(m):
    """round(.2 m), halves to the even number, by counting fifths."""
    fifths, rest = divmod(m, 5)
    return fifths + (rest >= 3)


def uniform(counter, values):
    """Each value as often as any other, up to five standard deviations, and no other."""
    assert set(counter) == set(values)
    p, total = 1 / len(values), sum(counter.values())
    assert all(abs(count - p * total) < 5 * (total * p * (1 - p)) ** 0.5 for count in counter.values())


def test_how_many_tokens_come_and_go():
    for m in range(31):
        ids = np.arange(100, 100 + m)
        assert len(with_deletions(ids, rng())) == m - expected(m)
        assert len(with_repetitions(ids, rng())) == m + expected(m)
        assert len(with_repetitions(ids, rng(), most=30 - m)) == m + min(expected(m), 30 - m)
        assert sorted(shuffled(ids, rng())) == sorted(ids) and backwards(ids).tolist() == ids[::-1].tolist()


def test_of_equal_tokens_the_first_is_deleted():
    draws = Scripted(3, 0)  # the second 7, for which the first goes; then the 8, now the first of nine
    assert with_deletions([7, 8, 1, 7, 2, 3, 4, 9, 5, 6], draws).tolist() == [1, 7, 2, 3, 4, 9, 5, 6]
    assert draws.below == [10, 9]


def test_what_is_repeated_is_drawn_of_the_grown_text_and_put_anywhere():
    draws = Scripted(2, 0, 0, 9)  # 3 to the front; then that 3, now the first of nine, before index 9: the end
    assert with_repetitions([1, 2, 3, 4, 5, 6, 7, 8], draws).tolist() == [3, 1, 2, 3, 4, 5, 6, 7, 8, 3]
    assert draws.below == [8, 9, 9, 10]


def test_orders_deletions_and_places_are_uniform():
    generator = rng()
    uniform(Counter(tuple(shuffled([1, 2, 3], generator).tolist()) for _ in range(DRAWS)), [*permutations([1, 2, 3])])
    uniform(Counter(tuple(with_deletions([1, 2, 3, 4], generator).tolist()) for _ in range(DRAWS)),
            [(2, 3, 4), (1, 3, 4), (1, 2, 4), (1, 2, 3)])
    seen = Counter(tuple(with_repetitions([1, 2, 3], generator).tolist()) for _ in range(DRAWS))
    places = Counter()
    for word in (1, 2, 3):  # two of the four places of a word give the same text
        for place in range(4):
            text = [1, 2, 3]
            text.insert(place, word)
            places[tuple(text)] += 1
    assert seen.keys() == places.keys()
    assert all(abs(seen[text] / DRAWS - count / 12) < 5 * (count / 12 / DRAWS) ** 0.5 for text, count in places.items())
