"""The numbers of the catalog's sentences are those of the data, and tell which pairs share one."""

from __future__ import annotations

import numpy as np
import pytest
from realdata import real_data

from stsbench.data.fetch.sources import load_data
from stsbench.data.sets import sentences
from stsbench.data.sets.sentences import has_numbers, known_sentences, pair_keys, text_keys
from stsbench.metrics.shared_sentences import SharedSentences


@pytest.fixture
def real(monkeypatch):
    monkeypatch.setenv("STSBENCH_DATA", str(real_data()))


@pytest.mark.parametrize("name", ["sts12/test", "stsb/test", "sick-r/test"])
def test_pairs_of_the_catalog_share_the_sentences_that_their_texts_say(name, real):
    data = load_data(name)
    pairs = pair_keys(data.first, data.second)
    assert has_numbers(pairs)
    values = np.random.default_rng(0).normal(size=len(data))
    by_number = SharedSentences(*known_sentences(pairs))
    by_text = SharedSentences(text_keys(data.first), text_keys(data.second))
    assert by_number.variance(values) == pytest.approx(by_text.variance(values), rel=1e-12)
    assert by_number.item_variance(values) == pytest.approx(by_text.item_variance(values), rel=1e-12)


def test_an_unknown_pair_shares_no_sentence_with_another():
    pairs = pair_keys(["a cat", "a cat", "a dog"], ["sits", "runs", "runs"])
    assert not has_numbers(pairs)
    assert len(np.unique(np.concatenate(known_sentences(pairs)))) == 6


def test_what_is_packed_is_known(tmp_path, monkeypatch):
    first, second = ["A cat.", "a cat", "a dog"], ["sits", "runs", "runs"]
    pairs = pair_keys(first, second)
    np.savez(tmp_path / "numbers.npz", **sentences.packed(pairs, first, second))
    monkeypatch.setattr(sentences, "FILE", tmp_path / "numbers.npz")
    monkeypatch.setattr(sentences, "_known", sentences._known.__wrapped__)
    assert has_numbers(pairs)
    for made, texts in zip(known_sentences(pairs), (first, second), strict=True):
        assert np.array_equal(made[:, None] == made, text_keys(texts)[:, None] == text_keys(texts))


def test_own_texts_are_equal_to_the_letter_the_catalogs_by_their_letters():
    texts = ["A cat.", "a cat", "a dog"]
    assert len(set(text_keys(texts, exact=True).tolist())) == 3
    assert len(set(text_keys(texts).tolist())) == 2
