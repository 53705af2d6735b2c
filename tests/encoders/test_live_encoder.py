"""Encoding with a model in training: the vectors of transformers itself, and nothing about the training is touched."""

import numpy as np
import pytest
import torch
from live_models import by_hand, inference
from tiny_models import sentences

from stsbench.encoders.cache.cache import EmbeddingCache
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.transformer.live import LiveEncoder
from stsbench.encoders.transformer.parts import Parts
from stsbench.errors import EncoderError
from stsbench.training.engine.selection import live_encoder

TEXTS = sentences(20)


@pytest.mark.parametrize(("family", "pooler"), [
    ("bert", "cls+dense"), ("roberta", "first_last:layer1"), ("distilbert", "max"),
])
def test_equals_the_model_in_eval_mode_and_never_the_cache(tmp_path, family, pooler):
    handed = inference(tmp_path / "model", family, pooler)
    encoder, cache = live_encoder(handed, "dev"), EmbeddingCache(tmp_path / "cache")
    encoder.ready()
    assert encoder.engine.endswith("without padding")
    with torch.autocast("cpu", torch.bfloat16):  # does not act
        before = Embed(encoder, cache)(TEXTS)
    np.testing.assert_allclose(before, by_hand(handed, TEXTS), atol=2e-6)
    with torch.no_grad():
        for weight in [*handed.model.parameters(), *(handed.dense.parameters() if handed.dense else ())]:
            weight.add_(0.01 * torch.randn_like(weight))
    after = Embed(encoder, cache)(TEXTS)
    assert np.abs(before - after).max() > 1e-3
    np.testing.assert_allclose(after, by_hand(handed, TEXTS), atol=2e-6)
    assert encoder.spec.weights == "live" and not encoder.cacheable


def test_training_goes_on_as_if_nothing_had_been_encoded(tmp_path):
    def steps(evaluate):
        handed = inference(tmp_path / str(evaluate), "bert", "cls+dense")
        encoder = live_encoder(handed, "dev") if evaluate else None
        handed.model.embeddings.dropout.eval()  # a submodule in another mode than the rest
        torch.manual_seed(5)
        np.random.seed(5)
        optimiser = torch.optim.AdamW([*handed.model.parameters(), *handed.dense.parameters()], lr=1e-3)
        for _ in range(3):
            batch = handed.tokenizer(TEXTS[:4], padding=True, truncation=True, max_length=12, return_tensors="pt")
            first = handed.model(batch["input_ids"], attention_mask=batch["attention_mask"]).last_hidden_state[:, 0]
            loss = handed.dense(first).tanh().pow(2).mean()
            loss.backward()
            if encoder is not None:  # between backward and step: gradients must survive
                encoder.encode(TEXTS)
            optimiser.step()
            optimiser.zero_grad()
        modes = [part.training for part in handed.model.modules()]
        state = torch.cat([weight.detach().flatten() for weight in handed.model.parameters()])
        grads = [weight.requires_grad for weight in handed.model.parameters()]
        return state, torch.rand(4), np.random.rand(4).tolist(), modes, grads

    plain, watched = steps(False), steps(True)
    assert torch.equal(plain[0], watched[0]) and torch.equal(plain[1], watched[1])
    assert plain[2:] == watched[2:]
    assert True in plain[3] and False in plain[3]


def test_modes_come_back_after_an_error(tmp_path, monkeypatch):
    handed = inference(tmp_path)
    handed.model.encoder.layer[1].eval()
    before = [part.training for part in handed.model.modules()]
    encoder = live_encoder(handed, "dev")

    def fail(*_):
        assert not any(part.training for part in handed.model.modules()) and not torch.is_grad_enabled()
        raise RuntimeError("injected")

    monkeypatch.setattr(encoder, "_attempt", fail)
    with pytest.raises(RuntimeError, match="injected"):
        encoder.encode(TEXTS)
    assert [part.training for part in handed.model.modules()] == before and torch.is_grad_enabled()


def test_truncation_of_the_training_does_not_reach_the_encoder_nor_the_other_way(tmp_path):
    handed = inference(tmp_path)
    encoder = live_encoder(handed, "dev")
    long = ["the cat " * 20 + "eats", "the cat " * 20 + "sleeps"]
    expected = handed.tokenizer(long, truncation=True, max_length=6)["input_ids"]  # leaves its truncation switched on
    assert [len(row) for row in expected] == [6, 6]
    encoded = encoder.run(long)
    assert not encoded.truncated.any() and np.abs(encoded.vectors[0] - encoded.vectors[1]).max() > 1e-3
    assert handed.tokenizer.backend_tokenizer.truncation["max_length"] == 6
    assert handed.tokenizer(long, truncation=True, max_length=6)["input_ids"] == expected


def test_the_limit_is_the_models_unless_one_is_given(tmp_path):
    handed = inference(tmp_path)  # its tokenizer says 8
    assert live_encoder(handed, "dev").spec.max_length == 64
    parts = Parts(handed.model, handed.tokenizer)
    short = LiveEncoder(parts, pooler="mean", max_length=9, name="short")
    assert short.run(["cat " * 8, "cat"]).truncated.tolist() == [True, False]
    assert live_encoder(handed, "long").run(["cat " * 63, "cat"]).truncated.tolist() == [True, False]
    with pytest.raises(EncoderError, match="more than the 64 positions"):
        LiveEncoder(parts, pooler="mean", max_length=65, name="dev")
