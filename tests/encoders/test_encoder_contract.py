"""What every kind of encoder does, ours and a plug-in's: what it reads, what it answers to other people's programs."""

from importlib import import_module
from pathlib import Path

import light_process
import numpy as np
import pandas
import pytest
import torch
from known_encoder import Known, check_known
from tiny_models import add_modules, build, sentences

from stsbench.encoders.base import Encoded, Encoder, EncoderSpec, Wrapper
from stsbench.encoders.light.callable import CallableEncoder
from stsbench.encoders.load import load_encoder
from stsbench.encoders.post.chain import Chain
from stsbench.encoders.post.encoder import PostProcessed
from stsbench.encoders.roles import TextTask
from stsbench.encoders.transformer.live import LiveEncoder

TEXTS = ["the cat", "a dog eats", "the cat", "the red cat sleeps", *sentences(12, longest=6)]


def lengths(texts):
    return [[len(text), text.count("a"), 1.0] for text in texts]


class Plugin(Encoder):
    spec = EncoderSpec("plugin", "plugin", "0" * 64)

    def run(self, texts, progress=None):
        return Encoded(np.array(lengths(texts), np.float32).reshape(-1, 3), np.zeros(len(texts), bool))


def model(folder):
    return load_encoder(str(build(folder / "model")), pooler="mean", offline=True, device="cpu")


def library(folder):
    import sentence_transformers

    place = str(add_modules(build(folder / "modules"), {"pooling_mode": "mean"}, extra=()))
    return CallableEncoder.wrap(sentence_transformers.SentenceTransformer(place, device="cpu"))


KINDS = {
    "live": lambda folder: LiveEncoder(model(folder).parts, pooler="mean", name="live"),
    "dropout": lambda folder: model(folder).with_dropout(3), "library": library, "plugin": lambda folder: Plugin(),
    "callable": lambda folder: CallableEncoder(lengths),
    "tfidf": lambda folder: load_encoder("lexical:tfidf").fit(TEXTS, "x@1"),
    "post": lambda folder: PostProcessed(Plugin(), Chain.parse("standardise")).fit(["b", "cc", "aaa", "dd a"], "x@1"),
}


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
    if kind_of(request) != "dropout":  # random
        assert np.allclose(alone, expected[1], atol=1e-5)
        assert all(np.allclose(vectors, expected, atol=1e-5) for vectors in several)
    assert encoder.spec.fingerprint() == encoder.spec.fingerprint()


def test_other_people_s_programs_are_answered(encoder, request):
    vectors = encoder.encode(TEXTS, batch_size=4, normalize_embeddings=True)
    lengths = np.linalg.norm(dense(vectors), axis=1)
    np.testing.assert_allclose(lengths[lengths > 0], 1, rtol=1e-5)
    assert encoder.get_sentence_embedding_dimension() in (None, vectors.shape[1])
    assert encoder.similarity(vectors, vectors[:2]).shape == (len(TEXTS), 2)
    if kind_of(request) != "tfidf":  # sparse
        tensor = encoder.encode_query(TEXTS, convert_to_tensor=True, truncate_dim=2)
        assert tensor.shape == (len(TEXTS), 2) and tensor.device == encoder.device == torch.device("cpu")


LIGHT = """
import sys
before = set(sys.modules)
import stsbench.encoders as room
assert not {"numpy", "torch"} & set(sys.modules) - before
assert set(room.__all__) == {name for name in room.__all__ if getattr(room, name)}
try:
    room.nothing
except AttributeError as error:
    assert "nothing" in str(error)
else:
    raise SystemExit("no error")
import stsbench.encoders.transformer.lazy, stsbench.encoders.transformer.find
import stsbench.encoders.cache.cache, stsbench.encoders.light.words, stsbench.encoders.light.vectors
from stsbench.encoders.load import load_encoder
load_encoder("lexical:token-set").encode(["a b"])
load_encoder("lexical:tfidf").fit(["aa bb"], "s").encode(["aa"])
assert not {"torch", "transformers"} & set(sys.modules)
"""


def test_torch_is_imported_by_what_needs_it_alone():
    done = light_process.run(LIGHT)
    assert done.returncode == 0, done.stderr


# ---- encoders made of another one: what is known of that one is behind each of them

ROOT = Path(__file__).resolve().parents[2] / "stsbench"
MADE = {PostProcessed: lambda base: PostProcessed(base, Chain.parse("standardise"))}


def wrappers(kind=Wrapper):
    return {kind for below in kind.__subclasses__() for kind in ({below} | wrappers(below))}


def test_every_wrapper_of_the_core_is_tried():
    for path in ROOT.rglob("*.py"):
        if "wrapper import" in path.read_text("utf-8") and "extensions" not in path.parts:
            import_module(".".join(("stsbench", *path.relative_to(ROOT).with_suffix("").parts)))
    assert {kind for kind in wrappers() if kind.__module__.startswith("stsbench.") and "extensions" not in kind.__module__} \
        == set(MADE)


@pytest.mark.parametrize("kind", MADE, ids=lambda kind: kind.__name__)
def test_whatever_is_known_of_the_base_is_behind_a_wrapper(kind):
    for read in (lambda made: made, lambda made: made.for_role("query"), lambda made: made.with_prompt("x: "),
                 lambda made: made.for_task(TextTask("T", "STS")), lambda made: made.with_prompt("x: ").for_role("query")):
        base = Known()
        made = read(MADE[kind](base))
        assert isinstance(made, kind) and made.spec.prefix == read(base).spec.prefix
        check_known(made, base)


def test_what_is_known_stands_in_the_traits():
    with pytest.raises(TypeError, match=r"Stray.libraries would have no effect: write traits = Traits\(libraries=\.\.\.\)"):
        class Stray(Known):
            libraries = ("numpy",)
