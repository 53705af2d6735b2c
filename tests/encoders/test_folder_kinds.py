"""What a folder declares is honoured as sentence-transformers honours it, or refused in one line that names it."""

import io
import re
import sys

import numpy as np
import pytest
from code_folders import CODE, ran
from model_folder_settings import KINDS
from model_folders import TEXTS, change, declare, pooling, transformer
from own_home import own_home  # noqa: F401 - a fixture
from published_vectors import fresh_library, published
from scipy.stats import pearsonr, spearmanr

from stsbench import evaluate, load_encoder
from stsbench.data.fetch.sources import load_data
from stsbench.errors import EncoderError

CLOSE = 1e-5
POINTS = 1e-4  # of a score x 100


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """kind -> its folder, built once and not changed; the name says nothing, so that no refusal can owe it to the path."""
    root, folders = tmp_path_factory.mktemp("folders"), {}

    def folder(kind):
        if id(kind) not in folders:
            place = folders[id(kind)] = root / f"f{len(folders)}"
            place.mkdir()
            kind.build(place)
        return folders[id(kind)]

    return folder


def ours(folder, **options):
    return load_encoder(str(folder), **{"device": "cpu", "offline": True, **options})


def line(error, folder):
    """The one line of an EncoderError, without the folder's path."""
    said = str(error)
    assert said and "\n" not in said
    assert "failed (" not in said, "an exception that nobody foresaw"
    return said.replace(str(folder), "FOLDER")


def texts_of(kind):
    return [text for text in TEXTS if text or kind.empty]


@pytest.mark.parametrize("name", KINDS)
def test_vectors_are_those_of_the_library(built, name):
    kind = KINDS[name]
    folder, texts = built(kind), texts_of(kind)
    try:
        encoder = ours(folder, **kind.options)
        vectors = encoder.encode(texts)
    except EncoderError as error:
        assert kind.refused and re.search(kind.refused, line(error, folder)), error
        return
    expected = published(folder, texts, alone=kind.alone)
    assert vectors.shape == expected.shape
    np.testing.assert_allclose(vectors, expected, atol=CLOSE)
    # another order and other company: one by one, the long text in the middle
    some = [texts.index(TEXTS[position]) for position in (4, 5, 7, 0)]
    np.testing.assert_allclose([encoder.run([texts[i]]).vectors[0] for i in some], expected[some], atol=CLOSE)


OWN = [name for name in KINDS if re.match("every family|.* cls$|.*more tokens than positions", name)]


def test_every_family_runs_through_our_own_pass(built):
    for name in OWN:
        spec = ours(built(KINDS[name])).spec
        assert (spec.kind, spec.max_length) == ("transformers", 500 if "more tokens" in name else 64), name


@pytest.mark.parametrize(("rope", "kind"), [
    ("default", "transformers"), ("linear", "transformers"), ("dynamic", "sentence-transformers"),
])
def test_positions_that_turn_by_a_texts_length_are_the_librarys(tmp_path, rope, kind):
    """Beyond the model's positions, a longer text in a batch would turn those of all."""
    turned = {"rope_type": rope, "factor": 2.0, "rope_theta": 1e4}
    folder = transformer(tmp_path / "f", "llama", rope_parameters=turned)
    assert ours(declare(folder, pooling("mean", width=32), limit=500)).spec.kind == kind
    declare(folder, pooling("mean", width=32), limit=64)
    short = ours(folder)
    assert short.spec.kind == "transformers"
    np.testing.assert_allclose(short.encode(TEXTS), fresh_library(folder).encode(TEXTS), atol=CLOSE)


def test_a_trusted_class_of_the_folders_own_is_the_librarys_to_run(tmp_path):
    folder = declare(transformer(tmp_path / "f", "ernie"), pooling("mean", width=32))
    assert ours(folder).spec.kind == ours(folder, trust_remote_code=True).spec.kind == "transformers"
    change(folder / "config.json", auto_map={"AutoModel": "mine.Own"})
    (folder / "mine.py").write_text("from transformers import ErnieModel\n\n\nclass Own(ErnieModel):\n    pass\n")
    assert ours(folder).spec.kind == "transformers"  # transformers' own class runs
    assert ours(folder, trust_remote_code=True).spec.kind == "sentence-transformers"


@pytest.fixture(scope="module")
def pairs():
    return load_data("stsb/test", sample=True)


