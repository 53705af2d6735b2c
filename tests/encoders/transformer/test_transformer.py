"""The transformer encoder: every pooler, limits, company of texts, memory, and what it refuses to load."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loaded import loaded
from model_folders import declare, pooling
from safetensors.torch import load_file, save_file
from tiny_models import MINILM, build, sentences
from transformers import AutoModel, AutoTokenizer

from stsbench.encoders.cache.encode import cache_key
from stsbench.encoders.forward.pooling import POOLERS
from stsbench.encoders.load import load_encoder
from stsbench.encoders.transformer import transformer
from stsbench.errors import EncoderError

TEXTS = sentences(60)
TEMPLATE = "the {} means [MASK] ."


@pytest.fixture(scope="module")
def encoder(folder):
    return loaded(folder, pooler="mean", batch_tokens=100)


def reference(folder, pooler, texts):
    """Vectors as SimCSE's evaluation.py computes them: one padded batch, masked means."""
    tok = AutoTokenizer.from_pretrained(folder)
    tok.model_max_length = 64
    if pooler == "mask":
        texts = [TEMPLATE.replace("{}", text).replace("[MASK]", tok.mask_token) for text in texts]
    batch = tok(texts, padding=True, truncation=True, max_length=64, return_tensors="pt")
    model = AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        out = model(batch["input_ids"], attention_mask=batch["attention_mask"], output_hidden_states=True)
    mask, hidden = batch["attention_mask"].unsqueeze(-1), out.hidden_states

    def mean(state):
        return (state * mask).sum(1) / mask.sum(1)

    return {
        "cls": lambda: hidden[-1][:, 0],
        "cls+dense": lambda: out.pooler_output,
        "mean": lambda: mean(hidden[-1]),
        "cls_avg": lambda: (hidden[-1][:, 0] + mean(hidden[-1])) / 2,
        "first_last:embeddings": lambda: mean((hidden[0] + hidden[-1]) / 2),
        "first_last:layer1": lambda: mean((hidden[1] + hidden[-1]) / 2),
        "last2": lambda: mean((hidden[-1] + hidden[-2]) / 2),
        "max": lambda: hidden[-1].masked_fill(mask == 0, -1e9).max(1).values,
        "last": lambda: hidden[-1][torch.arange(len(hidden[-1])), batch["attention_mask"].sum(1) - 1],
        "weighted_mean": lambda: torch.stack([
            sum((i + 1) * state[i] for i in range(n)) / (n * (n + 1) / 2)
            for state, n in zip(hidden[-1], batch["attention_mask"].sum(1).tolist(), strict=True)
        ]),
        "mask": lambda: hidden[-1][batch["input_ids"] == tok.mask_token_id],
    }[pooler]().numpy()


@pytest.mark.parametrize(("family", "attention"), [("bert", "varlen"), ("roberta", "padded"), ("roberta", "eager")])
def test_every_pooler_equals_transformers(tmp_path, family, attention):
    build(tmp_path, family)
    for pooler in POOLERS:
        if pooler in ("text_cnn", "mean_cnn"):  # learned: tests/training/export/test_text_cnn_export.py
            continue
        template = TEMPLATE if pooler == "mask" else None
        encoder = loaded(tmp_path, pooler=pooler, template=template, attention=attention, batch_tokens=100)
        encoded = encoder.run(TEXTS)
        assert encoded.vectors.dtype == np.float32
        assert not encoded.truncated.any()
        np.testing.assert_allclose(encoded.vectors, reference(tmp_path, pooler, TEXTS), atol=1e-5, err_msg=pooler)


@pytest.mark.parametrize(("family", "engine"), [
    ("bert", "our own forward pass without padding"), ("distilbert", "our own forward pass without padding"),
    ("mpnet", "our own forward pass without padding"),
])
def test_what_runs_the_model_is_known_before_a_run(tmp_path, family, engine):
    encoder = loaded(build(tmp_path, family), pooler="mean", batch_tokens=100)
    assert encoder.engine == "our own forward pass"
    encoder.ready()
    assert encoder.engine == engine and encoder.spec.max_length == 64
    np.testing.assert_allclose(encoder.encode(TEXTS), reference(tmp_path, "mean", TEXTS), atol=1e-5)
    forced = loaded(tmp_path, pooler="mean", attention="padded")
    forced.ready()
    assert forced.engine == "our own forward pass, padded, because --attention padded says so"
    assert forced.spec.fingerprint() == encoder.spec.fingerprint()
    asked = [load_encoder(str(tmp_path), pooler="mean", attention=attention) for attention in ("auto", "padded", "eager")]
    assert len(set(map(cache_key, asked))) == 3  # who doubts a pass is not answered with vectors that it made
    forced = loaded(tmp_path, pooler="mean", attention="varlen")
    if engine.endswith("without padding"):
        forced.ready()
    else:
        with pytest.raises(EncoderError, match=r"--attention varlen: .* has no pass without padding, because its attention"):
            forced.ready()


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=30, unique=True), st.integers(1, 400))
def test_company_does_not_move_a_vector(encoder, texts, budget):
    encoder.budget = budget
    whole = {text: row for text, row in zip(TEXTS, encoder.run(TEXTS).vectors, strict=True)}
    encoder.budget = 77
    np.testing.assert_allclose(encoder.run(texts).vectors, [whole[text] for text in texts], atol=1e-5)


def test_texts_over_the_limit_are_cut_and_flagged(tmp_path):
    encoder = loaded(build(tmp_path, "roberta"), pooler="mean")
    assert encoder.spec.max_length == 64
    exact, longer = " ".join(["cat"] * 62), " ".join(["cat"] * 62 + ["dog"] * 9)
    encoded = encoder.run([exact, longer, "dog"])
    assert encoded.truncated.tolist() == [False, True, False]
    np.testing.assert_allclose(encoded.vectors[0], encoded.vectors[1], atol=1e-5)  # [SEP] is kept, the dogs are not


