"""The numbers of the catalog's sentences are those of the data, and tell which pairs share one."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from stsbench.data.fetch.sources import load_data
from stsbench.data.sets.sentences import FILE, has_numbers, known_sentences, pair_keys, text_keys
from stsbench.metrics.shared_sentences import SharedSentences
from tests.support.realdata import real_data

SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "sentence_numbers.py"


@pytest.fixture
def real(monkeypatch):
    monkeypatch.setenv("STSBENCH_DATA", str(real_data()))


def test_the_file_is_what_the_script_makes_of_the_data(real):
    spec = importlib.util.spec_from_file_location("sentence_numbers_script", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    with np.load(FILE) as stored:
        for name, made in script.numbers().items():
            np.testing.assert_array_equal(stored[name], made, err_msg="python benchmarks/sentence_numbers.py")


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


def test_own_texts_are_equal_to_the_letter_the_catalogs_by_their_letters():
    texts = ["A cat.", "a cat", "a dog"]
    assert len(set(text_keys(texts, exact=True).tolist())) == 3
    assert len(set(text_keys(texts).tolist())) == 2
