"""What a folder declares is honoured as sentence-transformers honours it, or refused in one line that names it."""

import io
import re
import sys
from functools import cache

import numpy as np
import pytest
from code_folders import CODE, ran
from model_folder_kinds import KINDS
from model_folders import PROMPT, TEXTS, change, declare, dense, normalize, pooling, transformer
from published_vectors import fresh_library, library, own_home, published  # noqa: F401 - a fixture
from scipy.stats import pearsonr, spearmanr

from stsbench import evaluate, load_encoder
from stsbench.data.fetch.sources import load_data
from stsbench.errors import EncoderError

CLOSE = 1e-5
POINTS = 1e-4  # of a score x 100


def built(name, place):
    kind, folder = KINDS[name], place / "f"
    folder.mkdir()
    kind.build(folder)
    return kind, folder


def ours(folder, **options):
    return load_encoder(str(folder), **{"device": "cpu", "offline": True, **options})


def line(error, folder):
    """The one line of an EncoderError, without the folder's path."""
    said = str(error)
    assert said and "\n" not in said
    assert "failed (" not in said, "an exception that nobody foresaw"
    return said.replace(str(folder), "FOLDER")


OWN = [name for name in KINDS if re.match("every family|gemma3|opt|.*more tokens than positions", name)]


@pytest.mark.parametrize("name", KINDS)
def test_vectors_are_those_of_the_library(tmp_path, name):
    kind, folder = built(name, tmp_path)
    texts = [text for text in TEXTS if text or kind.empty]
    try:
        encoder = ours(folder, **kind.options)
        vectors = encoder.encode(texts)
    except EncoderError as error:
        assert kind.refused and re.search(kind.refused, line(error, folder)), error
        return
    expected = published(folder, texts, alone=kind.alone)
    assert vectors.shape == expected.shape
    np.testing.assert_allclose(vectors, expected, atol=CLOSE)
    if name in OWN:  # by our own pass
        assert (encoder.spec.kind, encoder.spec.max_length) == ("transformers", 500 if "more tokens" in name else 64)
    # another order and other company: one by one, the long text in the middle
    some = [texts.index(TEXTS[position]) for position in (4, 5, 0)]
    np.testing.assert_allclose([encoder.run([texts[i]]).vectors[0] for i in some], expected[some], atol=CLOSE)


@pytest.mark.parametrize(("rope", "kind"), [("linear", "transformers"), ("dynamic", "sentence-transformers")])
def test_positions_that_turn_by_a_texts_length_are_the_librarys(tmp_path, rope, kind):
    """Beyond the model's positions, a longer text in a batch would turn those of all."""
    folder = transformer(tmp_path / "f", "llama", rope_parameters={"rope_type": rope, "factor": 2.0, "rope_theta": 1e4})
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


def test_scores_are_those_of_the_librarys_vectors(tmp_path):
    """The way from vectors to a score may differ by prompts, company and similarity alone."""
    name = "pooling lasttoken, prompt left out, padding left, similarity dot"
    (kind, folder), pairs = built(name, tmp_path), load_data("stsb/test", sample=True)
    result = evaluate(str(folder), output=tmp_path / "run", sample=True, tasks=["STS-B"], resamples=0,
                      cache_dir=tmp_path / "cache", device="cpu", offline=True)
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


MIXED = [" ".join(text.split()[:i]) for i in (1, 3, 5, 13, 26) for text in (TEXTS[5], TEXTS[1] + " . " + TEXTS[5])]


@pytest.mark.parametrize(("length", "small"), [(64, 256), (3, 3)])
def test_a_batchs_size_moves_no_vector(tmp_path, length, small):
    """Cut to so few tokens, a short text and a long one may come out equally long: that tells nothing of their company."""
    folder = transformer(tmp_path / "f", "fnet")
    encoders = [ours(folder, pooler="mean", batch_tokens=tokens, max_length=length) for tokens in (small, 4096)]
    first, large = (encoder.encode(MIXED) for encoder in encoders)
    np.testing.assert_allclose(first, large, atol=CLOSE)
    assert all(encoder.equal_lengths for encoder in encoders)
    # a later load may know the result of the check already; the order of the texts must not matter then, either
    again = ours(folder, pooler="mean", max_length=length)
    np.testing.assert_allclose([again.run([text]).vectors[0] for text in MIXED[::-1]][::-1], first, atol=CLOSE)


def test_an_adapter_is_not_left_out_where_peft_is_missing(tmp_path, monkeypatch):
    from transformers.integrations import peft

    _, folder = built("adapter beside the model, base elsewhere", tmp_path)
    monkeypatch.setattr(peft, "is_peft_available", lambda *given: False)
    monkeypatch.setattr("transformers.models.auto.auto_factory.is_peft_available", lambda *given: False)
    monkeypatch.setattr("sentence_transformers.base.modules.transformer.is_peft_available", lambda *given: False)
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(EncoderError, match=r"peft|adapter"):
        ours(folder).encode(TEXTS)


# ---- options beside a folder mean what the same arguments of sentence-transformers' encode mean, whoever runs the folder

