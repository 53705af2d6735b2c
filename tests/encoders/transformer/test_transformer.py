"""The transformer encoder: every pooler, limits, memory, and what it refuses to load. Texts are tokenised in a thread while
a device computes: the vectors, the errors and the waits that come of it."""

import threading
from types import SimpleNamespace
from unittest.mock import Mock, call

import numpy as np
import pytest
import torch
from live_models import by_hand
from loaded import loaded
from model_folders import declare, pooling
from pretend_device import pretend_device
from safetensors.torch import load_file, save_file
from tiny_models import MINILM, build, sentences
from transformers import AutoModel, AutoTokenizer

from stsbench.encoders.cache.cache import EmbeddingCache
from stsbench.encoders.cache.encode import cache_key, encode_cached
from stsbench.encoders.forward import attention
from stsbench.encoders.forward.pooling import POOLERS
from stsbench.encoders.load import load_encoder
from stsbench.encoders.transformer import transformer
from stsbench.errors import EncoderError

TEXTS = sentences(9)
TEMPLATE = "the {} means [MASK] ."


@pytest.fixture(scope="module")
def encoder(folder):
    return loaded(folder, pooler="mean", batch_tokens=100)


def reference(folder, pooler):
    """Vectors of TEXTS from transformers itself, one text at a time."""
    model, tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    if pooler != "mask":
        return by_hand(SimpleNamespace(model=model, tokenizer=tokenizer, pooler=pooler, dense=model.pooler.dense), TEXTS)
    rows = []
    for text in TEXTS:
        filled = TEMPLATE.replace("[MASK]", tokenizer.mask_token).format(text)
        inputs = tokenizer(filled, truncation=False, padding=False, return_tensors="pt")
        at = inputs["input_ids"][0].tolist().index(tokenizer.mask_token_id)
        rows.append(model.eval()(**inputs).last_hidden_state[0, at].detach())
    return np.stack(rows)


@pytest.mark.parametrize(("family", "attention", "poolers"), [
    ("bert", "varlen", {*POOLERS} - {"text_cnn", "mean_cnn"}),  # learned: training/runs/test_prompt_export.py
    ("roberta", "eager", {"max", "mask"})])
def test_every_pooler_equals_transformers(tmp_path, family, attention, poolers):
    build(tmp_path, family)
    for pooler in sorted(poolers):
        template = TEMPLATE if pooler == "mask" else None
        encoded = loaded(tmp_path, pooler=pooler, template=template, attention=attention, batch_tokens=100).run(TEXTS)
        assert encoded.vectors.dtype == np.float32
        assert not encoded.truncated.any()
        np.testing.assert_allclose(encoded.vectors, reference(tmp_path, pooler), atol=1e-5, err_msg=pooler)


def test_what_runs_the_model_is_known_before_a_run(tmp_path):
    encoder = loaded(build(tmp_path, "mpnet"), pooler="mean", batch_tokens=100)
    assert encoder.engine == "our own forward pass"
    encoder.ready()
    assert encoder.engine == "our own forward pass without padding" and encoder.spec.max_length == 64
    np.testing.assert_allclose(encoder.encode(TEXTS), reference(tmp_path, "mean"), atol=1e-5)
    forced = loaded(tmp_path, pooler="mean", attention="padded")
    forced.ready()
    assert forced.engine == "our own forward pass, padded, because --attention padded says so"
    assert forced.spec.fingerprint() == encoder.spec.fingerprint()
    asked = [load_encoder(str(tmp_path), pooler="mean", attention=attention) for attention in ("auto", "padded", "eager")]
    assert len(set(map(cache_key, asked))) == 3  # who doubts a pass is not answered with vectors that it made


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

    hopeless = Mock(side_effect=torch.OutOfMemoryError("injected"))
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
    options = {} if modules else {"pooler": "mean"}
    if modules:  # run by sentence-transformers
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


# ---- a thread ahead of a device

MORE_TEXTS = [*sentences(20), ""]


@pytest.fixture
def ahead(folder, monkeypatch):
    """Tokenises 4 texts at a time beside the CPU."""
    monkeypatch.setattr(transformer, "_CHUNK", 4)
    monkeypatch.setattr(transformer, "_CHUNK_AHEAD", 4)
    made = loaded(folder, pooler="mean", batch_tokens=60, device="cpu")
    made.ready()
    assert not made.looks_ahead
    made.looks_ahead = True
    return made


def no_thread():
    return not [thread for thread in threading.enumerate() if thread.name.startswith("stsbench-ahead")]


def wrapped(ahead, monkeypatch, before):
    """`before(number of the call)` runs before each chunk is tokenised; returns the texts of each so far."""
    real, chunks = ahead.tokeniser, []

    def tokenise(texts):
        chunks.append(texts)
        before(len(chunks))
        return real(texts)

    monkeypatch.setattr(ahead, "tokeniser", tokenise)
    return chunks


