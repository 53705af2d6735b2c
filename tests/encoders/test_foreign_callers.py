"""An encoder in a SentenceTransformer's place, and other people's models in an encoder's: the same numbers of the same
folder. `load_encoder(...)` handed to mteb.evaluate: the scores of the library's own model, or else of `to_mteb`."""

import inspect
import json
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from scipy.sparse import issparse
from tiny_models import add_modules, build, sentences
from transformers import AutoModel, AutoTokenizer

from stsbench import evaluate, load_encoder, to_mteb
from stsbench.data.fetch.mteb import undisturbed
from stsbench.encoders.base import EncoderOptions
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.cache.mteb import MtebEncoder
from stsbench.encoders.interface import Settings
from stsbench.encoders.traits import Traits
from stsbench.errors import EncoderError

library = pytest.importorskip("sentence_transformers")
from model_folders import declare, pooling, transformer  # noqa: E402
from registered_models import PROMPTS as TASK_PROMPTS  # noqa: E402
from registered_models import retrieval_task, scored_pairs, scores_of_mteb, similarity_task  # noqa: E402
from sentence_transformers.sentence_transformer import evaluation  # noqa: E402

TEXTS = [*sentences(40), "the cat sleeps", "the cat sleeps", ""]
PROMPTS = {"query": "the dog : ", "document": "a man : ", "other": "a "}


def model_folder(place, similarity="cosine"):
    add_modules(build(place), {"pooling_mode": "mean"}, extra=(), prompts=PROMPTS, default_prompt_name="other",
                similarity_fn_name=similarity)
    (place / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 64}))
    return place


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Our encoder of a folder, and sentence-transformers' own."""
    return loaded(model_folder(tmp_path_factory.mktemp("prompts")))


def loaded(folder):
    return (load_encoder(str(folder), device="cpu", offline=True),
            library.SentenceTransformer(str(folder), device="cpu", local_files_only=True))


CALLS = [
    {}, {"prompt_name": "query"}, {"prompt": "red "}, {"prompt": ""}, {"batch_size": 3},
    {"truncate_dim": 5, "normalize_embeddings": True}, {"truncate_dim": 32}, {"device": torch.device("cpu")},
    {"precision": "float32"}, {"precision": None, "output_value": "sentence_embedding"},
    {"show_progress_bar": False, "pool": None, "chunk_size": None}, {"convert_to_tensor": True},
    {"convert_to_numpy": False}, {"convert_to_tensor": True, "convert_to_numpy": False},
]
INPUTS = [TEXTS[-4:], TEXTS[0], np.array(TEXTS[:3])]


