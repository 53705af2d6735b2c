"""The packed training pass against transformers' own: states, every gradient, where dropout acts and how it is spread."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import build
from torch.nn import functional

from stsbench.encoders.forward.pooling import STATES
from stsbench.errors import EncoderError
from stsbench.training.modules.backbone import Backbone, load_backbone, pool_padded
from stsbench.training.modules.packed_training import Masks, packable

POOLERS = ["cls", "mean", "first_last:embeddings", "first_last:layer1", "last2", "max"]


def _backbone(folder, family="bert", dropout=0.0, pooler="cls", dtype=torch.float64) -> Backbone:
    if not (folder / "config.json").is_file():
        build(folder, family)
    return load_backbone(folder, family, pooler, dropout=dropout).to(dtype)


def _batch(lengths=(5, 9, 2, 9, 7, 3, 5, 1), pad=0, seed=1):
    """Random tokens; special ids, also the padding token, may occur inside a text."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 60, (len(lengths), max(lengths)), generator=generator)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)).long()
    return torch.where(mask == 1, ids, pad), mask


def _gradients(backbone, run):
    backbone.zero_grad()
    run().backward()
    return {name: None if weight.grad is None else weight.grad.clone() for name, weight in backbone.named_parameters()}


def _gap(one, other) -> float:
    return (one - other).abs().max().item()


@pytest.fixture(params=["bert", "roberta"])
def family(request):
    return request.param


