"""The augmentations of token ids: by hand with known draws, and counted over many."""

from collections import Counter
from itertools import permutations

import numpy as np
import pytest

from stsbench.training.modules.edits import backwards, shuffled, with_deletions, with_repetitions

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


@pytest.mark.parametrize("m", range(31))
def test_how_many_tokens_come_and_go(m):
    ids = np.arange(100, 100 + m)
    assert len(with_deletions(ids, rng())) == m - expected(m)
    assert len(with_repetitions(ids, rng())) == m + expected(m)
    assert len(with_repetitions(ids, rng(), most=30 - m)) == m + min(expected(m), 30 - m)
    assert sorted(shuffled(ids, rng())) == sorted(ids) and backwards(ids).tolist() == ids[::-1].tolist()


def test_two_words_stay_two_words_and_three_lose_one():
    assert [len(with_deletions(range(m), rng())) for m in (0, 1, 2, 3, 7, 8)] == [0, 1, 2, 2, 6, 6]
    assert with_repetitions([5, 6], rng()).tolist() == [5, 6]


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


def test_nothing_but_the_generator_decides_and_the_text_is_left_alone():
    ids = np.arange(12)
    for change in (shuffled, with_deletions, with_repetitions):
        assert change(ids, rng()).tolist() == change(ids, rng()).tolist()
        assert change(ids, rng()).dtype == np.int64
    backwards(ids)[0] = 99
    assert ids.tolist() == [*range(12)]