@pytest.mark.parametrize("name", [  # the way from vectors to a score may differ by prompts, company and similarity alone
    "pooling lasttoken, prompt left out, padding left", "bag of words", "similarity dot",
])
def test_scores_are_those_of_the_librarys_vectors(built, pairs, tmp_path, name):
    kind = KINDS[name]
    folder = built(kind)
    try:
        result = evaluate(
            str(folder), output=tmp_path / "run", sample=True, tasks=["STS-B"], resamples=0, cache_dir=tmp_path / "cache",
            device="cpu", offline=True, **kind.options,
        )
    except EncoderError as error:
        assert kind.refused and re.search(kind.refused, line(error, folder)), error
        return
    assert not result.failures
    first, second = (published(folder, list(side), alone=kind.alone).astype(float) for side in (pairs.first, pairs.second))
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    cosine = np.divide((first * second).sum(1), norms, out=np.zeros(len(norms)), where=norms > 0)
    scores = {row.metric: row.value for row in result.rows if row.aggregation == "all" and row.task == "STS-B"}
    assert scores["spearman"] == pytest.approx(100 * spearmanr(cosine, pairs.gold).statistic, abs=POINTS)
    assert scores["pearson"] == pytest.approx(100 * pearsonr(cosine, pairs.gold).statistic, abs=POINTS)


@pytest.mark.parametrize("name", CODE)
def test_code_does_not_run_whatever_stdin_says(tmp_path, monkeypatch, capsys, name):
    kind = CODE[name]
    kind.build(folder := tmp_path / "f")
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 99))
    try:
        vectors = ours(folder, **kind.options).encode(TEXTS)
    except EncoderError as error:
        assert re.search(kind.refused, line(error, folder)), error
    else:  # a type that transformers knows by itself: the native class, as the library has it
        np.testing.assert_allclose(vectors, published(folder, TEXTS), atol=CLOSE)
    assert not ran(folder).exists()
    assert sys.stdin.read() == "y\n" * 99, "somebody asked on stdin"
    assert "Do you wish to run" not in capsys.readouterr().out


MIXED = [" ".join(text.split()[:i]) for i in (1, 2, 3, 5, 8, 13, 21, 26) for text in (
    TEXTS[5], TEXTS[5][8:], TEXTS[1] + " . " + TEXTS[5], TEXTS[0] + " " + TEXTS[5],
)]


@pytest.mark.parametrize("family", ["fnet", "big_bird", "mobilebert", "modernbert"])
def test_a_batchs_size_moves_no_vector(tmp_path, family):
    folder = transformer(tmp_path / "f", family)
    small, large = (ours(folder, pooler="mean", batch_tokens=tokens) for tokens in (256, 4096))
    first = small.encode(MIXED)
    close = CLOSE * max(1, np.abs(first).max())  # MobileBERT normalises nothing: its numbers are large
    np.testing.assert_allclose(first, large.encode(MIXED), atol=close)
    # BigBird: texts up to a length may share a batch (test_long_texts.py); ModernBERT: all; others: none of unequal lengths
    assert small.equal_lengths == large.equal_lengths == (family not in ("big_bird", "modernbert"))
    # a later load may know the result of the check already; the order of the texts must not matter then, either
    again = ours(folder, pooler="mean")
    np.testing.assert_allclose([again.run([text]).vectors[0] for text in MIXED[::-1]][::-1], first, atol=close)
    last = ours(folder, pooler="mean")
    np.testing.assert_allclose([last.run([text]).vectors[0] for text in MIXED], first, atol=close)


def test_a_batchs_size_moves_no_vector_of_texts_cut_short(tmp_path):
    """Cut to so few tokens, a short text and a long one may come out equally long: that tells nothing of their company."""
    folder = transformer(tmp_path / "f", "convbert")
    for tokens in (3, 5):
        small, large = (ours(folder, pooler="mean", batch_tokens=size, max_length=tokens) for size in (tokens, 4096))
        np.testing.assert_allclose(small.encode(MIXED), large.encode(MIXED), atol=CLOSE)


def test_an_adapter_is_not_left_out_where_peft_is_missing(built, monkeypatch):
    from transformers.integrations import peft

    kind = KINDS["adapter beside the model"]
    folder = built(kind)
    monkeypatch.setattr(peft, "is_peft_available", lambda *given: False)
    monkeypatch.setattr("transformers.models.auto.auto_factory.is_peft_available", lambda *given: False)
    monkeypatch.setattr("sentence_transformers.base.modules.transformer.is_peft_available", lambda *given: False)
    monkeypatch.setitem(sys.modules, "peft", None)
    for options in ({}, {"pooler": "mean"}):
        with pytest.raises(EncoderError, match=r"peft|adapter"):
            ours(folder, **options).encode(TEXTS)
