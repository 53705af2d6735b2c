"""What may be encoded, for every kind of encoder: one string, any sequence of strings, nothing that only looks like one."""

import numpy as np
import pytest
from tiny_models import build

from stsbench.encoders.base import Encoded, Encoder, EncoderSpec
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.light.callable import CallableEncoder
from stsbench.encoders.load import load_encoder
from stsbench.encoders.post.chain import Chain
from stsbench.encoders.post.encoder import PostProcessed
from stsbench.errors import EncoderError

TEXTS = ["the cat", "a dog eats", "the cat"]


def lengths(texts):
    return [[len(text), text.count("a"), 1.0] for text in texts]


class Plugin(Encoder):
    spec = EncoderSpec("plugin", "plugin", "0" * 64)

    def run(self, texts, progress=None):
        return Encoded(np.array(lengths(texts), np.float32), np.zeros(len(texts), bool))


@pytest.fixture
def encoders(tmp_path):
    (tmp_path / "words.txt").write_text("the 1 0 0\ncat 0 1 0\na 0 1 1\ndog 1 1 1\neats 1 0 1\n")
    np.savez(tmp_path / "v.npz", texts=np.array([*TEXTS[:2], "x y"]), vectors=np.random.default_rng(0).normal(size=(3, 4)))
    build(tmp_path / "model")
    model = load_encoder(str(tmp_path / "model"), pooler="mean", offline=True)
    callables = CallableEncoder(lengths)
    return {
        "transformer": model, "callable": callables, "plugin": Plugin(), "token-set": load_encoder("lexical:token-set"),
        "tfidf": load_encoder("lexical:tfidf").fit(["the cat", "a dog eats"], "x@1"),
        "words": load_encoder(f"words:{tmp_path / 'words.txt'}"), "vectors": load_encoder(f"vectors:{tmp_path / 'v.npz'}"),
        "post": PostProcessed(callables, Chain.parse("standardise")).fit(["b", "cc", "aaa", "dddd a"], "x@1"),
    }


def dense(vectors):
    return vectors.toarray() if hasattr(vectors, "toarray") else vectors


def test_a_string_is_one_text_and_a_sequence_is_any(encoders):
    for name, encoder in encoders.items():
        want = dense(encoder.encode(TEXTS))
        assert want.shape[0] == 3, name
        one = encoder.encode(TEXTS[1])
        assert one.shape == (want.shape[1],) and np.allclose(one, want[1], atol=1e-5), name
        series = pytest.importorskip("pandas").Series(TEXTS, index=[7, 7, 0])
        for same in (tuple(TEXTS), iter(TEXTS), np.array(TEXTS), np.array(TEXTS, object), series):
            assert np.allclose(dense(encoder.encode(same)), want, atol=1e-5), (name, type(same))


WRONG = [
    (["a", None], r"texts\[1\] .*row 1.* None, of type NoneType"),
    (["a", float("nan")], r"texts\[1\] .*nan, of type float"),
    (["a", 3], r"texts\[1\] .* 3, of type int"), ([b"a"], r"texts\[0\] .*b'a', of type bytes"),
    (["a", ["b"]], r"texts\[1\] .*of type list"), (b"abc", "one bytes"), ({"a": 1}, "a dict"), ({"a"}, "a set"),
    (3, "a int"),
    (np.array([["a"], ["b"]]), "a ndarray"), (np.array("ab"), "a ndarray"), (["a", "\ud800x"], r"texts\[1\] .*surrogate"),
]


@pytest.mark.parametrize(("texts", "reason"), WRONG)
def test_anything_else_is_refused_in_one_line(encoders, texts, reason):
    for encoder in encoders.values():
        with pytest.raises(EncoderError, match=reason) as caught:
            encoder.encode(texts)
        assert "\n" not in str(caught.value)
    with pytest.raises(EncoderError, match=reason):
        Embed(Plugin()).add(texts)


def test_a_protocol_that_hands_over_a_string_is_told():
    with pytest.raises(EncoderError, match="one str, whose characters"):
        Embed(Plugin())("a text")


def test_a_table_is_not_its_column_names():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(EncoderError, match="a DataFrame, not a sequence of strings"):
        Plugin().encode(pandas.DataFrame({"text": ["a", "b"]}))


def test_options_beside_what_is_already_there_are_refused():
    """They would have no effect: vectors by the mean under the name of cls."""
    for model in (load_encoder("lexical:token-set"), lambda texts: np.ones((len(texts), 2))):
        assert load_encoder(model).encode(["a"]).shape[0] == 1
        with pytest.raises(EncoderError, match="load_encoder: pooler would have no effect"):
            load_encoder(model, pooler="cls")