def test_each_argument_means_what_it_means_there(pair):
    methods = ["encode", "encode_query", "encode_document"]
    for turn, call in enumerate([{}, {}, *CALLS]):
        method, inputs = methods[(turn + turn // 3) % 3], INPUTS[turn % 3]
        result, expected = (getattr(model, method)(inputs, **call) for model in pair)
        assert type(result) is type(expected), call
        if isinstance(expected, list):
            assert isinstance(result[0], torch.Tensor)
            result, expected = torch.stack(result), torch.stack(expected)
        assert result.dtype == expected.dtype and result.shape == expected.shape, call
        np.testing.assert_allclose(result, expected, atol=2e-6, err_msg=str(call))


def test_arguments_stand_in_the_library_s_order(pair):
    ours, theirs = (list(inspect.signature(type(model).encode).parameters) for model in pair)
    assert [name for name in ours if name not in ("sentences", "task")] == [name for name in theirs if name != "kwargs"]
    defaults = [{name: parameter.default for name, parameter in inspect.signature(type(model).encode).parameters.items()}
                for model in pair]
    del defaults[0]["sentences"], defaults[0]["task"], defaults[0]["inputs"], defaults[1]["inputs"], defaults[1]["kwargs"]
    assert defaults[0] == defaults[1]
    assert set(Settings.__annotations__) < set(ours)
    np.testing.assert_array_equal(pair[0].encode(sentences=TEXTS), pair[0].encode(TEXTS))


def test_a_function_knows_no_prompts_and_has_the_fingerprint_of_the_user_s_own():
    encoder = load_encoder(lambda texts: [[len(text), 1] for text in texts], fingerprint="v1")
    assert encoder.cacheable and encoder.spec.options == {"fingerprint": "v1"}
    assert encoder.encode_query(["abc"]).tolist() == encoder.encode("abc", prompt="")[None].tolist() == [[3, 1]]
    assert encoder.encode_query(["abc"], prompt_name="query").tolist() == [[3, 1]]


def test_what_it_says_of_itself(pair):
    ours, theirs = pair
    assert ours.device == theirs.device and ours.similarity_fn_name == theirs.similarity_fn_name == "cosine"
    assert ours.get_embedding_dimension() == ours.get_sentence_embedding_dimension() == 32
    assert theirs.get_embedding_dimension() == 32
    assert load_encoder("lexical:token-set").device == torch.device("cpu")
    stays = load_encoder(ours.spec.name, device="cpu", offline=True, prompt="man ")  # whatever is asked for
    result, expected = stays.encode_query(TEXTS, prompt_name="query"), theirs.encode(TEXTS, prompt="man ")
    np.testing.assert_allclose(result, expected, atol=2e-6)


def test_a_bar_is_shown_when_it_is_asked_for(pair, capfd):
    pair[0].encode(TEXTS, show_progress_bar=True)
    assert f"{len(set(TEXTS))}/{len(set(TEXTS))}" in capfd.readouterr().err
    pair[0].encode(TEXTS)
    pair[0].encode([], show_progress_bar=True)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["cosine", "dot", "euclidean", "manhattan"])
def test_similarities_are_the_library_s(pair, monkeypatch, name):
    ours, theirs = pair
    a, b = theirs.encode(TEXTS), theirs.encode_query(TEXTS)
    monkeypatch.setattr(ours, "traits", replace(ours.traits, similarity=name))
    monkeypatch.setattr(theirs, "similarity_fn_name", name)
    for first, second in ((a, b[:7]), (torch.tensor(a), torch.tensor(b)), (list(a), list(torch.tensor(b))), (a[0], b)):
        result, expected = ours.similarity(first, second), theirs.similarity(first, second)
        assert result.dtype == expected.dtype
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ours.similarity_pairwise(a, b), theirs.similarity_pairwise(a, b), rtol=1e-5, atol=1e-6)
    with pytest.raises(EncoderError):
        ours.similarity_pairwise(a, b[:7])


@pytest.mark.parametrize("name", ["cosine", "dot", "euclidean", "manhattan"])
def test_sparse_vectors_are_compared_though_the_vocabulary_has_grown(name):
    encoder = load_encoder("lexical:token-set")
    encoder.traits = Traits(similarity=name)
    first, second = encoder.encode(["a cat", "a dog runs"]), encoder.encode(["the cat in a park", "a dog runs"])
    assert issparse(first) and first.shape[1] < second.shape[1]
    wide = np.zeros((2, second.shape[1]), np.float32)
    wide[:, : first.shape[1]] = first.toarray()
    dense = load_encoder(lambda texts: wide)
    dense.traits = Traits(similarity=name)
    expected = dense.similarity(wide, second.toarray())
    np.testing.assert_allclose(encoder.similarity(first, second), expected, atol=1e-6)
    np.testing.assert_allclose(encoder.similarity_pairwise(first, second), expected.diagonal(), atol=1e-6)
    np.testing.assert_allclose(abs(encoder.encode(["a cat"], normalize_embeddings=True)).power(2).sum(), 1, rtol=1e-6)


