"""The packed training pass of every family that has one against the padded one, transformers' own: states, gradients,
and where dropout acts."""

import itertools
import math

import pytest
import torch
from families import TEXTS, family_model
from tiny_models import build
from torch import nn
from torch.nn import functional
from transformers import BertConfig, BertModel, CanineConfig, CanineModel

from stsbench.errors import EncoderError
from stsbench.training.modules.backbone import Backbone, load_backbone
from stsbench.training.modules.packed_training import Masks, packable
from stsbench.training.modules.soft_prompt import head_factors

ENGINES = ("packed", "padded")


def set_rates(model, dropout, attention):
    """dropout: of a module's number; attention: of those that hold their rate themselves."""
    for number, module in enumerate(model.modules()):
        if isinstance(module, nn.Dropout):
            module.p = dropout(number)
        for name in ("attention_dropout", "dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, attention)


def backbone_of(family, dtype=torch.float64):
    """Of a random model in training, without dropout; no tokenizer is asked for."""
    model = family_model(family).to(dtype).requires_grad_(True).train()
    set_rates(model, lambda number: 0.0, 0.0)
    return Backbone(model, None, "mean")


def backbone_in(folder, family="bert", dropout=0.0, pooler="cls", dtype=torch.float64):
    if not (folder / family).is_dir():
        build(folder / family, family)
    return load_backbone(folder / family, family, pooler, dropout=dropout).to(dtype)


def batch_of_families():
    order = [3, 0, 6, 7, 1, 2, 5, 4]  # of the texts, which stand longest first
    texts = [TEXTS[i] for i in order]
    ids = torch.full((len(texts), 32), 1)
    mask = torch.zeros_like(ids)
    for row, text in enumerate(texts):
        ids[row, : len(text)], mask[row, : len(text)] = text, 1
    return ids, mask


def batch(family="bert", lengths=(5, 9, 2, 9, 7, 3, 5, 1)):
    """Random tokens; special ids, also the padding token, may occur inside a text."""
    ids = torch.randint(0, 60, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(1))
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)).long()
    return torch.where(mask == 1, ids, {"bert": 0, "roberta": 1}[family]), mask


def gap(first, second):
    return float((first - second).abs().max())


# of each kind; more families are in tests/encoders/forward/test_packed_pass.py
@pytest.mark.parametrize("family", [
    "bert", "roberta", "distilbert", "albert", "mpnet", "deberta-v2", "t5", "modernbert", "llama", "gpt2"])
