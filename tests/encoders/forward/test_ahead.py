"""Texts are tokenised in a thread while a device computes: the vectors, the errors and the waits that come of it."""

import threading
from unittest.mock import Mock, call

import numpy as np
import pytest
import torch
from loaded import loaded
from pretend_device import pretend_device
from tiny_models import build, sentences

from stsbench.encoders.base import EncoderOptions
from stsbench.encoders.cache.cache import EmbeddingCache
from stsbench.encoders.cache.encode import encode_cached
from stsbench.encoders.forward import attention
from stsbench.encoders.load import load_encoder
from stsbench.encoders.transformer import transformer
from stsbench.errors import EncoderError

TEXTS = [*sentences(20), ""]


@pytest.fixture
def encoder(folder, monkeypatch):
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


def wrapped(encoder, monkeypatch, before):
    """`before(number of the call)` runs before each chunk is tokenised; returns the texts of each so far."""
    real, chunks = encoder.tokeniser, []

    def tokenise(texts):
        chunks.append(texts)
        before(len(chunks))
        return real(texts)

    monkeypatch.setattr(encoder, "tokeniser", tokenise)
    return chunks


def test_vectors_are_bit_for_bit_those_without_a_thread(folder, encoder):
    options = {"pooler": "mask", "template": "the {} means [MASK] .", "max_length": 9}
    encoder = loaded(folder, batch_tokens=60, **options)
    encoder.looks_ahead = False
    expected, counts = encoder.run(TEXTS), []
    encoder.looks_ahead = True
    encoded = encoder.run(TEXTS, counts.append)
    assert np.array_equal(encoded.vectors, expected.vectors) and np.array_equal(encoded.truncated, expected.truncated)
    assert sum(counts) == len(TEXTS) and encoded.truncated.any() and no_thread()


def test_the_next_texts_are_tokenised_while_the_first_are_computed(encoder, monkeypatch):
    second, calls = threading.Event(), []
    chunks = wrapped(encoder, monkeypatch, lambda number: second.set() if number == 2 else None)
    real = encoder._attempt

    def attempt(*arguments):
        assert second.wait(20)
        calls.append(len(chunks))
        return real(*arguments)

    monkeypatch.setattr(encoder, "_attempt", attempt)
    encoder.run(TEXTS)
    assert calls[0] == 2 and max(np.diff(calls)) <= 2  # no further ahead: memory is bounded
    assert len(chunks) == 6


@pytest.mark.parametrize(("threaded", "error"), [(False, ValueError("any")), (True, EncoderError("of the tokenizer")),
                                                 (True, KeyboardInterrupt())])
def test_an_error_in_the_thread_is_the_error_of_the_run(encoder, monkeypatch, threaded, error):
    def fail(number):
        if number == 3:
            raise error

    chunks = wrapped(encoder, monkeypatch, fail)
    encoder.looks_ahead = threaded
    with pytest.raises(type(error)) as caught:
        encoder.run(TEXTS)
    assert caught.value is error and len(chunks) <= 4 and no_thread()

    def attempt(*arguments):  # what stops the pass stops the thread
        raise error

    monkeypatch.setattr(encoder, "_attempt", attempt)
    before = len(chunks)
    with pytest.raises(type(error)):
        encoder.run(TEXTS)
    assert len(chunks) - before <= 2 and no_thread()


def test_a_device_is_waited_for_once_for_all_batches_of_a_chunk(tmp_path, monkeypatch):
    monkeypatch.setattr(transformer, "_CHUNK_AHEAD", 16)
    folder = build(tmp_path, "roberta")
    expected = load_encoder(str(folder), pooler="mean", device="cpu").encode(TEXTS)
    with pretend_device() as pretended:
        encoder = load_encoder(str(folder), pooler="mean", device="pretend:0", batch_tokens=100)
        encoder.ready()
        pretended.waits.clear()
        vectors = encoder.run(TEXTS).vectors
        assert encoder.built.engine.endswith("without padding") and encoder.built.looks_ahead
        assert pretended.waits == {"copy to the CPU": -(-len(TEXTS) // 16)}
    np.testing.assert_allclose(vectors, expected, atol=1e-5)


def test_the_cache_hands_a_device_more_texts_at_once(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("stsbench.encoders.cache.encode.CHUNK", 1)
    sizes, real = [], transformer.TransformerEncoder.run
    monkeypatch.setattr(
        transformer.TransformerEncoder, "run",
        lambda self, texts, *more: sizes.append(len(texts)) or real(self, texts, *more),
    )
    options = EncoderOptions(pooler="mean", device="cpu")
    encode_cached(load_encoder(str(folder), options), TEXTS, EmbeddingCache(tmp_path / "cpu"))
    assert max(sizes) == 1
    with pretend_device():
        sizes.clear()
        encode_cached(
            load_encoder(str(folder), pooler="mean", device="pretend:0"), TEXTS, EmbeddingCache(tmp_path / "pretend")
        )
    assert max(sizes) == 16


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
