"""The transformer encoder: every pooler, limits, company of texts, memory, and what it refuses to load."""

import json

import numpy as np
import pytest
import torch
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

TEXTS = sentences(24)
TEMPLATE = "the {} means [MASK] ."


@pytest.fixture(scope="module")
def encoder(folder):
    return loaded(folder, pooler="mean", batch_tokens=100)


def references(folder):
    """pooler -> vectors of TEXTS as SimCSE's evaluation.py computes them: one padded batch, masked means."""
    tok, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    filled = [TEMPLATE.replace("{}", text).replace("[MASK]", tok.mask_token) for text in TEXTS]
    plain, masked = (
        tok(texts, padding=True, truncation=True, max_length=64, return_tensors="pt") for texts in (TEXTS, filled)
    )
    with torch.no_grad():
        out = model(plain["input_ids"], attention_mask=plain["attention_mask"], output_hidden_states=True)
        at_mask = model(masked["input_ids"], attention_mask=masked["attention_mask"]).last_hidden_state
    mask, hidden, last = plain["attention_mask"].unsqueeze(-1), out.hidden_states, out.hidden_states[-1]
    lengths = plain["attention_mask"].sum(1).tolist()

    def mean(state):
        return (state * mask).sum(1) / mask.sum(1)

    return {
        "cls": last[:, 0],
        "cls+dense": out.get("pooler_output"),
        "mean": mean(last),
        "cls_avg": (last[:, 0] + mean(last)) / 2,
        "first_last:embeddings": mean((hidden[0] + last) / 2),
        "first_last:layer1": mean((hidden[1] + last) / 2),
        "last2": mean((last + hidden[-2]) / 2),
        "max": last.masked_fill(mask == 0, -1e9).max(1).values,
        "last": torch.stack([state[n - 1] for state, n in zip(last, lengths, strict=True)]),
        "weighted_mean": torch.stack([
            sum((i + 1) * state[i] for i in range(n)) / (n * (n + 1) / 2) for state, n in zip(last, lengths, strict=True)
        ]),
        "mask": at_mask[masked["input_ids"] == tok.mask_token_id],
    }


@pytest.mark.parametrize(("family", "attention"), [("bert", "varlen"), ("roberta", "eager")])
def test_every_pooler_equals_transformers(tmp_path, family, attention):
    expected = references(build(tmp_path, family))
    assert {*expected} == {*POOLERS} - {"text_cnn", "mean_cnn"}  # learned: tests/training/runs/test_token_pooler_export.py
    for pooler, vectors in expected.items():
        template = TEMPLATE if pooler == "mask" else None
        encoder = loaded(tmp_path, pooler=pooler, template=template, attention=attention, batch_tokens=100)
        encoded = encoder.run(TEXTS)
        assert encoded.vectors.dtype == np.float32
        assert not encoded.truncated.any()
        np.testing.assert_allclose(encoded.vectors, vectors, atol=1e-5, err_msg=pooler)


@pytest.mark.parametrize("family", ["distilbert", "mpnet"])
def test_what_runs_the_model_is_known_before_a_run(tmp_path, family):
    encoder = loaded(build(tmp_path, family), pooler="mean", batch_tokens=100)
    assert encoder.engine == "our own forward pass"
    encoder.ready()
    assert encoder.engine == "our own forward pass without padding" and encoder.spec.max_length == 64
    np.testing.assert_allclose(encoder.encode(TEXTS), references(tmp_path)["mean"], atol=1e-5)
    forced = loaded(tmp_path, pooler="mean", attention="padded")
    forced.ready()
    assert forced.engine == "our own forward pass, padded, because --attention padded says so"
    assert forced.spec.fingerprint() == encoder.spec.fingerprint()
    asked = [load_encoder(str(tmp_path), pooler="mean", attention=attention) for attention in ("auto", "padded", "eager")]
    assert len(set(map(cache_key, asked))) == 3  # who doubts a pass is not answered with vectors that it made


