"""Positions, learned words and prefixes against BERT and RoBERTa written out in loops, in float64: training passes and those
of a test, packed and padded."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from soft_oracle import (
    ENGINES,
    LAYERS,
    LENGTHS,
    PAD,
    POSITIONS,
    VOCAB,
    WIDTH,
    batch,
    naive_states,
    own_positions,
    random_prefix,
    random_soft,
    small_backbone,
    small_model,
    visible_slots,
    weights_of,
)
from tiny_models import build
from torch.nn import functional
from transformers import AutoModel

from stsbench.encoders.forward.batching import KeyValues, Soft
from stsbench.encoders.forward.passes import PackedForward, PaddedForward
from stsbench.errors import EncoderError
from stsbench.training.modules.backbone import load_backbone
from stsbench.training.modules.packed_training import Masks
from stsbench.training.modules.soft_prompt import Prefix, SoftPrompt

PARTS = ("positions", "words", "prefix")
FAMILIES = st.sampled_from(["bert", "roberta"])


@pytest.fixture(params=["bert", "roberta"])
def family(request):
    return request.param


def gap(first, second) -> float:
    return float((torch.as_tensor(first) - torch.as_tensor(second)).detach().abs().max())


def slots_of(keys, values):
    """[layer] -> [(key, value) of each slot], of (layers, slots, d)."""
    return [[(key.numpy(), value.numpy()) for key, value in zip(*layer, strict=True)]
            for layer in zip(keys.detach(), values.detach(), strict=True)]


def loops(weights, family, ids, mask, soft, row):
    """The states of one row of a training batch; every array that `soft` holds is read anew."""
    places = mask[row].nonzero().flatten().tolist()
    tokens = [int(ids[row, place]) for place in places]
    shift = 0 if soft.prefix is None else soft.prefix.visible.shape[1]
    positions = own_positions(family, tokens, shift) if soft.positions is None else soft.positions[row, places].tolist()
    words = {} if soft.rows is None else {
        i: soft.vectors[soft.rows[row, place]].detach().numpy()
        for i, place in enumerate(places) if soft.rows[row, place] >= 0
    }
    prefix = None
    if soft.prefix is not None:
        seen = soft.prefix.visible[row]
        prefix = slots_of(soft.prefix.keys[:, row, seen], soft.prefix.values[:, row, seen])
    return naive_states(weights, tokens, positions, words, prefix)


def lasts(lengths):
    return torch.tensor([length - 1 for length in lengths])


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 8), min_size=1, max_size=6), family=FAMILIES, engine=st.sampled_from(ENGINES),
    slots=st.integers(1, 5), share=st.floats(0, 1), seed=st.integers(0, 99), parts=st.sets(st.sampled_from(PARTS)),
)
@example(lengths=LENGTHS, family="bert", engine="packed", slots=5, share=0.5, seed=1, parts=set(PARTS))
@example(lengths=LENGTHS, family="roberta", engine="packed", slots=5, share=0.5, seed=1, parts=set(PARTS))
@example(lengths=LENGTHS, family="roberta", engine="eager", slots=5, share=0.5, seed=1, parts=set(PARTS))
def test_every_state_of_a_training_pass_is_what_the_loops_compute(lengths, family, engine, slots, share, seed, parts):
    backbone = small_backbone(family, engine)
    ids, mask = batch(family, lengths, seed)
    soft = random_soft(ids, parts, seen=round(share * slots), slots=slots, seed=seed)
    states = backbone(ids, mask, (0, 1, 2), soft)
    middle = lasts(lengths) // 2
    last, inner = (backbone.at(ids, mask, places, soft) for places in (lasts(lengths), middle))
    for row, length in enumerate(lengths):
        want = loops(weights_of(backbone.model), family, ids, mask, soft, row)
        assert max(gap(got[row, :length], expected) for got, expected in zip(states, want, strict=True)) < 1e-9
        assert gap(last[row], want[2][-1]) < 1e-9 and gap(inner[row], want[2][middle[row]]) < 1e-9
    if parts & {"positions", "words"} and max(lengths) > 1:  # the prompt does something
        assert gap(backbone(ids, mask)[0][mask.bool()], states[2][mask.bool()]) > 1e-3


@pytest.mark.parametrize("engine", ENGINES)
def test_gradients_are_the_finite_differences_of_the_loops(family, engine):
    backbone = small_backbone(family, engine)
    ids, mask = batch(family, (4, 6, 2))
    soft = random_soft(ids, ("words", "prefix"), seen=2, slots=4)
    places = torch.tensor([3, 2, 0])
    target = torch.randn(3, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    (backbone.at(ids, mask, places, soft) * target).sum().backward()
    weights = weights_of(backbone.model)

    def loss() -> float:
        return sum(
            float(loops(weights, family, ids, mask, soft, row)[-1][place] @ target[row].numpy())
            for row, place in enumerate(places.tolist())
        )

    def check(array, gradient, entry):
        kept, step, ends = float(array[entry]), 1e-5, []
        for sign in (1, -1):
            array[entry] = kept + sign * step
            ends.append(loss())
        array[entry] = kept
        want = (ends[0] - ends[1]) / (2 * step)
        assert abs(float(gradient[entry]) - want) < 1e-6 * max(1, abs(want)), entry
        return abs(want)

    sizes, prefix = [], soft.prefix
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
    assert min(sizes) > 1e-7 and np.median(sizes) > 1e-3


def test_packed_and_padded_give_every_parameter_the_same_gradient(family):
    grads = {}
    for engine in ENGINES:
        backbone = small_backbone(family, engine)
        ids, mask = batch(family)
        soft = random_soft(ids, PARTS)
        sum((state[mask.bool()] ** 3).sum() for state in backbone(ids, mask, (1, -1), soft)).backward()
        grads[engine] = {name: weight.grad for name, weight in backbone.named_parameters()}
        grads[engine] |= {"keys": soft.prefix.keys.grad, "values": soft.prefix.values.grad, "vectors": soft.vectors.grad}
    assert len(grads["packed"]) == 40
    for name, gradient in grads["packed"].items():
        for want in (grads["sdpa"][name], grads["eager"][name]):
            assert gap(gradient, want) < 1e-9 * max(1, float(want.abs().max())), name


@pytest.mark.parametrize("engine", ENGINES)
def test_a_prefix_that_nobody_sees_only_moves_positions(family, engine):
    backbone = small_backbone(family, engine)
    ids, mask = batch(family)
    hidden = random_prefix(len(ids), 6, torch.zeros(len(ids), 6, dtype=torch.bool))
    own, moved = (torch.tensor([own_positions(family, row.tolist(), shift) for row in ids]) for shift in (0, 6))

    def states(soft):
        return torch.stack(backbone(ids, mask, (0, 1, 2), soft))[:, mask.bool()]

    assert gap(states(SoftPrompt(prefix=hidden)), states(SoftPrompt(positions=moved))) < 1e-14
    assert gap(states(SoftPrompt(positions=own, prefix=hidden)), states(None)) < 1e-14
    assert gap(states(SoftPrompt(prefix=hidden)), states(None)) > 1e-3


@pytest.mark.parametrize("engine", ENGINES)
def test_padding_the_order_of_rows_and_what_padding_holds_change_nothing(family, engine):
    backbone = small_backbone(family, engine)
    ids, mask = batch(family)
    soft, places, order = random_soft(ids, PARTS), lasts(LENGTHS) // 2, torch.tensor([3, 0, 5, 1, 4, 2])
    want = backbone.at(ids, mask, places, soft)
    prefix = Prefix(soft.prefix.keys[:, order], soft.prefix.values[:, order], soft.prefix.visible[order])
    wide, wide_mask = functional.pad(ids[order], (0, 3), value=PAD[family]), functional.pad(mask[order], (0, 3))
    moved = SoftPrompt(
        functional.pad(soft.positions[order], (0, 3)).masked_fill(wide_mask == 0, 10_000),
        functional.pad(soft.rows[order], (0, 3)).masked_fill(wide_mask == 0, 1), soft.vectors, prefix,
    )
    assert gap(backbone.at(wide, wide_mask, places[order], moved), want[order]) < 1e-12


@pytest.mark.parametrize("engine", ["sdpa", "eager"])
def test_rows_padded_left(family, engine):
    backbone = small_backbone(family, engine)
    ids, mask = (part.flip(1) for part in batch(family))
    soft = random_soft(ids, ("words", "prefix"))
    own = torch.tensor([own_positions(family, row.tolist(), 6) for row in ids])  # BERT counts what stands left, too
    given_positions = SoftPrompt(own, soft.rows, soft.vectors, soft.prefix)
    states = backbone(ids, mask, (-1,), soft)[0]
    for row in range(len(ids)):
        want = loops(weights_of(backbone.model), family, ids, mask, given_positions, row)[-1]
        assert gap(states[row][mask[row].bool()], want) < 1e-9


@pytest.mark.parametrize("engine", ENGINES)
def test_a_prompt_of_nothing_is_bit_for_bit_no_prompt(family, engine):
    ids, mask = batch(family)
    results = []
    for soft in (None, SoftPrompt()):
        backbone = small_backbone(family, engine, dropout=0.1)
        torch.manual_seed(4)
        states = backbone(ids, mask, (0, -1), soft)
        sum(state[mask.bool()].square().sum() for state in states).backward()
        results.append([*(state[mask.bool()] for state in states), *(weight.grad for weight in backbone.parameters())])
    assert all(torch.equal(first, second) for first, second in zip(*results, strict=True))


@pytest.mark.parametrize("engine", ENGINES)
def test_pooled_cls_is_the_state_at_place_0_and_padding_has_none(family, engine):
    backbone = small_backbone(family, engine)
    ids, mask = batch(family)
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
    vectors, counts = {}, {}
    for engine in ("packed", "eager"):
        backbone = small_backbone(family, engine, dropout=0.1)
        for layer in backbone.model.encoder.layer:
            layer.attention.self.dropout.p = 0.3
        turns = itertools.count()
        if vector == "at":
            vectors[engine] = backbone.at(ids, real, lasts(LENGTHS) // 2, soft)
        else:
            vectors[engine] = torch.stack([state[real.bool()] for state in backbone(ids, real, (0, 1, 2), soft)])
        counts[engine] = next(turns)
    assert counts == {"packed": 7, "eager": 7}  # 1 + 3 a layer
    assert gap(vectors["packed"], vectors["eager"]) < 1e-10


def test_vectors_under_dropout_are_distributed_as_transformers_has_them(family):
    """One text many times, two learned words and three slots: two-sample tests of means and squared deviations."""
    rows = 3000
    ids, mask = (part.repeat(rows, 1) for part in batch(family, (7,)))
    words = torch.tensor([-1, 0, -1, 1, -1, -1, -1]).repeat(rows, 1)
    double = {"generator": torch.Generator().manual_seed(8), "dtype": torch.float64}
    vectors = torch.randn(2, WIDTH, **double)
    keys, values = (torch.randn(LAYERS, 1, 6, WIDTH, **double).expand(-1, rows, -1, -1) for _ in range(2))
    soft = SoftPrompt(rows=words, vectors=vectors, prefix=Prefix(keys, values, (torch.arange(6) < 3).expand(rows, -1)))

    def sample(engine, rate):
        torch.manual_seed(5)
        with torch.no_grad():
            return small_backbone(family, engine, rate).at(ids, mask, torch.full((rows,), 3), soft)

    ours, theirs = sample("packed", 0.2), sample("sdpa", 0.2)
    for packed, padded in ((ours, theirs), [(x - x.mean(0)) ** 2 for x in (ours, theirs)]):
        spread = ((packed.var(0) + padded.var(0)) / rows).sqrt()
        assert gap((packed.mean(0) - padded.mean(0)) / spread, 0) < 4.5
    assert float(sample("packed", 0.1).var(0).sum() / ours.var(0).sum()) < 0.8  # the comparison can tell rates apart


@pytest.mark.parametrize("engine", ENGINES)
def test_bfloat16_stays_near_and_its_gradients_are_float32(family, engine):
    vectors = {}
    for autocast in (False, True):
        backbone = small_backbone(family, engine).float()
        ids, mask = batch(family)
        soft = random_soft(ids, ("words", "prefix"))
        leaves = [part.detach().float().requires_grad_() for part in (soft.vectors, soft.prefix.keys, soft.prefix.values)]
        soft = SoftPrompt(None, soft.rows, leaves[0], Prefix(leaves[1], leaves[2], soft.prefix.visible))
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            vectors[autocast] = backbone.at(ids, mask, torch.zeros(len(ids), dtype=torch.long), soft).float()
        vectors[autocast].square().mean().backward()
        for gradient in [leaf.grad for leaf in leaves] + [weight.grad for weight in backbone.parameters()]:
            assert gradient.dtype == torch.float32 and bool(gradient.isfinite().all())
    assert 0 < (vectors[True] - vectors[False]).abs().mean().item() < 0.03


@pytest.mark.parametrize("engine", ENGINES)
def test_positions_beyond_the_models_are_refused_unless_they_are_of_padding(family, engine):
    backbone = small_backbone(family, engine)
    ids, mask = torch.full((2, POSITIONS - 6), 7), torch.ones(2, POSITIONS - 6, dtype=torch.long)
    fitting, long = (random_prefix(2, slots, visible_slots(2, slots, 3)) for slots in (6, 7))
    assert bool(backbone(ids, mask, soft=SoftPrompt(prefix=fitting))[0].isfinite().all())
    last = POSITIONS - 1 if family == "bert" else POSITIONS + 1
    with pytest.raises(EncoderError, match=f"position {last + 1}, and the model's last one is {last}"):
        backbone(ids, mask, soft=SoftPrompt(prefix=long))
    mask[:, -1], ids[:, -1] = 0, PAD[family]
    assert bool(backbone(ids, mask, soft=SoftPrompt(prefix=long))[0].isfinite().all())
    with pytest.raises(EncoderError, match="take a shorter maximum length"):
        backbone(ids, mask, soft=SoftPrompt(positions=torch.full_like(ids, last + 1)))


@pytest.mark.parametrize("engine", ENGINES)
def test_parts_that_do_not_go_together_are_refused(family, engine):
    backbone = small_backbone(family, engine)
    ids, mask = batch(family)
    uneven = visible_slots(len(ids), 6, 3)
    uneven[1] = True
    for soft, message in [
        (SoftPrompt(prefix=random_prefix(len(ids), 6, uneven)), "one row sees 3 slots of the prefix and another 6"),
        (SoftPrompt(prefix=random_prefix(4, 6, visible_slots(4, 6, 3))), "of 2 layers and 4 rows for .* and a batch of 6"),
        (SoftPrompt(prefix=random_prefix(len(ids), 5, visible_slots(len(ids), 6, 3))), "do not go with visible"),
        (SoftPrompt(positions=ids[:, 1:]), "positions .* of a soft prompt for a batch"),
        (SoftPrompt(rows=torch.zeros_like(ids)), "the rows and the vectors of a soft prompt go together"),
    ]:
        with pytest.raises(ValueError, match=message):
            backbone(ids, mask, soft=soft)


NOT_OURS = r"^(DistilBert|MPNet)Model takes no .* BERT and RoBERTa do$"


@pytest.mark.parametrize("other", ["distilbert", "mpnet"])
def test_another_family_is_told_in_one_line(tmp_path, other):
    backbone = load_backbone(build(tmp_path, other), other)
    ids, mask = batch("roberta")
    assert backbone.at(ids, mask, torch.zeros(len(ids), dtype=torch.long)).shape == (len(ids), 32)
    for soft in (SoftPrompt(positions=ids), SoftPrompt(prefix=random_prefix(len(ids), 6, visible_slots(len(ids), 6, 3)))):
        with pytest.raises(EncoderError, match=NOT_OURS):
            backbone(ids, mask, soft=soft)
    forward = PaddedForward(AutoModel.from_pretrained(tmp_path), 0)
    with pytest.raises(EncoderError, match=NOT_OURS):
        forward(torch.tensor([5, 6]), [(1, 2)], (-1,), Soft(positions=torch.tensor([0, 1])))


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_gradient_checkpointing_takes_words_and_refuses_a_prefix(family):
    backbone = small_backbone(family, "sdpa")
    backbone.engine = "auto"
    ids, mask = batch(family)
    soft = random_soft(ids, ("positions", "words"))
    want = backbone(ids, mask, soft=soft)[0][mask.bool()]
    backbone.model.gradient_checkpointing_enable()
    assert gap(backbone(ids, mask, soft=soft)[0][mask.bool()], want) < 1e-12
    with pytest.raises(EncoderError, match="drops a prefix of keys and values under gradient checkpointing"):
        backbone(ids, mask, soft=random_soft(ids, ("prefix",)))
    backbone.eval()  # nothing is checkpointed there, so nothing is dropped
    assert backbone(ids, mask, soft=random_soft(ids, ("prefix",)))[0].shape == (*ids.shape, WIDTH)


def test_the_pooler_mask_loads_and_is_pooled_by_a_method_only(tmp_path):
    backbone = load_backbone(build(tmp_path, "bert"), "tiny", "mask")
    ids, mask = batch("bert")
    assert backbone.vector_width == 32
    with pytest.raises(EncoderError, match="the pooler mask needs a method with a template"):
        backbone.pooled(ids, mask)
    assert backbone.at(ids, mask, torch.zeros(len(ids), dtype=torch.long)).shape == (len(ids), 32)


# --- passes of a test: texts in groups of one length, one prefix for all ---

GROUPS = [(2, 9), (1, 7), (3, 4), (1, 1)]
WANTED = (0, 1, 2, -1)


def evaluated_model(family, engine):
    return small_model(family, "eager" if engine == "eager" else "sdpa", dropout=0.1).eval()


def states_of(model, engine, family, ids, groups, wanted, *soft):
    forward = PackedForward(model) if engine == "packed" else PaddedForward(model, PAD[family])
    with torch.inference_mode():
        return forward(ids, groups, wanted, *soft)


def texts_of(groups, seed=1):
    """Random tokens, the padding tokens of both families among them; and all of them in a row."""
    generator = torch.Generator().manual_seed(seed)
    texts = [torch.randint(0, VOCAB, (length,), generator=generator) for count, length in groups for _ in range(count)]
    return texts, torch.cat(texts)


def soft_of(tokens, parts, slots=4, shift=5, seed=3) -> Soft:
    double = {"generator": torch.Generator().manual_seed(seed), "dtype": torch.float64}
    positions = torch.randint(0, POSITIONS, (tokens,), generator=double["generator"]) if "positions" in parts else None
    rows = torch.randint(-1, 4, (tokens,), generator=double["generator"]) if "words" in parts else None
    vectors = torch.randn(4, WIDTH, **double) if "words" in parts else None
    prefix = KeyValues(*torch.randn(2, LAYERS, slots, WIDTH, **double)) if "prefix" in parts else None
    return Soft(positions, rows, vectors, prefix, shift)


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 8), min_size=1, max_size=4, unique=True), count=st.integers(1, 2), family=FAMILIES,
    engine=st.sampled_from(ENGINES), slots=st.integers(1, 5), shift=st.integers(0, 8), seed=st.integers(0, 99),
    parts=st.sets(st.sampled_from(PARTS)),
)
@example(lengths=[9, 7, 4, 1], count=2, family="bert", engine="packed", slots=4, shift=5, seed=1, parts=set(PARTS))
@example(lengths=[9, 7, 4, 1], count=2, family="roberta", engine="eager", slots=4, shift=5, seed=1, parts=set(PARTS))
def test_every_state_of_a_test_is_what_the_loops_compute(lengths, count, family, engine, slots, shift, seed, parts):
    groups = [(count, length) for length in sorted(lengths, reverse=True)]
    model, (texts, ids) = evaluated_model(family, engine), texts_of(groups, seed)
    soft = soft_of(len(ids), parts, slots, shift, seed)
    states = states_of(model, engine, family, ids, groups, WANTED, soft)
    weights, start = weights_of(model), 0
    prefix = None if soft.prefix is None else slots_of(soft.prefix.keys, soft.prefix.values)
    for text in texts:
        places, tokens = slice(start, start + len(text)), text.tolist()
        positions = own_positions(family, tokens, shift) if soft.positions is None else soft.positions[places].tolist()
        words = {} if soft.rows is None else {
            i: soft.vectors[row].numpy() for i, row in enumerate(soft.rows[places].tolist()) if row >= 0}
        want = naive_states(weights, tokens, positions, words, prefix)
        assert max(gap(got[places], want[index]) for got, index in zip(states, WANTED, strict=True)) < 1e-9
        start += len(text)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_model_in_bfloat16_takes_a_prefix_and_words_in_float32(family, engine):
    _, ids = texts_of(GROUPS)
    soft = soft_of(len(ids), ("words", "prefix"))
    soft = Soft(None, soft.rows, soft.vectors.float(), KeyValues(soft.prefix.keys.float(), soft.prefix.values.float()), 4)
    states = {kind: states_of(evaluated_model(family, engine).to(kind), engine, family, ids, GROUPS, (-1,), soft)[0]
              for kind in (torch.float32, torch.bfloat16)}
    assert all(state.dtype == kind for kind, state in states.items())
    assert 0 < (states[torch.bfloat16].float() - states[torch.float32]).abs().mean().item() < 0.05


@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_model_has_no_position_or_layer_for_is_refused_in_a_test(family, engine):
    model = evaluated_model(family, engine)
    groups, ids = [(1, POSITIONS - 4), (1, 2)], torch.full((POSITIONS - 2,), 7)
    last = POSITIONS - 1 if family == "bert" else POSITIONS + 1
    assert bool(states_of(model, engine, family, ids, groups, (-1,), Soft(shift=4))[0].isfinite().all())
    with pytest.raises(EncoderError, match=f"position {last + 1}, and the model's last one is {last}"):
        states_of(model, engine, family, ids, groups, (-1,), Soft(shift=5))
    with pytest.raises(EncoderError, match=f"position {last + 3}"):
        states_of(model, engine, family, ids, groups, (-1,), Soft(positions=torch.full_like(ids, last + 3)))
    for layers in (LAYERS - 1, LAYERS + 1):
        prefix = KeyValues(*torch.randn(2, layers, 4, WIDTH, dtype=torch.float64))
        with pytest.raises(EncoderError, match=f"for {layers} layers, and the model has {LAYERS}"):
            states_of(model, engine, family, torch.tensor([5, 6]), [(1, 2)], (-1,), Soft(prefix=prefix))
