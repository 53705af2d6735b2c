"""Functions, objects and models in memory: one fingerprint is one encoder, or there is none to compare by. Encoding with
a model in training: the vectors of transformers itself, and nothing about the training is touched."""

import functools
import itertools

import numpy as np
import pytest
import torch
from live_models import by_hand, inference
from tiny_models import sentences

from stsbench import evaluate, load_encoder, load_records
from stsbench.comparison.comparability import SeedPairs, same_encoder
from stsbench.comparison.compare import compare
from stsbench.encoders.cache.cache import EmbeddingCache
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.light.callable import CallableEncoder
from stsbench.encoders.probe import IDENTITY, NONE, has_identity
from stsbench.encoders.transformer.live import LiveEncoder
from stsbench.encoders.transformer.parts import Parts
from stsbench.errors import StsbenchError
from stsbench.training.engine.selection import live_encoder


class Model:
    def __init__(self, seed):
        self.weights = np.random.default_rng(seed).normal(size=(26, 8))

    def encode(self, texts):
        counts = [[text.lower().count(chr(97 + i)) for i in range(26)] + [len(text)] for text in texts]
        return np.array(counts)[:, :26] @ self.weights + np.array(counts)[:, 26:]

    __call__ = encode


def closure(seed):
    model = Model(seed)
    return lambda texts: model.encode(texts)


def cell(seed, namespace):
    """What a notebook does: a function of one name and no file, defined again."""
    exec(f"def f(texts): return model.encode(texts) * {seed}", namespace)
    return namespace["f"]


def scaled(texts, model):
    return model.encode(texts)


ONE_CODE = {
    "bound methods": lambda seed: Model(seed).encode, "instances": Model, "closures": closure,
    "partials": lambda seed: functools.partial(scaled, model=Model(seed)),
    "cells": lambda seed: cell(seed, {"model": Model(1), "__name__": "__main__"}),
}


@pytest.mark.parametrize("kind", ONE_CODE)
def test_two_of_one_code_are_two_encoders_and_the_same_one_is_one(kind):
    make = ONE_CODE[kind]
    one, again, second = (CallableEncoder(make(seed)) for seed in (1, 1, 2))
    assert one.spec.fingerprint() == again.spec.fingerprint() != second.spec.fingerprint()
    assert one.spec.name == second.spec.name and not one.cacheable and has_identity(vars(one.spec))
    assert "32 probe texts" in " ".join(one.notes)
    assert one.spec.fingerprint() != CallableEncoder(lambda texts: make(1)(texts)).spec.fingerprint()  # by its code, too


def restless():
    counter = itertools.count()
    return lambda texts: Model(1)(texts) + next(counter)


def table(default):
    known = {"a known text": np.ones(3)}
    return lambda texts: np.array([known.get(text, default) for text in texts])


UNKNOWN = {
    "other vectors for the same texts the second time": restless,
    "texts of ours": lambda: lambda texts: np.array([{"known": [1.0, 2.0]}[text] for text in texts]),
    "32 different texts only 1 different": lambda: table(np.zeros(3)),
}


@pytest.mark.parametrize("why", UNKNOWN)
def test_what_cannot_be_identified_is_never_the_same(why):
    fn = UNKNOWN[why]()
    one, second = CallableEncoder(fn), CallableEncoder(fn)
    assert one.spec.fingerprint() != second.spec.fingerprint() and one.spec is one.spec
    assert not has_identity(vars(one.spec)) and one.spec.options[IDENTITY] == NONE and not one.cacheable
    assert len(one.notes) == 1 and "has no identity" in one.notes[0] and why in one.notes[0]


def test_a_user_says_who_it_is():
    for make in (lambda: CallableEncoder(restless(), fingerprint="v1"), lambda: CallableEncoder(stated("v1"))):
        assert make().cacheable and not make().notes and has_identity(vars(make().spec))
    model = Model(1)
    model.fingerprint = "v1"
    assert CallableEncoder(model.encode).cacheable  # of the object, for its methods
    one, second = (CallableEncoder(stated(word)).spec.fingerprint() for word in "ab")
    assert one != second and not CallableEncoder(len).cacheable  # built in: there is no source to read either


def stated(word):
    def fn(texts):
        raise AssertionError("tried out without need")

    fn.fingerprint = word
    return fn


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    asked = {"sample": True, "tasks": ["STS12"], "resamples": 0, "no_cache": True}
    fn = restless()
    for name, model in {"a": Model(1).encode, "again": Model(1).encode, "b": Model(2).encode, "x": fn}.items():
        evaluate(model, output=folder / name, **asked)
    return folder


def test_compare_knows_who_is_who(runs):
    first = {name: load_records(runs / name)[0][1] for name in ("a", "again", "b", "x")}
    assert same_encoder(first["a"], first["again"]) and not same_encoder(first["a"], first["b"])
    assert not same_encoder(first["x"], first["x"])
    assert compare(runs / "a", runs / "b").tables
    with pytest.raises(StsbenchError, match="of the same encoder"):
        compare([runs / "a", runs / "again"], runs / "b")
    with pytest.raises(StsbenchError, match="an encoder without an identity"):
        compare([runs / "x", runs / "b"], runs / "a")
    assert SeedPairs([[[first["x"]], [first["x"]]], [[first["x"]], [first["x"]]]]).groups == [-1, -1]
    assert SeedPairs([[[first["x"]], [first["a"]]]] * 2).groups == [-1, -1] and SeedPairs(
        [[[first["b"]], [first["a"]]]] * 2).groups == [0, 0]


def test_a_model_in_training_has_the_identity_of_the_moment(tmp_path):
    handed = inference(tmp_path / "model")
    live = live_encoder(handed, "dev")
    before, again = live.identified().spec, live.identified().spec
    assert before == again and before.weights != "live" and has_identity(vars(before)) and not has_identity(vars(live.spec))
    with torch.no_grad():
        for weight in handed.model.parameters():
            weight.mul_(1.1)
    assert live.identified().spec.fingerprint() != before.fingerprint()


def test_a_name_of_what_was_fitted_on_is_not_enough():
    tfidf = load_encoder("lexical:tfidf")
    one, second = tfidf.fit(["a cat", "the dog"], "mine"), tfidf.fit(["a cat", "the bird"], "mine")
    assert one.spec.fingerprint() != second.spec.fingerprint()
    assert tfidf.fit(["a cat"], "sts12/test@abc").spec.fitted_on == "sts12/test@abc"


TEXTS = sentences(20)


@pytest.mark.parametrize(("family", "pooler"), [("bert", "cls+dense"), ("roberta", "first_last:layer1")])
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
            handed.dense(first).tanh().pow(2).mean().backward()
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
    short = LiveEncoder(Parts(handed.model, handed.tokenizer), pooler="mean", max_length=9, name="short")
    assert short.run(["cat " * 8, "cat"]).truncated.tolist() == [True, False]
    assert live_encoder(handed, "long").run(["cat " * 63, "cat"]).truncated.tolist() == [True, False]
