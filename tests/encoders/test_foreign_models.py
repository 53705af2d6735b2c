"""Models in memory: a transformers model with its tokenizer, a SentenceTransformer, an encoder of mteb."""

import inspect
from dataclasses import fields

import numpy as np
import pytest
import torch
from test_foreign_callers import TEXTS, model_folder
from tiny_models import build
from transformers import AutoModel, AutoTokenizer

from stsbench import evaluate, load_encoder
from stsbench.data.fetch.mteb import undisturbed
from stsbench.encoders.base import EncoderOptions
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.cache.mteb import MtebEncoder
from stsbench.errors import EncoderError

ASKED = {"sample": True, "tasks": "STS-B", "resamples": 0, "no_cache": True}


def in_memory(folder):
    return AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize(("family", "pooler", "options"), [
    ("bert", "cls+dense", {"max_length": 9}), ("roberta", "first_last:layer1", {"normalize": True, "truncate_dim": 7}),
    ("bert", "mask", {"template": "{} means [MASK] .", "full_stop": True}), ("bert", "mean", {"prompt": "the cat "}),
])
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


def test_half_precision_in_memory_is_read_as_from_the_folder(tmp_path):
    folder = build(tmp_path / "model")
    model, tokenizer = in_memory(folder)
    model.half().train().save_pretrained(tmp_path / "half")
    tokenizer.save_pretrained(tmp_path / "half")
    expected = load_encoder(tmp_path / "half", pooler="mean", device="cpu").encode(TEXTS)
    np.testing.assert_array_equal(load_encoder((model, tokenizer), pooler="mean").encode(TEXTS), expected)
    assert model.training and model.dtype == torch.float16


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
    with pytest.raises(TypeError, match="poler"):
        load_encoder("minilm", poler="cls")


def test_a_fingerprint_of_the_user_s_own():
    encoder = load_encoder(lambda texts: [[len(text), 1] for text in texts], fingerprint="v1")
    assert encoder.cacheable and encoder.spec.options == {"fingerprint": "v1"}


def test_a_sentence_transformer_reads_roles_and_prompts_as_its_folder_does(tmp_path):
    library = pytest.importorskip("sentence_transformers")
    folder = model_folder(tmp_path / "model", "dot")
    theirs = library.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    wrapped, ours = load_encoder(theirs), load_encoder(folder, device="cpu")
    assert wrapped.prompts == ours.prompts and wrapped.similarity_fn_name == ours.similarity_fn_name == "dot"
    assert wrapped.device == theirs.device
    for call in ({}, {"prompt": "red "}, {"prompt": ""}, {"prompt_name": "query"}):
        np.testing.assert_allclose(wrapped.encode(TEXTS, **call), ours.encode(TEXTS, **call), atol=2e-6)
        np.testing.assert_allclose(wrapped.encode_query(TEXTS, **call), ours.encode_query(TEXTS, **call), atol=2e-6)
    np.testing.assert_allclose(wrapped.encode_document(TEXTS), ours.encode_document(TEXTS), atol=2e-6)
    query = wrapped.for_role("query")
    assert query.spec.fingerprint() != wrapped.spec.fingerprint() != wrapped.for_role(None, "red ").spec.fingerprint()
    theirs.prompts = {}
    plain = load_encoder(theirs)
    assert plain.for_role("query") is plain  # nothing is encoded twice


def test_an_encoder_of_mteb_is_measured_as_what_is_in_it(tmp_path):
    library = pytest.importorskip("sentence_transformers")
    folder = model_folder(tmp_path / "model")
    with undisturbed():
        from mteb.models import SentenceTransformerEncoderWrapper

        theirs = SentenceTransformerEncoderWrapper(
            library.SentenceTransformer(str(folder), device="cpu", local_files_only=True), "org/it"
        )
        encoder, ours = load_encoder(theirs, fingerprint="1"), load_encoder(folder, device="cpu")
        adapter = MtebEncoder(Embed(ours))
        about = {"hf_split": "test", "hf_subset": "default"}
        from mteb.tasks import STSBenchmarkSTS
        from mteb.types import PromptType

        about["task_metadata"] = STSBenchmarkSTS.metadata
        np.testing.assert_allclose(encoder.encode(TEXTS), adapter.encode([{"text": TEXTS}], **about), atol=2e-6)
        for role in ("query", "document"):
            expected = adapter.encode([{"text": TEXTS}], prompt_type=PromptType(role), **about)
            np.testing.assert_allclose(encoder.for_role(role).encode(TEXTS), expected, atol=2e-6)
        with pytest.raises(EncoderError, match="puts no prompt before a text"):
            encoder.encode(TEXTS, prompt="red ")
        assert evaluate(theirs, **ASKED).rows
    assert encoder.spec.name.startswith("python:mteb.models.") and encoder.cacheable