MODULES = {"native": (), "library": (dense,)}  # what follows the pooling, but for Normalize
PROMPTS = {"query": "red : ", "document": "blue fish : ", "sts": PROMPT}
STORED = {"plain": {}, "default prompt": {"prompts": PROMPTS, "default_prompt_name": "sts"},
          "passage alone": {"prompts": {"passage": "blue fish : "}}, "truncated": {"truncate_dim": 7}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """(runner, stored settings, normalised, whether prompts are pooled) -> a folder, built once."""
    root = tmp_path_factory.mktemp("options")

    @cache
    def get(runner="native", stored="plain", unit=False, include_prompt=True):
        modules = [make() for make in (*MODULES[runner], *([normalize] if unit else []))]
        place = transformer(root / f"{runner} {stored} {unit} {include_prompt}")
        return declare(place, pooling("mean", include_prompt=include_prompt), *modules, settings=STORED[stored])

    return get


def equal(place, options, **encode):
    encoder = ours(place, **options)
    np.testing.assert_allclose(encoder.encode(TEXTS), published(place, TEXTS, **encode), atol=CLOSE)
    return encoder


@pytest.mark.parametrize(("runner", "stored", "unit", "options", "encode"), [
    ("library", "truncated", False, {"truncate_dim": 9}, {"truncate_dim": 9}),
    ("native", "plain", False, {"truncate_dim": 5, "normalize": True}, {"truncate_dim": 5, "normalize_embeddings": True}),
    ("library", "plain", True, {"truncate_dim": 5, "normalize": True}, {"truncate_dim": 5, "normalize_embeddings": True}),
    ("native", "truncated", True, {"normalize": True}, {"normalize_embeddings": True}),
    ("library", "default prompt", False, {"prompt": "red : "}, {"prompt": "red : "}),
    ("native", "default prompt", False, {"prompt": ""}, {"prompt": ""}),
    ("native", "default prompt", False, {"prompt": "name:document"}, {"prompt_name": "document"})])
def test_an_option_is_the_argument_of_encode(folder, runner, stored, unit, options, encode):
    place = folder(runner, stored, unit)
    changed, plain = equal(place, options, **encode), ours(place)
    if changed.spec.fingerprint() == plain.spec.fingerprint():
        np.testing.assert_allclose(changed.encode(TEXTS), plain.encode(TEXTS), atol=1e-6)


@pytest.mark.parametrize("runner", MODULES)
def test_stored_normalisation_can_be_switched_off(folder, runner):
    encoder = ours(folder(runner, "plain", True), normalize=False)
    np.testing.assert_allclose(encoder.encode(TEXTS), published(folder(runner, "plain", False), TEXTS), atol=CLOSE)
    assert encoder.spec.fingerprint() != ours(folder(runner, "plain", True)).spec.fingerprint()


def test_the_tokens_of_an_asked_prompt_are_left_out_where_the_folder_says_so(folder):
    equal(folder("native", "default prompt", False, False), {"prompt": "name:document"}, prompt_name="document")


@pytest.mark.parametrize(("runner", "tokens"), [("native", 70), ("library", 5)])
def test_max_length_is_max_seq_length_up_to_the_positions(folder, runner, tokens):
    place = folder(runner)
    encoder = ours(place, max_length=tokens)
    model = library(place)
    before, model.max_seq_length = model.max_seq_length, tokens
    try:
        np.testing.assert_allclose(encoder.encode(TEXTS), model.encode(TEXTS), atol=CLOSE)
        counts = np.array([len(model.tokenizer(text, truncation=False)["input_ids"]) for text in TEXTS])
    finally:
        model.max_seq_length = before
    done = []
    assert encoder.run(TEXTS, done.append).truncated.tolist() == (counts > tokens).tolist() and sum(done) == len(TEXTS)
    assert encoder.spec.fingerprint() != ours(place).spec.fingerprint()
    assert encoder.spec.max_length == tokens


@pytest.mark.parametrize("words", [("library", "default prompt"), ("native", "passage alone"), "router", "lengths"])
def test_a_role_is_encode_query_or_encode_document(folder, tmp_path, words):
    if words == "router":
        KINDS["router of queries and documents"].build(place := tmp_path / "f")
    elif words == "lengths":
        place = declare(transformer(tmp_path / "f"), pooling("mean"), stored={"query_length": 5, "document_length": 8})
    else:
        place = folder(*words)
    encoder = ours(place)
    for role, length in (("query", 5), ("document", 8)):
        turned = encoder.for_role(role)
        expected = getattr(library(place), f"encode_{role}")(TEXTS, show_progress_bar=False)
        np.testing.assert_allclose(turned.encode(TEXTS), expected, atol=CLOSE)
        np.testing.assert_allclose(encoder.encode(TEXTS), published(place, TEXTS), atol=CLOSE)  # as before
        if turned.spec.fingerprint() == encoder.spec.fingerprint():
            np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=CLOSE)
        if words == "lengths":
            counts = [len(library(place).tokenizer(text, truncation=False)["input_ids"]) for text in TEXTS]
            assert turned.run(TEXTS).truncated.tolist() == [count > length for count in counts]
            assert turned.spec.max_length == length and max(counts) > length
