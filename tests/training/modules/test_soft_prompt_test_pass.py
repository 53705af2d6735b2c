"""Test passes with positions, learned words and a prefix against BERT and RoBERTa in loops and the training passes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from soft_oracle import (
    ENGINES,
    LAYERS,
    PAD,
    POSITIONS,
    VOCAB,
    WIDTH,
    naive_states,
    own_positions,
    small_model,
    weights_of,
)
from tiny_models import build
from transformers import AutoModel

from stsbench.encoders.forward.batching import KeyValues, Soft
from stsbench.encoders.forward.passes import PackedForward, PaddedForward
from stsbench.errors import EncoderError
from stsbench.training.modules.backbone import Backbone
from stsbench.training.modules.soft_prompt import Prefix, SoftPrompt

GROUPS = [(2, 9), (1, 7), (3, 4), (1, 1)]
WANTED = (0, 1, 2, -1)


@pytest.fixture(params=["bert", "roberta"])
def family(request):
    return request.param


def _forward(model, engine, family):
    return PackedForward(model) if engine == "packed" else PaddedForward(model, PAD[family])


def _model(family, engine):
    return small_model(family, "eager" if engine == "eager" else "sdpa", dropout=0.1).eval()


def _texts(groups, seed=1) -> list[list[int]]:
    """Random tokens, the padding tokens of both families among them."""
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randint(0, VOCAB, (length,), generator=generator).tolist() for texts, length in groups for _ in range(texts)
    ]


def _flat(texts) -> torch.Tensor:
    return torch.tensor([token for text in texts for token in text])


def _soft(tokens, parts, slots=4, shift=5, seed=3) -> Soft:
    generator = torch.Generator().manual_seed(seed)
    double = {"generator": generator, "dtype": torch.float64}
    positions = torch.randint(0, POSITIONS, (tokens,), generator=generator) if "positions" in parts else None
    rows = torch.randint(-1, 4, (tokens,), generator=generator) if "words" in parts else None
    vectors = torch.randn(4, WIDTH, **double) if "words" in parts else None
    prefix = None
    if "prefix" in parts:
        prefix = KeyValues(torch.randn(LAYERS, slots, WIDTH, **double), torch.randn(LAYERS, slots, WIDTH, **double))
    return Soft(positions, rows, vectors, prefix, shift if "shift" in parts else 0)


def _loops(model, family, texts, soft) -> list[torch.Tensor]:
    """[0 embeddings, 1, 2] -> (tokens, d), text after text."""
    weights, start, found = weights_of(model), 0, []
    prefix = None
    if soft.prefix is not None:
        prefix = [
            [(key.numpy(), value.numpy()) for key, value in zip(*layer, strict=True)]
            for layer in zip(soft.prefix.keys, soft.prefix.values, strict=True)
        ]
    for tokens in texts:
        places = range(start, start + len(tokens))
        positions = own_positions(family, tokens, soft.shift)
        if soft.positions is not None:
            positions = [int(soft.positions[place]) for place in places]
        words = {}
        if soft.rows is not None:
            words = {i: soft.vectors[soft.rows[p]].numpy() for i, p in enumerate(places) if soft.rows[p] >= 0}
        found.append([torch.from_numpy(state) for state in naive_states(weights, tokens, positions, words, prefix)])
        start += len(tokens)
    return [torch.cat(states) for states in zip(*found, strict=True)]


def _gap(one, other) -> float:
    return float((one - other).abs().max())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("parts", [
    ("positions",), ("words",), ("prefix",), ("shift",), ("prefix", "shift"), ("positions", "words", "prefix", "shift"),
])
def test_every_state_is_what_the_loops_compute(family, engine, parts):
    model, texts = _model(family, engine), _texts(GROUPS)
    ids = _flat(texts)
    soft = _soft(len(ids), parts)
    with torch.inference_mode():
        found = _forward(model, engine, family)(ids, GROUPS, WANTED, soft)
        plain = _forward(model, engine, family)(ids, GROUPS, (-1,))[0]
    want = _loops(model, family, texts, soft)
    for got, index in zip(found, WANTED, strict=True):
        assert _gap(got, want[index]) < 1e-9
    assert _gap(plain, want[-1]) > 1e-3  # the prompt does something
    assert _gap(plain, _loops(model, family, texts, Soft())[-1]) < 1e-9


@settings(max_examples=15, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 8), min_size=1, max_size=4, unique=True), texts=st.integers(1, 2),
    family=st.sampled_from(["bert", "roberta"]), engine=st.sampled_from(ENGINES), slots=st.integers(1, 5),
    shift=st.integers(0, 8), seed=st.integers(0, 99), parts=st.sets(st.sampled_from(["positions", "words", "prefix"])),
)
def test_any_groups_slots_and_shifts(lengths, texts, family, engine, slots, shift, seed, parts):
    groups = [(texts, length) for length in sorted(lengths, reverse=True)]
    model, rows = _model(family, engine), _texts(groups, seed)
    ids = _flat(rows)
    soft = _soft(len(ids), {*parts, "shift"}, slots, shift, seed)
    with torch.inference_mode():
        found = _forward(model, engine, family)(ids, groups, (-1,), soft)[0]
    assert _gap(found, _loops(model, family, rows, soft)[-1]) < 1e-9


@pytest.mark.parametrize("engine", ENGINES)
def test_the_training_pass_in_eval_mode_gives_the_same_states(family, engine):
    model, texts = _model(family, engine), _texts(GROUPS)
    ids = _flat(texts)
    order = [3, 0, 6, 2, 5, 1, 4]  # training batches are not sorted
    width = max(len(text) for text in texts)
    padded = torch.tensor([texts[i] + [PAD[family]] * (width - len(texts[i])) for i in order])
    mask = torch.tensor([[1] * len(texts[i]) + [0] * (width - len(texts[i])) for i in order])
    starts = [sum(len(text) for text in texts[:i]) for i in range(len(texts))]
    backbone = Backbone(model, None, engine="packed" if engine == "packed" else "padded")

    def spread(values, fill):
        rows = [values[starts[i] : starts[i] + len(texts[i])].tolist() for i in order]
        return torch.tensor([row + [fill] * (width - len(row)) for row in rows])

    for parts in (("positions", "words", "prefix"), ("prefix",), ("words",)):
        soft = _soft(len(ids), parts)
        if "prefix" in parts:
            soft = Soft(soft.positions, soft.rows, soft.vectors, soft.prefix, shift=4)  # as many as slots, as in training
        training = SoftPrompt(
            None if soft.positions is None else spread(soft.positions, 0),
            None if soft.rows is None else spread(soft.rows, -1), soft.vectors,
            None if soft.prefix is None else Prefix(
                *(part.unsqueeze(1).expand(-1, len(order), -1, -1) for part in (soft.prefix.keys, soft.prefix.values)),
                torch.ones(len(order), 4, dtype=torch.bool),
            ),
        )
        with torch.inference_mode():
            tested = _forward(model, engine, family)(ids, GROUPS, (-1,), soft)[0]
            trained = backbone(padded, mask, (-1,), training)[0]
        for row, i in enumerate(order):
            assert _gap(trained[row, : len(texts[i])], tested[starts[i] : starts[i] + len(texts[i])]) < 1e-12


@pytest.mark.parametrize("engine", ENGINES)
def test_a_soft_prompt_of_nothing_changes_nothing(family, engine):
    model, ids = _model(family, engine), _flat(_texts(GROUPS))
    with torch.inference_mode():
        forward = _forward(model, engine, family)
        for one, other in zip(forward(ids, GROUPS, WANTED), forward(ids, GROUPS, WANTED, Soft()), strict=True):
            assert _gap(one, other) < 1e-14


@pytest.mark.parametrize("engine", ENGINES)
def test_a_model_in_bfloat16_takes_a_prefix_and_words_in_float32(family, engine):
    ids = _flat(_texts(GROUPS))
    soft = _soft(len(ids), ("words", "prefix"))
    soft = Soft(None, soft.rows, soft.vectors.float(), KeyValues(soft.prefix.keys.float(), soft.prefix.values.float()), 4)
    found = {}
    with torch.inference_mode():
        for kind in (torch.float32, torch.bfloat16):
            model = _model(family, engine).to(kind)
            found[kind] = _forward(model, engine, family)(ids, GROUPS, (-1,), soft)[0]
            assert found[kind].dtype == kind
    assert 0 < (found[torch.bfloat16].float() - found[torch.float32]).abs().mean().item() < 0.05


@pytest.mark.parametrize("engine", ENGINES)
def test_positions_beyond_the_models_are_refused_at_the_first_that_is(family, engine):
    forward = _forward(_model(family, engine), engine, family)
    groups, ids = [(1, POSITIONS - 4), (1, 2)], torch.full((POSITIONS - 2,), 7)
    last = POSITIONS - 1 if family == "bert" else POSITIONS + 1
    with torch.inference_mode():
        assert bool(forward(ids, groups, (-1,), Soft(shift=4))[0].isfinite().all())
        with pytest.raises(EncoderError, match=f"position {last + 1}, and the model's last one is {last}"):
            forward(ids, groups, (-1,), Soft(shift=5))
        with pytest.raises(EncoderError, match=f"position {last + 3}"):
            forward(ids, groups, (-1,), Soft(positions=torch.full_like(ids, last + 3)))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("layers", [LAYERS - 1, LAYERS + 1])
def test_a_prefix_of_another_depth_is_refused(family, engine, layers):
    prefix = KeyValues(*torch.randn(2, layers, 4, WIDTH, dtype=torch.float64))
    with torch.inference_mode(), pytest.raises(EncoderError, match=f"for {layers} layers, and the model has {LAYERS}"):
        _forward(_model(family, engine), engine, family)(torch.tensor([5, 6]), [(1, 2)], (-1,), Soft(prefix=prefix))


@pytest.mark.parametrize("other", ["distilbert", "mpnet"])
def test_another_family_is_told_in_one_line(tmp_path, other):
    forward = PaddedForward(AutoModel.from_pretrained(build(tmp_path, other)), 0)
    with pytest.raises(EncoderError, match=r"^(DistilBert|MPNet)Model takes no .* BERT and RoBERTa do$"):
        forward(torch.tensor([5, 6]), [(1, 2)], (-1,), Soft(positions=torch.tensor([0, 1])))