def test_the_library_s_evaluators_find_the_same(tmp_path):
    models = loaded(model_folder(tmp_path / "model", "dot"))
    scores = np.random.default_rng(1).uniform(size=20)
    queries = {f"q{i}": text for i, text in enumerate(TEXTS[:5])}
    corpus = {f"d{i}": text for i, text in enumerate(TEXTS)}
    evaluators = [
        evaluation.EmbeddingSimilarityEvaluator(TEXTS[:20], TEXTS[20:40], scores, truncate_dim=8),
        evaluation.InformationRetrievalEvaluator(queries, corpus, {f"q{i}": {f"d{i + 5}", f"d{i + 11}"} for i in range(5)}),
        evaluation.BinaryClassificationEvaluator(TEXTS[:20], TEXTS[20:40], [0, 1] * 10)]
    for evaluator in evaluators:
        result, expected = (evaluator(model) for model in models)
        assert len(expected) > 0 and result == pytest.approx(expected, rel=1e-6, abs=1e-6)


# ---- models in memory: a transformers model with its tokenizer, a SentenceTransformer, an encoder of mteb

ASKED = {"sample": True, "tasks": "STS-B", "resamples": 0, "no_cache": True}


def in_memory(folder):
    return AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize(("family", "pooler", "options"), [
    ("bert", "cls+dense", {"max_length": 9, "normalize": True, "truncate_dim": 7}),
    ("roberta", "mask", {"template": "{} means [MASK] .", "full_stop": True})])
def test_a_model_with_its_tokenizer_is_the_folder_that_it_was_saved_to(tmp_path, capfd, family, pooler, options):
    folder = build(tmp_path / "model", family)
    pair = in_memory(folder)
    capfd.readouterr()
    encoder = load_encoder(pair, pooler=pooler, device="cpu", **options)
    assert capfd.readouterr() == ("", "")
    from_folder = load_encoder(folder, pooler=pooler, device="cpu", **options)
    np.testing.assert_array_equal(encoder.encode(TEXTS), from_folder.encode(TEXTS))
    assert encoder.spec.name == f"{type(pair[0]).__name__} of model" and str(tmp_path) not in repr(encoder.spec)
    assert encoder.dimension == from_folder.dimension and encoder.device == torch.device("cpu")


def test_its_identity_is_that_of_its_weights_and_its_tokenizer(tmp_path):
    folder = build(tmp_path / "model")
    (model, tokenizer), again = in_memory(folder), in_memory(folder)
    model.config._name_or_path = "elsewhere"
    first = load_encoder((model, tokenizer), pooler="mean")
    vectors = first.encode(TEXTS)
    again[1](TEXTS, truncation=True, padding=True, max_length=4)  # which the tokenizer keeps
    assert load_encoder(again, pooler="mean").spec.fingerprint() == first.spec.fingerprint()
    with torch.no_grad():
        next(model.parameters()).mul_(1.5)
    changed = load_encoder((model, tokenizer), pooler="mean")
    assert changed.spec.fingerprint() != first.spec.fingerprint()
    assert np.abs(changed.encode(TEXTS) - vectors).max() > 1e-3
    np.testing.assert_array_equal(first.encode(TEXTS), vectors)  # a copy of what it was
    tokenizer.add_tokens(["guitars"])
    assert load_encoder((model, tokenizer), pooler="mean").spec.fingerprint() != changed.spec.fingerprint()


def test_load_encoder_has_the_options_of_the_command_by_name():
    parameters = inspect.signature(load_encoder).parameters
    named = {name: parameter.default for name, parameter in parameters.items() if parameter.kind == parameter.KEYWORD_ONLY}
    assert named.pop("fingerprint", 0) is None
    assert named == {entry.name: entry.default for entry in fields(EncoderOptions) if entry.name != "model"}


