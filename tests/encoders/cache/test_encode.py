"""Encoding through the cache: what runs, in which order, what is refused, what an interruption leaves."""

from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from toy_encoder import Toy, embed

from stsbench.encoders.base import Encoded, Encoder, EncoderSpec
from stsbench.encoders.cache import encode
from stsbench.encoders.cache.cache import EmbeddingCache
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.cache.encode import encode_cached
from stsbench.encoders.light.lexical import TfIdf
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


def test_bad_vectors_and_those_of_another_width_are_never_stored(store):
    with pytest.raises(EncoderError):
        encode_cached(Toy(change=poisoned), ["bad", "fine", "sad", "also fine"], store)
    assert store.size() == 0
    encode_cached(Toy(), ["a"], store)
    with pytest.raises(EncoderError, match="vectors of 2 numbers, and of 3 before"):
        encode_cached(Toy(change=lambda v: v[:, :2]), ["a", "b"], store)


def test_without_a_cache_and_for_sparse_vectors():
    encoder = Toy(change=csr_matrix)
    encoder.cacheable = False
    texts = ["a", "bb", "a"]
    for store in (None, EmbeddingCache(Path("/nonexistent"))):
        encoded = encode_cached(encoder, texts, store)
        np.testing.assert_array_equal(encoded.vectors.toarray(), embed(texts).vectors)
    assert encoder.calls == [["a", "bb"]] * 2
    assert encode_cached(Toy(change=lambda v: np.zeros((0, 3), np.float32)), [], None).vectors.shape == (0, 3)


# ---- Embed: every text is encoded once, whoever asks for it, and keeps its vector


class Counting(Encoder):
    """Length and number of the letter e; keeps what it was asked."""

    spec = EncoderSpec(name="counting", kind="callable", weights="0" * 64)

    def __init__(self):
        self.asked = []

    def run(self, texts, progress=None):
        self.asked += texts
        vectors = np.array([[len(text), text.count("e")] for text in texts], dtype=np.float32)
        vectors[[text == "broken" for text in texts]] = np.inf
        return Encoded(vectors, np.array([len(text) > 9 for text in texts]))


def test_each_text_once():
    encoder = Counting()
    embed = Embed(encoder)
    embed.add(["one", "three", "one"])
    assert embed(["three", "one", "eleven letters", "three"]).tolist() == [[5, 2], [3, 1], [14, 5], [5, 2]]
    assert encoder.asked == ["one", "three", "eleven letters"] and embed.encoded == 3 and embed.dimension == 2
    assert embed.truncated(["one", "eleven letters"]).tolist() == [False, True]
    assert embed([]).shape == (0, 2) and Embed(encoder)([]).shape == (0, 0)


def test_a_vector_that_is_none_spoils_only_its_own_text(tmp_path):
    cache = EmbeddingCache(tmp_path)
    embed = Embed(Counting(), cache)
    assert embed.unusable(["one", "two"]) is None
    assert "NaN or infinity for 1 of 2 texts, the first: 'broken'" in embed.unusable(["one", "broken"])
    assert np.isnan(embed(["broken"])).all() and embed(["one"]).tolist() == [[3, 1]]
    again = Counting()
    Embed(again, cache).add(["one", "two", "broken"])
    assert again.asked == ["broken"]  # never stored


def test_an_encoder_that_was_fitted_before_stays_as_it_is():
    """Fitted again on each set, it would be another encoder than the one that was handed over."""
    fitted = TfIdf().fit(["red apples", "green pears"], "fruit@1")
    embed = Embed(fitted)
    assert embed.for_set(["blue skies"], "weather@2") is embed and embed(["blue skies", "apples"]).nnz == 1
    fresh = Embed(TfIdf()).for_set(["blue skies"], "weather@2")
    assert fresh.spec.fitted_on == "weather@2" and fresh(["blue skies", "apples"]).nnz == 2
