"""Encoding through the cache: what runs, in which order, what is refused, what an interruption leaves."""

from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from toy_encoder import Toy, embed

from stsbench.encoders.cache import encode
from stsbench.encoders.cache.cache import EmbeddingCache
from stsbench.encoders.cache.encode import encode_cached
from stsbench.errors import EncoderError


@pytest.fixture
def store(tmp_path):
    return EmbeddingCache(tmp_path / "cache")


def test_encoding_runs_only_what_is_missing_longest_first(store, monkeypatch):
    monkeypatch.setattr(encode, "CHUNK", 2)
    encoder = Toy()
    encode_cached(encoder, ["bb", "a"], store)
    encoder.calls.clear()
    texts = ["a", "dddd", "bb", "ccc", "a", "eeeeeeee"]
    counts = []
    encoded = encode_cached(encoder, texts, store, counts.append)
    assert encoder.calls == [["eeeeeeee", "dddd"], ["ccc"]] and sum(counts) == len(texts)
    np.testing.assert_array_equal(encoded.vectors, embed(texts).vectors)
    np.testing.assert_array_equal(encoded.truncated, embed(texts).truncated)
    encoder.calls.clear()
    again = encode_cached(encoder, texts, store)
    assert not encoder.calls
    np.testing.assert_array_equal(again.vectors, encoded.vectors)
    np.testing.assert_array_equal(again.truncated, encoded.truncated)


def test_an_interrupted_run_goes_on_from_the_finished_chunks(store, monkeypatch):
    monkeypatch.setattr(encode, "CHUNK", 2)
    texts = ["a", "bb", "ccc", "dddd"]

    class Interrupted(Toy):
        def run(self, texts, progress=None):
            if self.calls:
                raise KeyboardInterrupt
            return super().run(texts, progress)

    with pytest.raises(KeyboardInterrupt):
        encode_cached(Interrupted(), texts, store)
    encoder = Toy()
    encode_cached(encoder, texts, store)
    assert encoder.calls == [["bb", "a"]]


def poisoned(vectors):
    vectors = vectors.copy()
    vectors[vectors[:, 0] == 3] = np.nan
    return vectors


BAD = [
    poisoned, lambda v: v.astype(np.float64) * 1e300, lambda v: v[:-1], lambda v: v[:, 0], lambda v: v.astype(int),
    lambda v: v.tolist(), lambda v: csr_matrix(poisoned(v)), csr_matrix,
]


def test_bad_vectors_are_never_stored(store):
    for change in BAD:
        with pytest.raises(EncoderError):
            encode_cached(Toy(change=change), ["bad", "fine", "sad", "also fine"], store)
        assert store.size() == 0


def test_without_a_cache_and_for_sparse_vectors():
    encoder = Toy(change=csr_matrix)
    encoder.cacheable = False
    texts = ["a", "bb", "a"]
    for store in (None, EmbeddingCache(Path("/nonexistent"))):
        encoded = encode_cached(encoder, texts, store)
        np.testing.assert_array_equal(encoded.vectors.toarray(), embed(texts).vectors)
    assert encoder.calls == [["a", "bb"]] * 2
    assert encode_cached(Toy(change=lambda v: np.zeros((0, 3), np.float32)), [], None).vectors.shape == (0, 3)


def test_a_width_that_changed_under_one_fingerprint_is_an_error(store):
    encode_cached(Toy(), ["a"], store)
    with pytest.raises(EncoderError, match="vectors of 2 numbers, and of 3 before"):
        encode_cached(Toy(change=lambda v: v[:, :2]), ["a", "b"], store)
