"""Positions, learned words and prefixes against BERT and RoBERTa written out in loops, in float64, packed and padded; whose
dropout is whose in template denoising."""

import itertools

import pytest
import torch
from bert_equations import Change, encode
from families import family_model
from hypothesis import example, given, settings
from hypothesis import strategies as st
from prompt_models import backbone as prompted
from tiny_models import build
from torch.nn import functional

from stsbench.encoders.prompt.template import TokenTemplate
from stsbench.errors import EncoderError
from stsbench.training.modules.backbone import Backbone, load_backbone
from stsbench.training.modules.packed_training import Masks
from stsbench.training.modules.prompting import template_vectors
from stsbench.training.modules.soft_prompt import EmbeddingChange, Prefix, SoftPrompt

HEADS, WIDTH, LAYERS, VOCAB, POSITIONS = 3, 12, 2, 30, 24
ENGINES = ["packed", "sdpa", "eager"]
PAD = {"bert": 0, "roberta": 1}
LENGTHS = (5, 9, 2, 9, 7, 1)
PARTS = ("positions", "words", "prefix")


def gap(first, second):
    return float((torch.as_tensor(first) - torch.as_tensor(second)).detach().abs().max())


def small_backbone(family, engine, dropout=0.0):
    """Of a random model in float64, whose padding token is 0 (BERT) or 1 (RoBERTa), with room for POSITIONS tokens."""
    model = family_model(
        family, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS, vocab_size=VOCAB,
        hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, pad_token_id=PAD[family],
        max_position_embeddings=POSITIONS + 2 * PAD[family], attn_implementation="eager" if engine == "eager" else "sdpa")
    model.pooler = None
    model = model.requires_grad_(True).double().train()
    return Backbone(model, None, engine="packed" if engine == "packed" else "padded")


def own_positions(family, tokens, shift=0):
    """As the two papers' code counts: BERT from 0, RoBERTa from behind its padding token 1, which itself counts nothing."""
    if family == "bert":
        return [shift + place for place in range(len(tokens))]
    actual, count = [], 0
    for token in tokens:
        count += token != 1
        actual.append(1 if token == 1 else 1 + shift + count)
    return actual


def batch(family, lengths=LENGTHS, seed=1):
    """Random tokens, the padding token among them inside a text."""
    ids = torch.randint(0, VOCAB, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(seed))
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)).long()
    ids[0, -1 if lengths[0] == max(lengths) else 1] = PAD[family]
    return torch.where(mask == 1, ids, PAD[family]), mask


def visible_slots(rows, slots, seen, seed=0):
    return torch.rand(rows, slots, generator=torch.Generator().manual_seed(seed)).argsort(1) < seen


def random_prefix(rows, slots, visible, seed=2):
    generator = torch.Generator().manual_seed(seed)
    keys, values = (torch.randn(LAYERS, rows, slots, WIDTH, generator=generator, dtype=torch.float64) for _ in range(2))
    return Prefix(keys.requires_grad_(), values.requires_grad_(), visible)


def random_soft(ids, parts, seen=3, slots=6, seed=3):
    generator = torch.Generator().manual_seed(seed)
    positions = torch.randint(2, POSITIONS, ids.shape, generator=generator) if "positions" in parts else None
    rows = torch.randint(-1, 4, ids.shape, generator=generator) if "words" in parts else None
    vectors = torch.randn(4, WIDTH, generator=generator, dtype=torch.float64).requires_grad_() if "words" in parts else None
    prefix = random_prefix(len(ids), slots, visible_slots(len(ids), slots, seen)) if "prefix" in parts else None
    return SoftPrompt(positions, rows, vectors, prefix)


def loops(model, family, ids, mask, soft, row):
    """[layer] (L, d): the states of one row of a training batch; every array that `soft` holds is read anew."""
    places, shift, change = mask[row].nonzero().flatten().tolist(), 0, Change()
    tokens = [int(ids[row, place]) for place in places]
    if soft.prefix is not None:
        seen, shift = soft.prefix.visible[row], soft.prefix.visible.shape[1]
        change = Change(keys=list(soft.prefix.keys[:, row, seen]), values=list(soft.prefix.values[:, row, seen]))
    positions = own_positions(family, tokens, shift) if soft.positions is None else soft.positions[row, places].tolist()
    words = {} if soft.rows is None else {
        i: soft.vectors[soft.rows[row, place]] for i, place in enumerate(places) if soft.rows[row, place] >= 0}
    return encode(model.state_dict(), tokens, positions, change, every=True, heads=HEADS, words=words)


def lasts(lengths):
    return torch.tensor([length - 1 for length in lengths])


@settings(max_examples=12, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 8), min_size=1, max_size=6), family=st.sampled_from([*PAD]), slots=st.integers(1, 5),
    engine=st.sampled_from(ENGINES), share=st.floats(0, 1), seed=st.integers(0, 99), parts=st.sets(st.sampled_from(PARTS)))
