"""Word-level augmentations: what they may and may not do to any sentence, and their shares."""

import math
from collections import Counter
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stsbench.training.modules.edits import crop, delete_one_word, delete_words, read_thesaurus, round_share, synonym

NUMBERED = [f"w{i}" for i in range(40)]
RATES = st.integers(1, 99).map(lambda percent: Fraction(percent, 100))
COUNTS = st.integers(0, 40)
SEEDS = st.integers(0, 2**32 - 1)


def rng(seed=0):
    return np.random.default_rng(seed)


@settings(max_examples=50, deadline=None)
@given(COUNTS, RATES, SEEDS)
def test_crop_keeps_a_contiguous_span_of_the_stated_length(count, rate, seed):
    words = NUMBERED[:count]
    kept = crop(words, float(rate), rng(seed))
    assert len(kept) == math.ceil((1 - rate) * count)  # exact: rate is a fraction
    start = words.index(kept[0]) if kept else 0
    assert kept == words[start : start + len(kept)]
    assert words == NUMBERED[:count]  # the argument stays as it was


def test_crop_starts_anywhere_equally_often():
    generator = rng()
    starts = Counter(crop(NUMBERED[:10], 0.3, generator)[0] for _ in range(4000))
    assert sorted(starts) == ["w0", "w1", "w2", "w3"]
    assert all(abs(count - 1000) < 4 * math.sqrt(4000 * 0.25 * 0.75) for count in starts.values())


@settings(max_examples=50, deadline=None)
@given(COUNTS, RATES, SEEDS)
def test_deletion_drops_the_rounded_share_in_order_and_never_everything(count, rate, seed):
    words = NUMBERED[:count]
    kept = delete_words(words, float(rate), rng(seed))
    wanted = math.floor(rate * count + Fraction(1, 2))
    assert len(words) - len(kept) == (min(wanted, count - 1) if count else 0)
    assert [word for word in words if word in set(kept)] == kept  # a subsequence


def test_deletion_drops_every_word_equally_often():
    generator = rng()
    words = NUMBERED[:10]
    dropped = Counter(word for _ in range(4000) for word in set(words) - set(delete_words(words, 0.2, generator)))
    assert len(dropped) == 10
    assert all(abs(count - 800) < 4 * math.sqrt(4000 * 0.2 * 0.8) for count in dropped.values())


@settings(max_examples=50, deadline=None)
@given(COUNTS, SEEDS)
def test_delete_one_word(count, seed):
    kept = delete_one_word(NUMBERED[:count], rng(seed))
    assert len(kept) == (count - 1 if count > 1 else count)
    assert [word for word in NUMBERED[:count] if word in set(kept)] == kept


def test_equal_generators_give_equal_changes_and_others_differ():
    for change in (
        lambda words, generator: crop(words, 0.3, generator), lambda words, generator: delete_words(words, 0.3, generator),
        delete_one_word, lambda words, generator: synonym(words, {word: ("x", "y") for word in words}, generator),
    ):
        first, second = ([change(NUMBERED, generator) for _ in range(5)] for generator in (rng(3), rng(3)))
        assert first == second
        assert first != [change(NUMBERED, generator) for generator in [rng(4)] for _ in range(5)]
    for count, rate, wanted in ((0, 0.5, 0), (3, 0.15, 0), (10, 0.15, 2), (100, 0.29, 29)):
        assert round_share(count, rate) == wanted  # halves up


def test_synonym_replaces_one_word_that_has_one():
    for words in ([], ["cat"], ["--"], [""], ["cat", "..."]):
        assert synonym(words, {"dog": ("hound",)}, rng()) == words
    thesaurus = {"dog": ("hound", "pup"), "big": ("huge",)}
    words = ["The", "big", "Dog,", "(dog)", "barks"]
    generator = rng()
    seen = Counter(tuple(synonym(words, thesaurus, generator)) for _ in range(3000))
    expected = {
        ("The", "huge", "Dog,", "(dog)", "barks"): 1000,
        ("The", "big", "Hound,", "(dog)", "barks"): 500,
        ("The", "big", "Pup,", "(dog)", "barks"): 500,
        ("The", "big", "Dog,", "(hound)", "barks"): 500,
        ("The", "big", "Dog,", "(pup)", "barks"): 500,
    }
    assert set(seen) == set(expected)
    assert all(abs(seen[key] - count) < 120 for key, count in expected.items())
    assert words == ["The", "big", "Dog,", "(dog)", "barks"]


def test_thesaurus_rows_of_one_word_add_up(tmp_path):
    path = tmp_path / "words.tsv"
    path.write_text("Dog\thound\tdog\r\n\nbig\thuge\ndog\tpup\thound\n", encoding="utf-8")
    assert read_thesaurus(path) == {"dog": ("hound", "pup"), "big": ("huge",)}
