"""Training passes with positions, learned words and prefixes against BERT and RoBERTa written out in loops, in float64."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from soft_oracle import (
    ENGINES,
    LAYERS,
    LENGTHS,
    PAD,
    WIDTH,
    batch,
    naive_states,
    own_positions,
    random_prefix,
    random_soft,
    small_backbone,
    weights_of,
)
from torch.nn import functional

from stsbench.training.modules.packed_training import Masks
from stsbench.training.modules.soft_prompt import Prefix, SoftPrompt


@pytest.fixture(params=["bert", "roberta"])
def family(request):
    return request.param


def _loops(weights, family, ids, mask, soft, row):
    """The states of one row out of the loops; every array that `soft` holds is read anew."""
    places = mask[row].nonzero().flatten().tolist()
    tokens = [int(ids[row, place]) for place in places]
    shift = 0 if soft.prefix is None else soft.prefix.visible.shape[1]
    positions = own_positions(family, tokens, shift) if soft.positions is None else soft.positions[row, places].tolist()
    words = {} if soft.rows is None else {
        i: soft.vectors[soft.rows[row, place]].detach().numpy()
        for i, place in enumerate(places) if soft.rows[row, place] >= 0
    }
    prefix = None if soft.prefix is None else [
        [
            (soft.prefix.keys[layer, row, slot].detach().numpy(), soft.prefix.values[layer, row, slot].detach().numpy())
            for slot in range(shift) if soft.prefix.visible[row, slot]
        ]
        for layer in range(LAYERS)
    ]
    return naive_states(weights, tokens, positions, words, prefix)


def _gap(one, other) -> float:
    return float((torch.as_tensor(one) - torch.as_tensor(other)).detach().abs().max())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("parts", [("positions",), ("words",), ("prefix",), ("positions", "words", "prefix")])
def test_every_state_is_what_the_loops_compute(family, engine, parts):
    backbone = small_backbone(family, engine)
    ids, mask = batch(family)
    soft = random_soft(ids, parts)
    found = backbone(ids, mask, (0, 1, 2), soft)
    last = torch.tensor([length - 1 for length in LENGTHS])
    middle = last // 2
    at = {"last": backbone.at(ids, mask, last, soft), "middle": backbone.at(ids, mask, middle, soft)}
    plain = backbone(ids, mask)[0]
    for row, length in enumerate(LENGTHS):
        want = _loops(weights_of(backbone.model), family, ids, mask, soft, row)
        for got, one in zip(found, want, strict=True):
            assert _gap(got[row, :length].detach(), one) < 1e-9
        assert _gap(at["last"][row].detach(), want[2][-1]) < 1e-9
        assert _gap(at["middle"][row].detach(), want[2][(length - 1) // 2]) < 1e-9
        assert _gap(plain[row, :length].detach(), want[2]) > 1e-3  # the prompt does something


@settings(max_examples=15, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 8), min_size=1, max_size=6), family=st.sampled_from(["bert", "roberta"]),
    engine=st.sampled_from(ENGINES), slots=st.integers(1, 5), share=st.floats(0, 1), seed=st.integers(0, 99),
    parts=st.sets(st.sampled_from(["positions", "words"])),
)
def test_any_lengths_slots_and_visible_sets(lengths, family, engine, slots, share, seed, parts):
    backbone = small_backbone(family, engine)
    ids, mask = batch(family, lengths, seed)
    soft = random_soft(ids, {*parts, "prefix"}, seen=round(share * slots), slots=slots, seed=seed)
    found = backbone(ids, mask, (-1,), soft)[0].detach()
    for row, length in enumerate(lengths):
        assert _gap(found[row, :length], _loops(weights_of(backbone.model), family, ids, mask, soft, row)[-1]) < 1e-9


@pytest.mark.parametrize("engine", ENGINES)
def test_gradients_are_the_finite_differences_of_the_loops(family, engine):
    backbone = small_backbone(family, engine)
    ids, mask = batch(family, (4, 6, 2))
    soft = random_soft(ids, ("words", "prefix"), seen=2, slots=4)
    places = torch.tensor([3, 2, 0])
    target = torch.randn(3, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    (backbone.at(ids, mask, places, soft) * target).sum().backward()
    weights = weights_of(backbone.model)

    def loops() -> float:
        return sum(
            float(_loops(weights, family, ids, mask, soft, row)[-1][place] @ target[row].numpy())
            for row, place in enumerate(places.tolist())
        )

    def check(array, gradient, entry):
        kept, step, ends = float(array[entry]), 1e-5, []
        for sign in (1, -1):
            array[entry] = kept + sign * step
            ends.append(loops())
        array[entry] = kept
        want = (ends[0] - ends[1]) / (2 * step)
        assert abs(float(gradient[entry]) - want) < 1e-6 * max(1, abs(want)), entry
        return abs(want)

    sizes = []
    prefix = soft.prefix
    for tensor in (prefix.keys, prefix.values):
        for layer, row in itertools.product(range(LAYERS), range(3)):
            seen, hidden = prefix.visible[row].nonzero().flatten(), (~prefix.visible[row]).nonzero().flatten()
            sizes.append(check(tensor.detach().numpy(), tensor.grad, (layer, row, int(seen[-1]), 5)))
            assert float(tensor.grad[layer, row, hidden].abs().max()) == 0
    used = sorted({int(i) for i in soft.rows[mask.bool()] if i >= 0})
    sizes += [check(soft.vectors.detach().numpy(), soft.vectors.grad, (i, 3)) for i in used]
    parameters = dict(backbone.model.named_parameters())
    token = next(int(t) for t, r in zip(ids[mask.bool()], soft.rows[mask.bool()], strict=True) if r < 0 and t != PAD[family])
    start = 4 if family == "bert" else 6  # the first position behind 4 slots
    for name, entry in [
        ("embeddings.word_embeddings.weight", (token, 2)), ("embeddings.position_embeddings.weight", (start, 1)),
        ("encoder.layer.0.attention.self.query.weight", (4, 7)), ("encoder.layer.1.attention.self.value.weight", (1, 3)),
        ("encoder.layer.1.attention.self.query.bias", (6,)), ("encoder.layer.0.output.dense.weight", (2, 11)),
    ]:
        sizes.append(check(weights[name], parameters[name].grad, entry))
    assert min(sizes) > 1e-7
    assert np.median(sizes) > 1e-3


def test_packed_and_padded_give_every_parameter_the_same_gradient(family):
    found = {}
    for engine in ENGINES:
        backbone = small_backbone(family, engine)
        ids, mask = batch(family)
        soft = random_soft(ids, ("positions", "words", "prefix"))
        sum((state[mask.bool()] ** 3).sum() for state in backbone(ids, mask, (1, -1), soft)).backward()
        found[engine] = {name: weight.grad for name, weight in backbone.named_parameters()}
        found[engine] |= {"keys": soft.prefix.keys.grad, "values": soft.prefix.values.grad, "vectors": soft.vectors.grad}
    assert len(found["packed"]) == 40
    for engine in ("sdpa", "eager"):
        for name, want in found[engine].items():
            assert _gap(found["packed"][name], want) < 1e-9 * max(1, float(want.abs().max())), name


@pytest.mark.parametrize("engine", ENGINES)
def test_a_prefix_that_nobody_sees_only_moves_positions(family, engine):
    backbone = small_backbone(family, engine)
    ids, mask = batch(family)
    hidden = random_prefix(len(ids), 6, torch.zeros(len(ids), 6, dtype=torch.bool))
    own = torch.tensor([own_positions(family, row.tolist()) for row in ids])
    moved = torch.tensor([own_positions(family, row.tolist(), 6) for row in ids])
    real = mask.bool()

    def states(soft):
        return torch.stack(backbone(ids, mask, (0, 1, 2), soft))[:, real]

    assert _gap(states(SoftPrompt(prefix=hidden)), states(SoftPrompt(positions=moved))) < 1e-14
    assert _gap(states(SoftPrompt(positions=own, prefix=hidden)), states(None)) < 1e-14
    assert _gap(states(SoftPrompt(prefix=hidden)), states(None)) > 1e-3


@pytest.mark.parametrize("engine", ENGINES)
def test_padding_the_order_of_rows_and_what_padding_holds_change_nothing(family, engine):
    backbone = small_backbone(family, engine)
    ids, mask = batch(family)
    soft = random_soft(ids, ("positions", "words", "prefix"))
    places = torch.tensor([length // 2 for length in LENGTHS])
    want = backbone.at(ids, mask, places, soft)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    prefix = Prefix(soft.prefix.keys[:, order], soft.prefix.values[:, order], soft.prefix.visible[order])
    wide = functional.pad(ids[order], (0, 3), value=PAD[family])
    wide_mask = functional.pad(mask[order], (0, 3))
    moved = SoftPrompt(
        functional.pad(soft.positions[order], (0, 3)).masked_fill(wide_mask == 0, 10_000),
        functional.pad(soft.rows[order], (0, 3)).masked_fill(wide_mask == 0, 1), soft.vectors, prefix,
    )
    assert _gap(backbone.at(wide, wide_mask, places[order], moved), want[order]) < 1e-12


@pytest.mark.parametrize("engine", ["sdpa", "eager"])
def test_rows_padded_left(family, engine):
    backbone = small_backbone(family, engine)
    ids, mask = (part.flip(1) for part in batch(family))
    soft = random_soft(ids, ("words", "prefix"))
    own = torch.tensor([own_positions(family, row.tolist(), 6) for row in ids])  # BERT counts what stands left, too
    given = SoftPrompt(own, soft.rows, soft.vectors, soft.prefix)
    found = backbone(ids, mask, (-1,), soft)[0].detach()
    for row in range(len(ids)):
        want = _loops(weights_of(backbone.model), family, ids, mask, given, row)[-1]
        assert _gap(found[row][mask[row].bool()], want) < 1e-9


@pytest.mark.parametrize("engine", ENGINES)
def test_a_prompt_of_nothing_is_bit_for_bit_no_prompt(family, engine):
    ids, mask = batch(family)
    found = []
    for soft in (None, SoftPrompt()):
        backbone = small_backbone(family, engine, dropout=0.1)
        torch.manual_seed(4)
        states = backbone(ids, mask, (0, -1), soft)
        sum(state[mask.bool()].square().sum() for state in states).backward()
        found.append([*(state[mask.bool()] for state in states), *(weight.grad for weight in backbone.parameters())])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_at_is_the_state_of_forward_and_pooled_cls_its_place_0(family):
    for engine in ENGINES:
        backbone = small_backbone(family, engine)
        ids, mask = batch(family)
        states = backbone(ids, mask)[0]
        places = torch.tensor([length - 1 for length in LENGTHS])
        assert _gap(backbone.at(ids, mask, places), states[torch.arange(len(ids)), places]) < 1e-12
        assert torch.equal(backbone.at(ids, mask, torch.zeros(len(ids), dtype=torch.long)), backbone.pooled(ids, mask))
        with pytest.raises(ValueError, match="padding place"):
            backbone.at(ids, mask, torch.full((len(ids),), 8))


@pytest.mark.parametrize("vector", ["states", "at"])
def test_dropout_acts_where_transformers_applies_it_also_on_slots(family, vector, monkeypatch):
    """Each dropout is replaced, on both sides, by factors that tell its turn, its rate and the attended place."""
    ids, real = batch(family)
    soft = random_soft(ids, ("words", "prefix"))
    turns, before = itertools.count(), [0, 0]

    def factor(shape, rate):
        if not (before[1] == len(shape) == 4):  # the masks of one layer's attention, group after group, are one turn
            before[:] = next(turns), len(shape)
        along = torch.arange(shape[-1]).clamp(max=3) if len(shape) == 4 else torch.zeros(1)  # slot 0, 1, 2, then tokens
        return 1 + before[0] / 7 + rate + along.double() / 3

    def dropout(x, p=0.5, training=True, inplace=False):
        return x * factor(x.shape, p) if training else x

    monkeypatch.setattr(functional, "dropout", dropout)
    monkeypatch.setattr(Masks, "__call__", lambda self, shape, rate, dtype: factor(shape, rate).to(dtype).expand(shape))
    found, counts = {}, {}
    for engine in ("packed", "eager"):
        backbone = small_backbone(family, engine, dropout=0.1)
        for layer in backbone.model.encoder.layer:
            layer.attention.self.dropout.p = 0.3
        turns = itertools.count()
        if vector == "at":
            found[engine] = backbone.at(ids, real, torch.tensor([length // 2 for length in LENGTHS]), soft)
        else:
            found[engine] = torch.stack([state[real.bool()] for state in backbone(ids, real, (0, 1, 2), soft)])
        counts[engine] = next(turns)
    assert counts == {"packed": 7, "eager": 7}  # 1 + 3 a layer
    assert _gap(found["packed"], found["eager"]) < 1e-10


def test_vectors_under_dropout_are_distributed_as_transformers_has_them(family):
    """One text many times, two learned words and three slots: two-sample tests of means and squared deviations."""
    rows = 3000
    ids, mask = (part.repeat(rows, 1) for part in batch(family, (7,)))
    words = torch.tensor([-1, 0, -1, 1, -1, -1, -1]).repeat(rows, 1)
    generator = torch.Generator().manual_seed(8)
    vectors = torch.randn(2, WIDTH, generator=generator, dtype=torch.float64)
    keys, values = (
        torch.randn(LAYERS, 1, 6, WIDTH, generator=generator, dtype=torch.float64).expand(-1, rows, -1, -1) for _ in range(2)
    )
    visible = (torch.arange(6) < 3).expand(rows, -1)
    soft = SoftPrompt(rows=words, vectors=vectors, prefix=Prefix(keys, values, visible))

    def sample(engine, rate):
        torch.manual_seed(5)
        with torch.no_grad():
            return small_backbone(family, engine, rate).at(ids, mask, torch.full((rows,), 3), soft)

    ours, theirs = sample("packed", 0.2), sample("sdpa", 0.2)
    spread = ((ours.var(0) + theirs.var(0)) / rows).sqrt()
    assert _gap((ours.mean(0) - theirs.mean(0)) / spread, 0) < 4.5
    squares = [(x - x.mean(0)) ** 2 for x in (ours, theirs)]
    spread = ((squares[0].var(0) + squares[1].var(0)) / rows).sqrt()
    assert _gap((squares[0].mean(0) - squares[1].mean(0)) / spread, 0) < 4.5
    assert float(sample("packed", 0.1).var(0).sum() / ours.var(0).sum()) < 0.8  # the comparison can tell rates apart


@pytest.mark.parametrize("engine", ENGINES)
def test_bfloat16_stays_near_and_its_gradients_are_float32(family, engine):
    found = {}
    for autocast in (False, True):
        backbone = small_backbone(family, engine).float()
        ids, mask = batch(family)
        soft = random_soft(ids, ("words", "prefix"))
        leaves = [part.detach().float().requires_grad_() for part in (soft.vectors, soft.prefix.keys, soft.prefix.values)]
        soft = SoftPrompt(None, soft.rows, leaves[0], Prefix(leaves[1], leaves[2], soft.prefix.visible))
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            vectors = backbone.at(ids, mask, torch.zeros(len(ids), dtype=torch.long), soft).float()
        vectors.square().mean().backward()
        for gradient in [leaf.grad for leaf in leaves] + [weight.grad for weight in backbone.parameters()]:
            assert gradient.dtype == torch.float32
            assert bool(gradient.isfinite().all())
        found[autocast] = vectors.detach()
    assert 0 < (found[True] - found[False]).abs().mean().item() < 0.03
