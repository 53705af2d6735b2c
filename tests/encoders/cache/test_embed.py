"""Every text is encoded once, whoever asks for it, and keeps its vector."""

import numpy as np
import pytest

from stsbench.encoders.base import Encoded, Encoder, EncoderSpec
from stsbench.encoders.cache.cache import EmbeddingCache
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.light.lexical import TfIdf
from stsbench.errors import EncoderError


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


def test_an_encoder_fitted_on_each_set():
    class Fitted(Counting):
        fitted_per_set = True

        def fit(self, texts, source):
            if source == "bad":
                raise EncoderError("nothing to fit on")
            other = Counting()
            other.source = source
            return other

    embed = Embed(Fitted())
    first, second = embed.for_set(["a"], "s1"), embed.for_set(["a"], "s2")
    assert first is embed.for_set(["a"], "s1") is not second and first.encoder.source == "s1"
    with pytest.raises(EncoderError):
        embed.for_set([], "bad")
    plain = Embed(Counting())
    assert plain.for_set(["a"], "s1") is plain


def test_an_encoder_that_was_fitted_before_stays_as_it_is():
    """Fitted again on each set, it would be another encoder than the one that was handed over."""
    fitted = TfIdf().fit(["red apples", "green pears"], "fruit@1")
    embed = Embed(fitted)
    assert embed.for_set(["blue skies"], "weather@2") is embed and embed(["blue skies", "apples"]).nnz == 1
    fresh = Embed(TfIdf()).for_set(["blue skies"], "weather@2")
    assert fresh.spec.fitted_on == "weather@2" and fresh(["blue skies", "apples"]).nnz == 2