def test_company_does_not_move_a_vector(encoder):
    encoder.budget = 77
    whole = encoder.run(TEXTS).vectors
    for budget, chosen in ((1, [3]), (30, [5, 2, 9, 0]), (400, [11, 7, 20, 1, 15, 4])):
        encoder.budget = budget
        np.testing.assert_allclose(encoder.run([TEXTS[i] for i in chosen]).vectors, whole[chosen], atol=1e-5)


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


@pytest.mark.parametrize("modules", [False, True])
def test_float16_that_overflows_says_what_to_do(tmp_path, modules):
    folder = build(tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    tensors["encoder.layer.0.output.dense.bias"] += 1e5  # more than float16 holds
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    options = {"pooler": "mean"}
    if modules:  # run by sentence-transformers
        options = {}
        declare(folder, pooling("mean", "max", width=32))
    assert np.isfinite(load_encoder(str(folder), dtype="bfloat16", device="cpu", **options).encode(TEXTS[:4])).all()
    with pytest.raises(EncoderError, match=r"NaN or infinity for 2 of 2 texts, the first: 'A cat sleeps.'; float16 holds no "
                                           r"number above 65,504: use --dtype bfloat16 or float32$"):
        load_encoder(str(folder), dtype="float16", device="cpu", **options).encode(TEXTS[:4])


@pytest.mark.skipif(not MINILM.is_dir(), reason="needs ../shared/models/minilm-l6-fp16")
def test_minilm_equals_sentence_transformers():
    library = pytest.importorskip("sentence_transformers")
    texts = ["Ein Hund", "", "word " * 180, "The stock fell 3.5% on Monday."]
    model = library.SentenceTransformer(str(MINILM), device="cpu", model_kwargs={"dtype": torch.float32})
    model.max_seq_length = 512
    ours = loaded(MINILM)
    assert (ours.pooler, ours.normalize) == ("mean", True)
    ours.ready()
    assert ours.engine.endswith("without padding")
    assert not ours.run(texts).truncated.any()  # 182 tokens: neither 128 nor 256 may act
    np.testing.assert_allclose(ours.encode(texts), model.encode(texts), atol=2e-6)


# ---- with its dropout on, against transformers' own training mode


@pytest.mark.parametrize("pooler", ["mean", "first_last:layer1"])
def test_a_vector_is_that_of_transformers_in_training(folder, pooler):
    text = sentences(1)[0]
    got = load_encoder(str(folder), pooler=pooler).with_dropout(7).run([text]).vectors
    model, inputs = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")
    torch.manual_seed(7)
    with torch.no_grad():
        states = model.train()(**inputs, output_hidden_states=True).hidden_states
    expected = states[-1][0].mean(0) if pooler == "mean" else (states[1][0].mean(0) + states[-1][0].mean(0)) / 2
    assert np.abs(got[0] - expected.numpy()).max() < 1e-5


def test_every_call_draws_other_masks_and_the_same_seed_the_same(folder):
    texts = sentences(5)
    plain = load_encoder(str(folder), pooler="mean")
    before, state = plain.run(texts).vectors, torch.get_rng_state()
    left, right = plain.with_dropout(1), plain.with_dropout(1)
    first = left.run(texts).vectors
    assert np.array_equal(first, right.run(texts).vectors)
    assert np.array_equal(left.run(texts).vectors, right.run(texts).vectors)
    assert np.abs(first - right.run(texts).vectors).max() > 1e-3
    assert np.abs(first - plain.with_dropout(2).run(texts).vectors).max() > 1e-3
    twice = left.run([texts[0], texts[0]]).vectors
    assert np.abs(twice[0] - twice[1]).max() > 1e-3
    assert torch.equal(torch.get_rng_state(), state)
    assert np.array_equal(plain.run(texts).vectors, before)  # the model is left without


def test_a_model_whose_rates_are_zero_is_refused(tmp_path):
    still = build(tmp_path / "still")
    config = json.loads((still / "config.json").read_text("utf-8"))
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (still / "config.json").write_text(json.dumps(config), "utf-8")
    with pytest.raises(EncoderError, match=r"still has no dropout: its config.json sets no rate above 0$"):
        load_encoder(str(still), pooler="mean").with_dropout(0)