@pytest.mark.parametrize("training", [True, False])
def test_states_and_gradients_equal_transformers(tmp_path, family, training):
    backbone = _backbone(tmp_path, family, dropout=0.0 if training else 0.3).train(training)
    ids, mask = _batch(pad=1 if family == "roberta" else 0)
    real, wanted = mask.bool(), (0, 1, -2, -1)
    target = torch.randn(4, int(mask.sum()), 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def run():
        got = backbone(ids, mask, wanted)
        assert all(state.shape == (*ids.shape, 32) for state in got)
        return sum((state[real] * weight).sum() for state, weight in zip(got, target, strict=True))

    found = {}
    for backbone.engine in ("packed", "padded"):
        states = torch.stack([state[real] for state in backbone(ids, mask, wanted)]).detach()
        found[backbone.engine] = states, _gradients(backbone, run)
    (ours, our_gradients), (theirs, their_gradients) = found["packed"], found["padded"]
    assert _gap(ours, theirs) < 1e-10
    assert len(our_gradients) == len(their_gradients) > 40
    for name, want in their_gradients.items():
        assert _gap(our_gradients[name], want) < 1e-9 * max(1, float(want.abs().max())), name
        assert name.endswith("key.bias") or want.abs().max() > 1e-3, name  # a shift of all keys moves no softmax


@pytest.mark.parametrize("pooler", POOLERS)
def test_pooled_vectors_and_their_gradients_equal_transformers(tmp_path, family, pooler):
    backbone = _backbone(tmp_path, family, pooler=pooler)
    ids, mask = _batch(pad=1 if family == "roberta" else 0)
    target = torch.randn(len(ids), 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    backbone.engine = "padded"
    want = pool_padded(pooler, backbone(ids, mask, STATES[pooler]), mask)
    wanted = _gradients(backbone, lambda: (backbone.pooled(ids, mask) * target).sum())
    backbone.engine = "packed"
    assert _gap(backbone.pooled(ids, mask), want) < 1e-10
    for name, got in _gradients(backbone, lambda: (backbone.pooled(ids, mask) * target).sum()).items():
        assert (got is None) == (wanted[name] is None), name
        assert got is None or _gap(got, wanted[name]) < 1e-9 * max(1, float(wanted[name].abs().max())), name


def test_float32_agrees_to_rounding(tmp_path, family):
    backbone = _backbone(tmp_path, family, dtype=torch.float32)
    ids, mask = _batch(lengths=(20, 3, 11, 20), pad=1 if family == "roberta" else 0)
    states = {}
    for backbone.engine in ("packed", "padded"):
        states[backbone.engine] = backbone(ids, mask)[0][mask.bool()]
    assert _gap(states["packed"], states["padded"]) < 1e-5


@pytest.mark.parametrize("vector", ["states", "pooled"])
def test_dropout_acts_where_transformers_applies_it_at_the_rates_of_the_config(tmp_path, family, vector, monkeypatch):
    """Each dropout is replaced, on both sides, by a factor that tells its turn and its rate: a misplaced one shows."""
    backbone = _backbone(tmp_path, family, dropout=0.1)
    for layer in backbone.model.encoder.layer:
        layer.attention.self.dropout.p = 0.3
    backbone.model.set_attn_implementation("eager")
    assert packable(backbone.model)  # tried out before dropout is another
    ids, real = _batch(pad=1 if family == "roberta" else 0)
    turns, before = itertools.count(), [0, 0]  # the last turn and its number of dimensions

    def factor(rate, dimensions=None):
        if not (before[1] == dimensions == 4):  # the masks of one layer's attention, group after group, are one turn
            before[:] = next(turns), dimensions
        return 1 + before[0] / 7 + rate

    def mask(self, shape, rate, dtype):
        return torch.full(shape, factor(rate, len(shape)), dtype=dtype)

    monkeypatch.setattr(functional, "dropout", lambda x, p=0.5, training=True, inplace=False: x * factor(p))
    monkeypatch.setattr(Masks, "__call__", mask)
    found, counts = {}, {}
    for backbone.engine in ("packed", "padded"):
        turns = itertools.count()
        if vector == "pooled":
            found[backbone.engine] = backbone.pooled(ids, real)
        else:
            found[backbone.engine] = torch.stack([state[real.bool()] for state in backbone(ids, real, (0, 1, 2, 3))])
        counts[backbone.engine] = next(turns)
    assert counts == {"packed": 10, "padded": 10}  # 1 + 3 a layer
    assert _gap(found["packed"], found["padded"]) < 1e-10


def test_vectors_under_dropout_are_distributed_as_transformers_has_them(tmp_path, family):
    """One text many times: the rows are independent samples, whose means and deviations two-sample tests compare."""
    backbone = _backbone(tmp_path, family, dropout=0.2, dtype=torch.float32)
    ids, mask = _batch(lengths=(9,))
    rows = 2000
    samples = {}
    for backbone.engine in ("packed", "padded"):
        torch.manual_seed(5)
        with torch.no_grad():
            samples[backbone.engine] = backbone.pooled(ids.repeat(rows, 1), mask.repeat(rows, 1)).double()
    ours, theirs = samples["packed"], samples["padded"]
    spread = ((ours.var(0) + theirs.var(0)) / rows).sqrt()
    assert ((ours.mean(0) - theirs.mean(0)) / spread).abs().max().item() < 4.5
    squares = [(x - x.mean(0)) ** 2 for x in (ours, theirs)]
    spread = ((squares[0].var(0) + squares[1].var(0)) / rows).sqrt()
    assert ((squares[0].mean(0) - squares[1].mean(0)) / spread).abs().max().item() < 4.5
    without = _backbone(tmp_path, family, dropout=0.1, dtype=torch.float32)
    with torch.no_grad():  # and the comparison can tell rates apart
        other = without.pooled(ids.repeat(rows, 1), mask.repeat(rows, 1)).double()
    assert float(other.var(0).sum() / ours.var(0).sum()) < 0.8


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.25, 0.5, 0.9])
def test_masks_drop_at_their_rate_and_independently(rate):
    torch.manual_seed(3)
    draw = Masks()
    first, second = (draw((1000, 401), rate, torch.float64) for _ in range(2))
    kept = 1 / (1 - rate)
    assert first.shape == (1000, 401)
    assert set(first.unique().tolist()) == {0.0, kept}
    dropped = [(mask == 0).double() for mask in (first, second, Masks()((1000, 401), rate, torch.float64))]
    count, variance = first.numel(), rate * (1 - rate)
    for one in dropped:
        assert abs(float(one.mean()) - rate) < 4.5 * math.sqrt(variance / count)
    centred = [one - rate for one in dropped]
    pairs = [(centred[0], centred[1]), (centred[0], centred[2]), (centred[0][1:], centred[0][:-1]),
             (centred[0][:, 1:], centred[0][:, :-1]), (centred[0][:, 2:], centred[0][:, :-2])]
    for one, other in pairs:
        assert abs(float((one * other).mean())) < 4.5 * variance / math.sqrt(one.numel())


def test_an_odd_number_of_elements_and_single_precision():
    mask = Masks()((3, 5, 7), 0.5, torch.float32)
    assert mask.shape == (3, 5, 7)
    assert mask.dtype == torch.float32


