"""The packed training pass of every family that has one: states, gradients and dropout against the padded pass."""

from __future__ import annotations

import itertools

import pytest
import torch
from families import FAMILIES, TEXTS, family_model
from torch import nn
from torch.nn import functional

from stsbench.errors import EncoderError
from stsbench.training.modules.backbone import Backbone
from stsbench.training.modules.packed_training import Masks, packable

PADDED = {  # by tests/encoders/forward/test_packed.py
    "big_bird", "convbert", "deberta-v2", "fnet", "gemma2", "gpt_oss", "mamba", "mobilebert", "mpnet", "t5",
}


def backbone(family, dtype=torch.float64):
    """In training, without dropout; no tokenizer is asked for."""
    model = family_model(family).to(dtype).requires_grad_(True).train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name in ("attention_dropout", "dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    return Backbone(model, None, "mean")


def batch():
    order = [3, 0, 6, 7, 1, 2, 5, 4]  # of the texts, which stand longest first
    texts = [TEXTS[i] for i in order]
    ids = torch.full((len(texts), 32), 1)
    mask = torch.zeros_like(ids)
    for row, text in enumerate(texts):
        ids[row, : len(text)], mask[row, : len(text)] = text, 1
    return ids, mask


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - PADDED))
def test_states_and_gradients_equal_the_padded_pass(family):
    trained = backbone(family)
    ids, mask = batch()
    assert packable(trained.model) and trained.engine_on("cpu") == "packed"
    real = mask.bool()
    target = torch.randn(2, int(mask.sum()), 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    states, grads = {}, {}
    for trained.engine in ("packed", "padded"):
        both = trained(ids, mask, (-2, -1))
        states[trained.engine] = torch.stack([state[real] for state in both]).detach()
        loss = sum((state[real] * weight).sum() for state, weight in zip(both, target, strict=True))
        grads[trained.engine] = gradients(trained.model, loss)
    assert float((states["packed"] - states["padded"]).abs().max()) < 1e-5  # some norms compute in float32
    assert grads["packed"].keys() == grads["padded"].keys() and len(grads["packed"]) > 10
    for name, want in grads["padded"].items():
        assert float((grads["packed"][name] - want).abs().max()) < 1e-6 * max(1, float(want.abs().max())), name


@pytest.mark.parametrize("family", sorted(PADDED))
def test_other_families_are_trained_padded(family):
    trained = backbone(family)
    assert not packable(trained.model) and trained.engine_on("cpu") == "padded"
    trained.engine = "packed"
    with pytest.raises(EncoderError, match="no packed training pass for this"):
        trained(*batch())


@pytest.mark.parametrize("family", ["electra", "distilbert", "albert", "modernbert", "llama", "gpt2", "opt", "nomic_bert"])
def test_dropout_acts_where_the_padded_pass_applies_it(family, monkeypatch):
    """Each dropout is replaced, in both passes, by a factor that tells its turn and its rate: a misplaced one shows."""
    # transformers' eager attention gives NaN in float64 where a padding token's window holds no real one
    trained = backbone(family, torch.float32 if family == "modernbert" else torch.float64)
    for number, module in enumerate(trained.model.modules()):
        if isinstance(module, nn.Dropout):
            module.p = 0.1 + number / 1000
        for name in ("attention_dropout", "dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.3)
    assert packable(trained.model)
    trained.model.set_attn_implementation("eager")
    turns, before = itertools.count(), [0, 0]

    def factor(rate, dimensions):
        if not (before[1] == dimensions == 4):  # of one layer's attention, group after group, all are one turn
            before[:] = next(turns), dimensions
        return 1 + before[0] / 7 + rate

    def dropout(x, p=0.5, training=True, inplace=False):
        return x * factor(p, x.dim()) if training and p else x

    monkeypatch.setattr(functional, "dropout", dropout)
    monkeypatch.setattr(
        Masks, "__call__", lambda self, shape, rate, dtype: torch.full(shape, factor(rate, len(shape)), dtype=dtype)
    )
    ids, mask = batch()
    vectors, counts = {}, {}
    for trained.engine in ("packed", "padded"):
        turns, before = itertools.count(), [0, 0]
        vectors[trained.engine] = trained.pooled(ids, mask)
        counts[trained.engine] = next(turns)
    assert counts["packed"] == counts["padded"] >= 1  # all attention is one turn where nothing else drops
    assert torch.allclose(vectors["packed"], vectors["padded"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", ["modernbert", "llama"])
def test_dropout_of_windows_and_of_shared_heads_is_drawn_by_torch_s_generator(family):
    trained = backbone(family, torch.float32)
    trained.engine = "packed"
    ids, mask = batch()
    with torch.no_grad():
        plain = trained.pooled(ids, mask)
        for module in trained.model.modules():
            if isinstance(getattr(module, "attention_dropout", None), float):
                module.attention_dropout = 0.2
        torch.manual_seed(0)
        first = trained.pooled(ids, mask)
        torch.manual_seed(0)
        assert torch.equal(trained.pooled(ids, mask), first)
        assert not torch.equal(trained.pooled(ids, mask), first)
        assert not torch.equal(first, plain)


def test_modes_of_modules_outlive_the_try_out():
    trained = backbone("bert")
    frozen = trained.model.embeddings.eval()
    assert packable(trained.model)
    assert not frozen.training and trained.model.encoder.layer[0].training


@pytest.mark.parametrize("family", ["bert", "modernbert", "qwen3"])
def test_float32_gradients_are_as_near_to_float64_as_the_padded_pass_s(family):
    ids, mask = batch()

    def of(dtype, engine):
        trained = backbone(family, dtype)
        trained.engine = engine
        vectors = functional.normalize(trained.pooled(ids, mask), dim=1)
        return gradients(trained.model, (vectors @ vectors.T / 0.05).logsumexp(1).mean())

    exact = of(torch.float64, "padded")
    far = {
        engine: max(float((value.double() - exact[name]).abs().max()) for name, value in of(torch.float32, engine).items())
        for engine in ("packed", "padded")
    }
    assert 0 < far["packed"] < 3 * far["padded"], far


def test_a_model_without_a_vocabulary_or_room_for_the_try_out_is_trained_padded():
    from transformers import BertConfig, BertModel, CanineConfig, CanineModel

    canine = CanineModel(CanineConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
                                      num_hash_functions=2, num_hash_buckets=64, max_position_embeddings=64))
    short = BertModel(BertConfig(vocab_size=99, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
                                 intermediate_size=32, max_position_embeddings=8))
    for model in (canine.train(), short.train()):
        assert not packable(model) and model.training