def test_vectors_are_bit_for_bit_those_without_a_thread(folder, ahead):
    options = {"pooler": "mask", "template": "the {} means [MASK] .", "max_length": 9}
    ahead = loaded(folder, batch_tokens=60, **options)
    ahead.looks_ahead = False
    expected, counts = ahead.run(MORE_TEXTS), []
    ahead.looks_ahead = True
    encoded = ahead.run(MORE_TEXTS, counts.append)
    assert np.array_equal(encoded.vectors, expected.vectors) and np.array_equal(encoded.truncated, expected.truncated)
    assert sum(counts) == len(MORE_TEXTS) and encoded.truncated.any() and no_thread()


def test_the_next_texts_are_tokenised_while_the_first_are_computed(ahead, monkeypatch):
    second, calls = threading.Event(), []
    chunks = wrapped(ahead, monkeypatch, lambda number: second.set() if number == 2 else None)
    real = ahead._attempt

    def attempt(*arguments):
        assert second.wait(20)
        calls.append(len(chunks))
        return real(*arguments)

    monkeypatch.setattr(ahead, "_attempt", attempt)
    ahead.run(MORE_TEXTS)
    assert calls[0] == 2 and max(np.diff(calls)) <= 2  # no further ahead: memory is bounded
    assert len(chunks) == 6


@pytest.mark.parametrize(("threaded", "error"), [(False, ValueError("any")), (True, EncoderError("of the tokenizer")),
                                                 (True, KeyboardInterrupt())])
def test_an_error_in_the_thread_is_the_error_of_the_run(ahead, monkeypatch, threaded, error):
    def fail(number):
        if number == 3:
            raise error

    chunks = wrapped(ahead, monkeypatch, fail)
    ahead.looks_ahead = threaded
    with pytest.raises(type(error)) as caught:
        ahead.run(MORE_TEXTS)
    assert caught.value is error and len(chunks) <= 4 and no_thread()
    monkeypatch.setattr(ahead, "_attempt", Mock(side_effect=error))  # what stops the pass stops the thread
    before = len(chunks)
    with pytest.raises(type(error)):
        ahead.run(MORE_TEXTS)
    assert len(chunks) - before <= 2 and no_thread()


def test_a_device_is_handed_more_texts_at_once_and_waited_for_once_for_all_their_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(transformer, "_CHUNK_AHEAD", 16)
    monkeypatch.setattr("stsbench.encoders.cache.encode.CHUNK", 1)
    sizes, real = [], transformer.TransformerEncoder.run
    monkeypatch.setattr(transformer.TransformerEncoder, "run",
                        lambda self, texts, *more: sizes.append(len(texts)) or real(self, texts, *more))
    folder = build(tmp_path / "model", "roberta")
    on_cpu = load_encoder(str(folder), pooler="mean", device="cpu")
    expected = encode_cached(on_cpu, MORE_TEXTS, EmbeddingCache(tmp_path / "cpu")).vectors
    assert max(sizes) == 1
    with pretend_device() as pretended:
        ahead = load_encoder(str(folder), pooler="mean", device="pretend:0", batch_tokens=100)
        ahead.ready()
        sizes.clear(), pretended.waits.clear()
        vectors = encode_cached(ahead, MORE_TEXTS, EmbeddingCache(tmp_path / "pretend")).vectors
        assert ahead.built.engine.endswith("without padding") and ahead.built.looks_ahead
        assert sizes == [16, len(MORE_TEXTS) - 16] and pretended.waits == {"copy to the CPU": 2}
        again = load_encoder(str(folder), pooler="mean", device="pretend:0", batch_tokens=100)
        stored = encode_cached(again, MORE_TEXTS, EmbeddingCache(tmp_path / "pretend")).vectors
        assert np.array_equal(stored, vectors) and pretended.waits.total() == 2  # computed once
    np.testing.assert_allclose(vectors, expected, atol=1e-5)


def test_copies_to_and_from_a_gpu_are_pinned_and_not_waited_for(monkeypatch):
    """By the calls that torch documents for it (CUDA semantics, "Use pinned memory buffers"), seen without a GPU."""
    gpu, empty, seen = torch.device("cuda", 1), torch.empty, Mock()
    values = Mock(device=gpu, shape=(2, 3), dtype=torch.float32)
    values.pin_memory.return_value = values
    assert attention.to_device(values, gpu) is values.to.return_value
    assert values.mock_calls == [call.pin_memory(), call.to(gpu, non_blocking=True)]
    monkeypatch.setattr(torch, "empty", lambda *shape, **how: seen.host if how.get("pin_memory") else empty(*shape, **how))
    monkeypatch.setattr(torch, "cuda", seen.cuda)
    arrived = attention.from_device(values)
    stream, event = seen.cuda.current_stream.return_value, seen.cuda.Event.return_value
    assert seen.mock_calls[0] == call.host.copy_(values, non_blocking=True)
    assert event.mock_calls == [call.record(stream)] and seen.cuda.current_stream.mock_calls == [call(gpu)]
    assert arrived() is seen.host and event.mock_calls[1:] == [call.synchronize()]
