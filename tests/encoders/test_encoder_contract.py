"""What every kind of encoder does, ours and a plug-in's: what it reads, what it answers to other people's programs."""

import light_process
import numpy as np
import pandas
import pytest
import torch
from tiny_models import add_modules, build, sentences

from stsbench.encoders.base import Encoded, Encoder, EncoderSpec
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.light.callable import CallableEncoder
from stsbench.encoders.load import load_encoder
from stsbench.encoders.post.chain import Chain
from stsbench.encoders.post.encoder import PostProcessed
from stsbench.encoders.transformer.live import LiveEncoder
from stsbench.errors import EncoderError

TEXTS = ["the cat", "a dog eats", "the cat", "the red cat sleeps", *sentences(12, longest=6)]


def lengths(texts):
    return [[len(text), text.count("a"), 1.0] for text in texts]


class Plugin(Encoder):
    spec = EncoderSpec("plugin", "plugin", "0" * 64)

    def run(self, texts, progress=None):
        return Encoded(np.array(lengths(texts), np.float32).reshape(-1, 3), np.zeros(len(texts), bool))


def model(folder):
    return load_encoder(str(build(folder / "model")), pooler="mean", offline=True, device="cpu")


def in_memory(folder):
    parts = model(folder).parts
    return load_encoder((parts.model, parts.tokenizer), pooler="mean")


def library(folder):
    import sentence_transformers

    place = str(add_modules(build(folder / "modules"), {"pooling_mode": "mean"}, extra=()))
    return CallableEncoder.wrap(sentence_transformers.SentenceTransformer(place, device="cpu"))


def words(folder):
    (folder / "words.txt").write_text("the 1 0 0\ncat 0 1 0\na 0 1 1\ndog 1 1 1\neats 1 0 1\n")
    return load_encoder(f"words:{folder / 'words.txt'}")


def vectors(folder):
    distinct = list(dict.fromkeys(TEXTS))
    np.savez(folder / "v.npz", texts=np.array(distinct), vectors=np.random.default_rng(0).normal(size=(len(distinct), 4)))
    return load_encoder(f"vectors:{folder / 'v.npz'}")


KINDS = {
    "transformer": model, "in memory": in_memory, "live": lambda folder: LiveEncoder(model(folder).parts, pooler="mean",
                                                                                    name="live"),
    "dropout": lambda folder: model(folder).with_dropout(3), "library": library, "plugin": lambda folder: Plugin(),
    "callable": lambda folder: CallableEncoder(lengths), "words": words, "vectors": vectors,
    "token-set": lambda folder: load_encoder("lexical:token-set"),
    "tfidf": lambda folder: load_encoder("lexical:tfidf").fit(TEXTS, "x@1"),
    "post": lambda folder: PostProcessed(Plugin(), Chain.parse("standardise")).fit(["b", "cc", "aaa", "dd a"], "x@1"),
}
SPARSE, RANDOM = ("token-set", "tfidf"), ("dropout",)


@pytest.fixture(params=KINDS)
def encoder(request, tmp_path):
    return KINDS[request.param](tmp_path)


def dense(vectors):
    return vectors.toarray() if hasattr(vectors, "toarray") else vectors


def kind_of(request):
    return request.node.callspec.params["encoder"]


def test_a_string_is_one_text_and_a_sequence_is_any(encoder, request):
    expected = dense(encoder.encode(TEXTS))
    assert expected.shape[0] == len(TEXTS) and expected.dtype == np.float32
    if kind_of(request) not in ("callable", "library"):  # a function may return an empty list, which has no width
        assert dense(encoder.encode([])).shape[0] == 0
    alone = encoder.encode(TEXTS[1])
    series = pandas.Series(TEXTS, index=[7] * len(TEXTS))
    several = [dense(encoder.encode(same)) for same in (tuple(TEXTS), iter(TEXTS), np.array(TEXTS), np.array(TEXTS, object),
                                                        series)]
    assert alone.shape == (expected.shape[1],)
    if kind_of(request) not in RANDOM:
        assert np.allclose(alone, expected[1], atol=1e-5)
        assert all(np.allclose(vectors, expected, atol=1e-5) for vectors in several)
    assert encoder.spec.fingerprint() == encoder.spec.fingerprint()


WRONG = (["a", None], ["a", float("nan")], [b"a"], ["a", ["b"]], b"abc", {"a": 1}, {"a"}, 3, np.array([["a"], ["b"]]),
         np.array("ab"), ["a", "\ud800x"], pandas.DataFrame({"text": ["a", "b"]}))


def test_anything_else_is_refused(encoder):
    for texts in WRONG:
        with pytest.raises(EncoderError):
            encoder.encode(texts)
        with pytest.raises(EncoderError):
            Embed(encoder).add(texts)


def test_other_people_s_programs_are_answered(encoder, request):
    vectors = encoder.encode(TEXTS, batch_size=4, normalize_embeddings=True)
    assert vectors.dtype == np.float32 and vectors.shape[0] == len(TEXTS)
    lengths = np.linalg.norm(dense(vectors), axis=1)
    np.testing.assert_allclose(lengths[lengths > 0], 1, rtol=1e-5)
    assert encoder.get_sentence_embedding_dimension() in (None, vectors.shape[1])
    assert encoder.similarity(vectors, vectors[:2]).shape == (len(TEXTS), 2)
    with pytest.raises(EncoderError):
        encoder.encode_document(TEXTS, output_value="token_embeddings")
    if kind_of(request) in SPARSE:
        with pytest.raises(EncoderError):
            encoder.encode_query(TEXTS, convert_to_tensor=True)
        return
    tensor = encoder.encode_query(TEXTS, convert_to_tensor=True, truncate_dim=2)
    assert tensor.shape == (len(TEXTS), 2) and tensor.device == encoder.device == torch.device("cpu")


LIGHT = {
    "names of the room": "import stsbench.encoders as room; assert not {'numpy', 'torch'} & set(sys.modules) - before\n"
                         "assert set(room.__all__) == {n for n in room.__all__ if getattr(room, n)}\n"
                         "try: room.nothing\nexcept AttributeError as error: assert 'nothing' in str(error)\n"
                         "else: raise SystemExit('no error')",
    "light kinds": "import stsbench.encoders.cache.cache, stsbench.encoders.light.words\n"
                   "import stsbench.encoders.light.vectors, stsbench.encoders.light.callable\n"
                   "from stsbench.encoders.load import load_encoder\n"
                   "load_encoder('lexical:token-set').encode(['a b'])\n"
                   "load_encoder('lexical:tfidf').fit(['aa bb'], 's').encode(['aa'])",
    "what finds a transformer": "import stsbench.encoders.transformer.lazy, stsbench.encoders.transformer.find",
}


@pytest.mark.parametrize("name", LIGHT)
def test_torch_is_imported_by_what_needs_it_alone(name):
    code = f"import sys\nbefore = set(sys.modules)\n{LIGHT[name]}\nassert not {{'torch', 'transformers'}} & set(sys.modules)"
    done = light_process.run(code)
    assert done.returncode == 0, done.stderr