def test_a_long_text_never_loses_the_template(folder):
    encoder = loaded(folder, pooler="mask", template=TEMPLATE, max_length=10)
    encoded = encoder.run(["man " * 40, "man man man man"])
    assert encoded.truncated.tolist() == [True, False]  # [CLS] the man man man man means [MASK] . [SEP]
    np.testing.assert_allclose(encoded.vectors[0], encoded.vectors[1], atol=1e-5)


def test_out_of_memory_halves_the_budget_and_goes_on(folder, encoder, monkeypatch):
    encoder.budget = 100
    expected, real, failed = encoder.run(TEXTS).vectors, encoder._forward(), []

    def starved(ids, groups, wanted):
        if len(ids) > 60:
            failed.append(len(ids))
            raise torch.OutOfMemoryError("injected")
        return real(ids, groups, wanted)

    monkeypatch.setattr(encoder, "_forward", lambda: starved)
    done: list[int] = []
    np.testing.assert_allclose(encoder.run(TEXTS, done.append).vectors, expected, atol=1e-5)
    assert failed and encoder.budget <= 60 and sum(done) == len(TEXTS)

    def hopeless(ids, groups, wanted):
        raise torch.OutOfMemoryError("injected")

    monkeypatch.setattr(encoder, "_forward", lambda: hopeless)
    with pytest.raises(EncoderError, match=r"single text of .* does not fit"):
        encoder.run(TEXTS)


def test_chunks_and_duplicates(encoder, monkeypatch):
    encoder.budget = 1024
    expected = encoder.run(TEXTS).vectors
    monkeypatch.setattr(transformer, "_CHUNK", 7)
    done: list[int] = []
    np.testing.assert_allclose(encoder.run(TEXTS, done.append).vectors, expected, atol=1e-5)
    assert sum(done) == len(TEXTS)
    np.testing.assert_allclose(encoder.encode([*TEXTS, *TEXTS[::-1]])[len(TEXTS):], expected[::-1], atol=1e-5)
    assert encoder.run([]).vectors.shape == (0, 32)
    assert encoder.run([""]).vectors.shape == (1, 32)


@pytest.mark.parametrize(("dtype", "least"), [("bfloat16", 0.999), ("float16", 0.99999)])
def test_half_precision_is_near_and_recorded(folder, encoder, dtype, least):
    half = loaded(folder, pooler="mean", dtype=dtype)
    assert half.spec.dtype == dtype and half.model.dtype == getattr(torch, dtype)
    assert half.spec.fingerprint() != encoder.spec.fingerprint()
    ours, expected = half.run(TEXTS).vectors, encoder.run(TEXTS).vectors
    assert ours.dtype == np.float32 and not np.array_equal(ours, expected)
    cosines = (ours * expected).sum(1) / np.linalg.norm(ours, axis=1) / np.linalg.norm(expected, axis=1)
    assert cosines.min() > least


def _overflowing(folder, token):
    """BERT whose states of one token (all: None) pass what float16 holds, but for a bfloat16 or float32."""
    build(folder)
    tensors = load_file(folder / "model.safetensors")
    if token is None:
        tensors["encoder.layer.0.output.dense.bias"] += 1e5
    else:
        tensors["embeddings.LayerNorm.weight"][:] = 1
        tensors["embeddings.word_embeddings.weight"][token] *= 1e7
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("modules", [False, True])
def test_float16_that_overflows_says_what_to_do(tmp_path, modules):
    folder = _overflowing(tmp_path / "model", None)
    options = {"pooler": "mean"}
    if modules:  # run by sentence-transformers
        options = {}
        declare(folder, pooling("mean", "max", width=32))
    for dtype in ("float32", "bfloat16"):
        assert np.isfinite(load_encoder(str(folder), dtype=dtype, device="cpu", **options).encode(TEXTS[:4])).all()
    with pytest.raises(EncoderError, match=r"NaN or infinity for 2 of 2 texts, the first: 'A cat sleeps.'; float16 holds no "
                                           r"number above 65,504: use --dtype bfloat16 or float32$"):
        load_encoder(str(folder), dtype="float16", device="cpu", **options).encode(TEXTS[:4])


def test_one_text_that_overflows_in_float16_is_named(tmp_path):
    folder = tmp_path / "model"
    token = loaded(build(folder), pooler="mean").tokenizer.convert_tokens_to_ids("guitar")
    encoder = load_encoder(str(_overflowing(folder, token)), pooler="mean", dtype="float16", device="cpu")
    assert np.isfinite(encoder.encode(["the cat eats"])).all()
    with pytest.raises(EncoderError, match=r"for 1 of 2 texts, the first: 'the guitar'; float16 holds no number"):
        encoder.encode(["the cat", "the guitar"])


@pytest.mark.skipif(not MINILM.is_dir(), reason="needs ../shared/models/minilm-l6-fp16")
def test_minilm_equals_sentence_transformers():
    library = pytest.importorskip("sentence_transformers")
    texts = ["Her cello needs new strings.", "Ein Hund", "", "word " * 180, "x" * 5, "The stock fell 3.5% on Monday."]
    model = library.SentenceTransformer(str(MINILM), device="cpu", model_kwargs={"dtype": torch.float32})
    model.max_seq_length = 512
    ours = loaded(MINILM)
    assert (ours.pooler, ours.normalize) == ("mean", True)
    ours.ready()
    assert ours.engine.endswith("without padding")
    assert not ours.run(texts).truncated.any()  # 182 tokens: neither 128 nor 256 may act
    np.testing.assert_allclose(ours.encode(texts), model.encode(texts), atol=2e-6)