def test_the_same_generator_state_gives_the_same_bits_and_the_next_pass_others(tmp_path):
    backbone = _backbone(tmp_path, dropout=0.1, dtype=torch.float32)
    ids, mask = _batch()
    torch.manual_seed(11)
    state = torch.get_rng_state()
    first = _gradients(backbone, lambda: backbone.pooled(ids, mask).square().sum())
    following = backbone.pooled(ids, mask)
    torch.set_rng_state(state)
    again = _gradients(backbone, lambda: backbone.pooled(ids, mask).square().sum())
    assert all(torch.equal(first[name], again[name]) for name in first if first[name] is not None)
    assert torch.equal(backbone.pooled(ids, mask), following)
    assert not torch.equal(backbone.pooled(ids, mask), following)


def test_two_rows_of_one_text_get_masks_of_their_own(tmp_path):
    backbone = _backbone(tmp_path, dropout=0.1)
    ids, mask = _batch()
    one, two = backbone.pooled(ids.repeat(2, 1), mask.repeat(2, 1)).chunk(2)
    assert (one - two).abs().amax(1).min().item() > 1e-3


@settings(max_examples=10, deadline=None)
@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=7), extra=st.integers(0, 5), data=st.data())
def test_padding_and_the_order_of_rows_change_nothing(tiny, lengths, extra, data):
    ids, mask = _batch(tuple(lengths))
    torch.manual_seed(2)
    want = tiny.pooled(ids, mask)
    torch.manual_seed(2)
    assert torch.equal(tiny.pooled(functional.pad(ids, (0, extra)), functional.pad(mask, (0, extra))), want)
    tiny.eval()
    order = data.draw(st.permutations(range(len(lengths))))
    assert _gap(tiny.pooled(ids[order], mask[order]), tiny.pooled(ids, mask)[order]) < 1e-10
    tiny.train()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    backbone = _backbone(tmp_path_factory.mktemp("tiny"), dropout=0.2)
    backbone.engine = "packed"
    return backbone


def test_auto_takes_the_packed_pass_for_a_plain_bert(tmp_path):
    backbone = _backbone(tmp_path, dropout=0.1)
    ids, mask = _batch()
    vectors = {}
    for backbone.engine in ("auto", "packed", "padded"):
        torch.manual_seed(4)
        vectors[backbone.engine] = backbone.pooled(ids, mask)
    assert torch.equal(vectors["auto"], vectors["packed"])
    assert not torch.equal(vectors["auto"], vectors["padded"])


def test_another_engine_is_refused(tmp_path):
    backbone = _backbone(tmp_path)
    backbone.engine = "fast"
    with pytest.raises(EncoderError, match="engine 'fast' is unknown"):
        backbone(*_batch())


def test_hooks_checkpointing_and_left_padding_go_the_padded_way(tmp_path):
    backbone = _backbone(tmp_path)
    ids, mask = _batch()
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


def test_bfloat16_is_as_close_to_float32_as_transformers_is(tmp_path, family):
    backbone = _backbone(tmp_path, family, dropout=0.0, dtype=torch.float32)
    ids, mask = _batch(pad=1 if family == "roberta" else 0)
    exact = backbone.pooled(ids, mask)
    gaps = {}
    for backbone.engine in ("packed", "padded"):
        with torch.autocast("cpu", torch.bfloat16):
            gaps[backbone.engine] = (backbone.pooled(ids, mask).float() - exact).abs().mean().item()
    assert 0 < gaps["packed"] < 1.5 * gaps["padded"]


def test_bfloat16_with_dropout_gives_float32_gradients_to_every_weight(tmp_path, family):
    backbone = _backbone(tmp_path, family, dropout=0.1, dtype=torch.float32)
    backbone.engine = "packed"
    ids, mask = _batch(pad=1 if family == "roberta" else 0)

    def loss():
        with torch.autocast("cpu", torch.bfloat16):
            return backbone(ids, mask)[0].float().square().mean()

    for name, gradient in _gradients(backbone, loss).items():
        assert gradient is not None, name
        assert gradient.dtype == torch.float32
        assert bool(gradient.isfinite().all())


def test_a_pass_reads_weights_as_they_are_now(tmp_path):
    backbone = _backbone(tmp_path)
    ids, mask = _batch()
    backbone.pooled(ids, mask)
    with torch.no_grad():
        for weight in backbone.parameters():
            weight.mul_(0.9)
    vectors = {}
    for backbone.engine in ("packed", "padded"):
        vectors[backbone.engine] = backbone.pooled(ids, mask)
    assert _gap(vectors["packed"], vectors["padded"]) < 1e-10