def test_a_sentence_transformer_reads_roles_and_prompts_as_its_folder_does(tmp_path):
    folder = model_folder(tmp_path / "model", "dot")
    theirs = library.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    wrapped, ours = load_encoder(theirs), load_encoder(folder, device="cpu")
    assert wrapped.prompts == ours.prompts and wrapped.similarity_fn_name == ours.similarity_fn_name == "dot"
    assert wrapped.device == theirs.device
    for method, call in (("encode", {}), ("encode", {"prompt": "red "}), ("encode_query", {"prompt": ""}),
                         ("encode_document", {})):
        result, expected = (getattr(encoder, method)(TEXTS[-9:], **call) for encoder in (wrapped, ours))
        np.testing.assert_allclose(result, expected, atol=2e-6)
    query = wrapped.for_role("query")
    assert query.spec.fingerprint() != wrapped.spec.fingerprint() != wrapped.for_role(None, "red ").spec.fingerprint()
    theirs.prompts = {}
    plain = load_encoder(theirs)
    assert plain.for_role("query") is plain  # nothing is encoded twice


def test_an_encoder_of_mteb_is_measured_as_what_is_in_it(tmp_path):
    folder = model_folder(tmp_path / "model")
    with undisturbed():
        from mteb.models import SentenceTransformerEncoderWrapper
        from mteb.tasks import STSBenchmarkSTS
        from mteb.types import PromptType

        theirs = SentenceTransformerEncoderWrapper(
            library.SentenceTransformer(str(folder), device="cpu", local_files_only=True), "org/it")
        encoder, adapter = load_encoder(theirs, fingerprint="1"), MtebEncoder(Embed(load_encoder(folder, device="cpu")))
        about = {"hf_split": "test", "hf_subset": "default", "task_metadata": STSBenchmarkSTS.metadata}
        np.testing.assert_allclose(encoder.encode(TEXTS), adapter.encode([{"text": TEXTS}], **about), atol=2e-6)
        for role in ("query", "document"):
            expected = adapter.encode([{"text": TEXTS}], prompt_type=PromptType(role), **about)
            np.testing.assert_allclose(encoder.for_role(role).encode(TEXTS), expected, atol=2e-6)
        assert evaluate(theirs, **ASKED).rows
    assert encoder.spec.name.startswith("python:mteb.models.") and encoder.cacheable


def test_mteb_has_the_scores_of_a_folder_with_prompts(tmp_path):
    declare(transformer(tmp_path / "model"), pooling("mean"), settings={"prompts": TASK_PROMPTS})
    encoder = load_encoder(tmp_path / "model", device="cpu", offline=True)
    theirs = library.SentenceTransformer(str(tmp_path / "model"), device="cpu", local_files_only=True)
    with undisturbed() as package:
        assert isinstance(encoder, package.EncoderProtocol)
        assert not isinstance(encoder, package.SearchProtocol | package.CrossEncoderProtocol)
        tasks = [similarity_task(), retrieval_task()]
        direct, expected = (scores_of_mteb(package, model, tasks) for model in (encoder, theirs))
    for one, two in zip(direct, expected, strict=True):
        assert one["main_score"] == pytest.approx(two["main_score"], abs=1e-6) and one == pytest.approx(two, abs=1e-5)


def test_mteb_has_the_scores_of_encoders_without_a_model(tmp_path):
    first, second, _ = scored_pairs()
    texts = [*first, *second]
    np.savez(tmp_path / "v.npz", texts=np.array(texts), vectors=np.random.default_rng(1).normal(size=(len(texts), 8)))
    with undisturbed() as package:
        for name in ("lexical:token-set", f"vectors:{tmp_path / 'v.npz'}"):
            encoder = load_encoder(name)
            both = (encoder, to_mteb(encoder))
            direct, wrapped = (scores_of_mteb(package, model, [similarity_task()])[0] for model in both)
            assert direct == pytest.approx(wrapped, abs=1e-6) and direct["spearman"] != 0


def test_mteb_s_result_cache_knows_it_by_its_fingerprint():
    encoder = load_encoder("lexical:token-set")
    meta = encoder.mteb_model_meta
    assert meta.name == "stsbench/lexical-token-set" and meta.revision == f"stsbench-{encoder.spec.fingerprint()}"
    unnamed = load_encoder(lambda texts: np.ones((len(texts), 2)))
    assert unnamed.mteb_model_meta.revision != unnamed.mteb_model_meta.revision  # never answered from there