def test_states_and_gradients_equal_the_padded_pass(family):
    trained, (ids, mask) = backbone_of(family), batch_of_families()
    assert packable(trained.model) and trained.engine_on("cpu") == "packed"
    real, wanted = mask.bool(), (0, 1, -2, -1) if family in ("bert", "roberta") else (-2, -1)
    target = torch.randn(len(wanted), int(mask.sum()), 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    states, grads = {}, {}
    for trained.engine in ENGINES:
        trained.zero_grad()
        outputs = trained(ids, mask, wanted)
        assert all(state.shape == (*ids.shape, 32) for state in outputs)
        states[trained.engine] = torch.stack([state[real] for state in outputs]).detach()
        sum((state[real] * weight).sum() for state, weight in zip(outputs, target, strict=True)).backward()
        grads[trained.engine] = {name: weight.grad for name, weight in trained.named_parameters() if weight.grad is not None}
    plain = family in ("bert", "roberta")
    assert gap(states["packed"], states["padded"]) < (1e-10 if plain else 1e-5)  # some norms compute in float32
    assert grads["packed"].keys() == grads["padded"].keys() and len(grads["packed"]) > 10
    for name, want in grads["padded"].items():
        assert gap(grads["packed"][name], want) < (1e-9 if plain else 1e-6) * max(1, float(want.abs().max())), name


def test_other_families_are_trained_padded():
    for family in ("fnet", "mamba"):
        trained = backbone_of(family)
        assert not packable(trained.model) and trained.engine_on("cpu") == "padded", family
        trained.engine = "packed"
        with pytest.raises(EncoderError):
            trained(*batch_of_families())


@pytest.mark.parametrize("family", ["roberta", "distilbert", "albert", "deberta-v2", "t5", "modernbert", "gpt2"])
def test_dropout_acts_where_the_padded_pass_applies_it_at_the_models_rates(family, monkeypatch):
    """Each dropout is replaced, in both passes, by a factor that tells its turn and its rate: a misplaced one shows."""
    # transformers' eager attention gives NaN in float64 where a padding token's window holds no real one
    trained = backbone_of(family, torch.float32 if family == "modernbert" else torch.float64)
    set_rates(trained.model, lambda number: 0.1 + number / 1000, 0.3)
    assert packable(trained.model)  # tried out before dropout is another
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
        Masks, "__call__", lambda self, shape, rate, dtype: torch.full(shape, factor(rate, len(shape)), dtype=dtype))
    ids, mask = batch_of_families()
    vectors, counts = {}, {}
    for trained.engine in ENGINES:
        turns, before = itertools.count(), [0, 0]
        vectors[trained.engine] = trained.pooled(ids, mask)
        counts[trained.engine] = next(turns)
    assert counts["packed"] == counts["padded"] >= 1  # all attention is one turn where nothing else drops
    assert family not in ("bert", "roberta") or counts["packed"] == 7  # 1 + 3 a layer
    assert torch.allclose(vectors["packed"], vectors["padded"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rate", [0.01, 0.9])
def test_masks_drop_at_their_rate_and_independently(rate):
    torch.manual_seed(3)
    draw, kept = Masks(), 1 / (1 - rate)
    first, second = (draw((1000, 401), rate, torch.float64) for _ in range(2))
    assert first.shape == (1000, 401) and set(first.unique().tolist()) == {0.0, kept}
    dropped = [(mask == 0).double() for mask in (first, second, Masks()((1000, 401), rate, torch.float64))]
    count, variance = first.numel(), rate * (1 - rate)
    for drops in dropped:
        assert abs(float(drops.mean()) - rate) < 4.5 * math.sqrt(variance / count)
    first, second, third = (drops - rate for drops in dropped)
    for left, right in ((first, second), (first, third), (first[1:], first[:-1]), (first[:, 1:], first[:, :-1]),
                        (first[:, 2:], first[:, :-2])):
        assert abs(float((left * right).mean())) < 4.5 * variance / math.sqrt(left.numel())
    odd = Masks()((3, 5, 7), rate, torch.float32)
    assert odd.shape == (3, 5, 7) and odd.dtype == torch.float32


def test_auto_takes_the_packed_pass_for_a_plain_bert_and_another_engine_is_refused(tmp_path):
    backbone, (ids, mask) = backbone_in(tmp_path, dropout=0.1), batch()
    vectors = {}
    for backbone.engine in ("auto", *ENGINES):
        torch.manual_seed(4)
        vectors[backbone.engine] = backbone.pooled(ids, mask)
    assert torch.equal(vectors["auto"], vectors["packed"])
    assert not torch.equal(vectors["auto"], vectors["padded"])
    backbone.engine = "fast"
    with pytest.raises(EncoderError, match="engine 'fast' is unknown"):
        backbone(ids, mask)


def test_hooks_checkpointing_and_left_padding_go_the_padded_way(tmp_path):
    backbone, (ids, mask) = backbone_in(tmp_path), batch()
    left, left_mask = ids.flip(1), mask.flip(1)
    want = backbone.model(input_ids=left, attention_mask=left_mask).last_hidden_state[:, 0]
    assert torch.equal(backbone.pooled(left, left_mask), want)
    called = []
    handle = backbone.model.encoder.layer[1].register_forward_hook(lambda *_: called.append(True))
    backbone.pooled(ids, mask)
    assert called
    handle.remove()
    assert packable(backbone.model)
    backbone.model(input_ids=ids, attention_mask=mask, output_hidden_states=True)  # leaves hooks, of transformers' own
    assert packable(backbone.model)
    backbone.model.encoder.layer[0].gradient_checkpointing = True
    assert not packable(backbone.model)


def test_the_try_out_keeps_modes_and_a_model_that_it_cannot_run_on_is_trained_padded():
    trained = backbone_of("bert")
    frozen = trained.model.embeddings.eval()
    assert packable(trained.model)
    assert not frozen.training and trained.model.encoder.layer[0].training
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    canine = CanineModel(CanineConfig(**shape, num_hash_functions=2, num_hash_buckets=64, max_position_embeddings=64))
    for model in (canine.train(), BertModel(BertConfig(**shape, vocab_size=99, max_position_embeddings=8)).train()):
        assert not packable(model) and model.training


@pytest.mark.parametrize(("family", "attention"), [("bert", "eager"), ("roberta", "sdpa")])
def test_dropped_heads_have_the_same_states_and_gradients_in_both_passes(tmp_path, family, attention):
    ids, mask = batch(family, (4, 7, 1, 7))
    backbone = backbone_in(tmp_path, family, pooler="mean")
    backbone.model.set_attn_implementation(attention)
    kept = torch.rand(4, 3, 4, generator=torch.Generator().manual_seed(0)) >= 0.4  # rows, layers, heads
    factors, computed = head_factors(kept, torch.float64), {}
    for backbone.engine in ENGINES:
        backbone.zero_grad()
        states = backbone(ids, mask, (1, -1), heads=factors)
        vectors = [*(state * mask.unsqueeze(2) for state in states), backbone.pooled(ids, mask, heads=factors)]
        sum(part.pow(2).sum() for part in vectors).backward()
        computed[backbone.engine] = [*vectors, *(w.grad for w in backbone.parameters() if w.grad is not None)]
    assert len(computed["packed"]) == len(computed["padded"]) > 40
    for packed, padded in zip(*computed.values(), strict=True):
        assert gap(packed, padded) < 1e-9 * max(1, float(padded.detach().abs().max()))
    without = backbone(ids, mask)[0]
    assert packable(backbone.model)  # no hook stays
    assert gap(without * mask.unsqueeze(2), computed["padded"][1]) > 1e-2
    assert gap(backbone(ids, mask, heads=torch.ones(4, 3, 4, dtype=torch.float64))[0], without) == 0


def test_what_is_kept_of_heads_makes_up_for_what_is_dropped_and_what_cannot_be_dropped_is_refused(tmp_path):
    rows = torch.tensor([[True, True, True, True], [True, False, False, True], [False, True, False, False], [False] * 4])
    want = [[1, 1, 1, 1], [2, 0, 0, 2], [0, 4, 0, 0], [0, 0, 0, 0]]  # all dropped: no division by zero
    assert head_factors(rows.unsqueeze(1), torch.float64).squeeze(1).tolist() == want
    ids, mask = batch(lengths=(4, 7, 1, 7))
    backbone = backbone_in(tmp_path)
    for backbone.engine in ENGINES:
        with pytest.raises(ValueError, match="rows, layers and heads"):
            backbone(ids, mask, heads=torch.ones(4, 3, 5))
    backbone.model.encoder.layer[0].gradient_checkpointing = True
    with pytest.raises(EncoderError, match="gradient checkpointing"):
        backbone(ids, mask, heads=torch.ones(4, 3, 4))
    other = load_backbone(build(tmp_path / "other", "distilbert"), "distilbert")
    with pytest.raises(EncoderError, match="families BERT and RoBERTa"):
        other(ids, mask, heads=torch.ones(4, 3, 4))