@example(lengths=LENGTHS, family="bert", engine="packed", slots=5, share=0.5, seed=1, parts=set(PARTS))
@example(lengths=LENGTHS, family="roberta", engine="eager", slots=5, share=0.5, seed=1, parts=set(PARTS))
def test_every_state_of_a_training_pass_is_what_the_loops_compute(lengths, family, engine, slots, share, seed, parts):
    backbone = small_backbone(family, engine)
    ids, mask = batch(family, lengths, seed)
    soft = random_soft(ids, parts, seen=round(share * slots), slots=slots, seed=seed)
    states = backbone(ids, mask, (0, 1, 2), soft)
    middle = lasts(lengths) // 2
    last, inner = (backbone.at(ids, mask, places, soft) for places in (lasts(lengths), middle))
    for row, length in enumerate(lengths):
        want = loops(backbone.model, family, ids, mask, soft, row)
        assert max(gap(got[row, :length], expected) for got, expected in zip(states, want, strict=True)) < 1e-9
        assert gap(last[row], want[2][-1]) < 1e-9 and gap(inner[row], want[2][middle[row]]) < 1e-9
    if parts & {"positions", "words"} and max(lengths) > 1:  # the prompt does something
        assert gap(backbone(ids, mask)[0][mask.bool()], states[2][mask.bool()]) > 1e-3


@pytest.mark.parametrize(("family", "vector"), [("bert", "at"), ("roberta", "states")])
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


@pytest.mark.parametrize(("family", "engine"), [("bert", "packed"), ("roberta", "sdpa")])
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


@pytest.mark.parametrize("engine", ["packed", "sdpa"])
def test_parts_that_do_not_go_together_or_are_of_another_batch_are_refused(engine):
    backbone = small_backbone("bert", engine)
    (ids, mask), (n, longest) = batch("bert"), (len(LENGTHS), max(LENGTHS))
    changes = (
        EmbeddingChange((torch.zeros(n, longest, dtype=torch.bool),)), EmbeddingChange((torch.zeros(n, longest, 1),)),
        EmbeddingChange((torch.zeros(n, longest + 1, 1, dtype=torch.bool),)),
        EmbeddingChange(added=torch.zeros(n + 1, longest, WIDTH)),
        EmbeddingChange(replacement=torch.zeros(n, longest - 1, WIDTH)),
        EmbeddingChange(leading=torch.zeros(n - 1, 1, WIDTH)), EmbeddingChange(leading=torch.zeros(n, longest + 1, WIDTH)),
        EmbeddingChange(replacement=torch.zeros(n, longest, WIDTH), leading=torch.zeros(n, 1, WIDTH)))
    uneven = visible_slots(len(ids), 6, 3)
    uneven[1] = True
    for soft, message in [
        (SoftPrompt(prefix=random_prefix(len(ids), 6, uneven)), "one row sees 3 slots of the prefix and another 6"),
        (SoftPrompt(prefix=random_prefix(4, 6, visible_slots(4, 6, 3))), "of 2 layers and 4 rows for .* and a batch of 6"),
        (SoftPrompt(prefix=random_prefix(len(ids), 5, visible_slots(len(ids), 6, 3))), "do not go with visible"),
        (SoftPrompt(positions=ids[:, 1:]), "positions .* of a soft prompt for a batch"),
        (SoftPrompt(rows=torch.zeros_like(ids)), "the rows and the vectors of a soft prompt go together"),
        *((SoftPrompt(change=change), "of a batch") for change in changes),
    ]:
        with pytest.raises(ValueError, match=message):
            backbone(ids, mask, soft=soft)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_gradient_checkpointing_takes_words_and_refuses_a_prefix():
    backbone = small_backbone("bert", "sdpa")
    backbone.engine = "auto"
    ids, mask = batch("bert")
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


@pytest.mark.parametrize(("positions", "gradient"), [("matched", True), ("empty", False)])
def test_texts_of_one_count_share_a_rows_dropout_and_others_have_their_own(tmp_path, positions, gradient):
    counts = torch.tensor([3, 0, 7, 3, 12, 7])
    made = prompted(tmp_path, "bert").train()
    template = TokenTemplate(made.tokenizer, 'the man of "{}" means [MASK].', "t")
    asked: list[int] = []

    def prefix(m):
        asked.append(m)
        slots = torch.zeros(3, m, 1, 32, dtype=torch.float64)
        return Prefix(slots, slots, torch.zeros(m, 1, dtype=torch.bool))

    got = template_vectors(made, template, counts, positions=positions, gradient=gradient, prefix=prefix)
    assert asked == [4]  # one pass, a row for each distinct count
    assert torch.equal(got[0], got[3]) and torch.equal(got[2], got[5])
    for i, j in ((0, 1), (0, 2), (1, 4)):
        assert (got[i] - got[j]).abs().max() > 1e-3
    assert not torch.equal(got, template_vectors(made, template, counts, positions=positions, prefix=prefix))
    assert made.training
