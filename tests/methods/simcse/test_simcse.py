"""SimCSE's loss under every option against loops over texts encoded one at a time by transformers."""

import math

import numpy as np
import pytest
import torch
from method_oracle import LIMIT, MemoryRows, batch_of, logits, states, tokens, total
from simcse_oracle import (
    PAIRS,
    PLAIN,
    QUADRUPLES,
    TEXTS,
    TRIPLETS,
    cls,
    count_passes,
    folder,
    headless,
    heads,
    loss,
    naive_info_nce,
    same,
    simcse,
)

from stsbench.config import validate
from stsbench.errors import DataError, StsbenchError
from stsbench.methods.simcse.method import SimCSE
from stsbench.methods.simcse.options import SimCSEOptions
from stsbench.training.recipes.method_plan import MethodPlan

__all__ = ["folder", "headless"]


# --- the contrastive term ---


@pytest.mark.parametrize("options", [{}, {"temperature": 0.2}, {"similarity": "dot"}, {"head": "mlp"}, {"head": "none"}])
def test_plain_sentences(folder, options):
    method = simcse(folder, **options)
    dense = None if options.get("head") == "none" else method.head.dense
    vectors = cls(folder, PLAIN["sentence"], dense)
    rest = {key: value for key, value in options.items() if key != "head"}
    same(loss(method, MemoryRows(folder, PLAIN)), naive_info_nce(vectors, vectors, **rest))


@pytest.mark.parametrize(("data", "options"), [
    (PAIRS, {}), (TRIPLETS, {}), (TRIPLETS, {"alpha": 0.5}), (QUADRUPLES, {"alpha": 2.0}),
    (QUADRUPLES, {"similarity": "dot"}),
])
def test_pairs_and_hard_negatives(folder, data, options):
    method = simcse(folder, **options)
    queries, keys, *negatives = [cls(folder, texts, method.head.dense) for texts in data.values()]
    same(loss(method, MemoryRows(folder, data)), naive_info_nce(queries, keys, negatives, **options))


@pytest.mark.parametrize("pooler", ["mean", "first_last:layer1", "max"])
def test_other_poolers_have_no_head(folder, pooler):
    method = simcse(folder, pooler=pooler, head="none")
    model = method.backbone.model.eval()
    vectors = []
    with torch.no_grad():
        for row in tokens(folder, PLAIN["sentence"]):
            hidden = [state[0] for state in model(torch.tensor([row]), output_hidden_states=True).hidden_states]
            means = [state.mean(0) for state in hidden]
            options = {"mean": means[-1], "first_last:layer1": (means[1] + means[-1]) / 2, "max": hidden[-1].amax(0)}
            vectors.append(options[pooler].tolist())
    same(loss(method, MemoryRows(folder, PLAIN)), naive_info_nce(vectors, vectors))
    with pytest.raises(StsbenchError, match=r"options\.head mlp_train_only stands on the pooler cls"):
        simcse(folder, pooler=pooler)


def test_a_batch_of_one_sentence_over_and_over_has_the_loss_of_a_guess(folder):
    rows = MemoryRows(folder, {"sentence": [TEXTS[0]] * 7})
    same(loss(simcse(folder), rows), math.log(7))


@pytest.mark.parametrize("data", [PLAIN, QUADRUPLES])
@pytest.mark.parametrize("options", [{}, {"mlm_weight": 0.1}])
def test_padding_changes_nothing(folder, data, options):
    method, rows = simcse(folder, **options), MemoryRows(folder, data)
    short, long = (total(method(batch_of(method, rows, more_padding=columns))) for columns in (0, 7))
    same(long, short.item())


def test_the_parameters_that_learn(folder):
    method = simcse(folder, mlm_weight=0.1)
    total(method(batch_of(method, MemoryRows(folder, PLAIN)))).backward()
    without = {name for name, weight in method.named_parameters() if weight.grad is None or not weight.grad.any()}
    assert not without
    assert not [name for name, _ in method.named_parameters() if "pooler" in name]


# --- dropout as the only difference ---


def test_two_dropout_masks_in_one_forward_pass(folder):
    method = simcse(folder, dropout=0.1)
    calls = count_passes(method.backbone)
    first = loss(method, MemoryRows(folder, PLAIN))
    ((rows, pooled),) = calls
    assert rows == 2 * 5
    assert (pooled[:5] - pooled[5:]).abs().amax(1).min() > 1e-3  # every sentence's two vectors differ
    vectors = heads(pooled, method.head.dense)
    same(first, naive_info_nce(vectors[:5], vectors[5:]))
    method.eval()
    plain = cls(folder, PLAIN["sentence"], method.head.dense)
    same(loss(method, MemoryRows(folder, PLAIN)), naive_info_nce(plain, plain))


def test_fixed_dropout_mask_makes_both_views_one_vector(folder):
    method = simcse(folder, dropout=0.1, fixed_dropout_mask=True)
    calls = count_passes(method.backbone)
    value = loss(method, MemoryRows(folder, PLAIN))
    ((rows, pooled),) = calls
    assert rows == 5
    vectors = heads(pooled, method.head.dense)
    same(value, naive_info_nce(vectors, vectors))
    plain = cls(folder, PLAIN["sentence"], method.head.dense)
    assert abs(value.item() - naive_info_nce(plain, plain)) > 1e-4  # dropout did act


def test_with_a_fixed_dropout_mask_both_sides_carry_the_gradient(folder):
    method, rows, step = simcse(folder, fixed_dropout_mask=True), MemoryRows(folder, PLAIN), 1e-6
    weight = method.head.dense.weight
    (exact,) = torch.autograd.grad(loss(method, rows), weight)
    place, values = divmod(int(exact.abs().argmax()), exact.shape[1]), []
    for change in (step, -2 * step):
        with torch.no_grad():
            weight[place] += change
            values.append(loss(method, rows).item())
    assert exact[place].item() == pytest.approx((values[0] - values[1]) / (2 * step), rel=1e-5)


# --- two encoders ---


def test_two_encoders(folder):
    method = simcse(folder, encoders=2)
    backbone, head = method.second
    for mine, other in zip(method.backbone.parameters(), backbone.parameters(), strict=True):
        assert torch.equal(mine, other) and mine is not other
    assert backbone.tokenizer is method.backbone.tokenizer
    assert torch.equal(head.dense.weight, method.head.dense.weight)
    rows = MemoryRows(folder, TRIPLETS)
    same(loss(method, rows), loss(simcse(folder), rows).item())  # they start alike
    with torch.no_grad():
        for weight in method.second.parameters():
            weight.add_(0.05)
    first, second = count_passes(method.backbone), count_passes(backbone)
    value = loss(method, rows)
    assert [count for count, _ in first] == [5] and [count for count, _ in second] == [10]
    backbone.model.eval()
    with torch.no_grad():
        keys, negatives = [
            heads([backbone.model(torch.tensor([row])).last_hidden_state[0, 0] for row in tokens(folder, texts)], head.dense)
            for texts in (TRIPLETS["positive"], TRIPLETS["negative"])
        ]
    queries = cls(folder, TRIPLETS["anchor"], method.head.dense)
    same(value, naive_info_nce(queries, keys, [negatives]))
    value.backward()
    assert all(weight.grad.any() for weight in method.second.parameters())
    assert method.inference().model is method.backbone.model


# --- the masked-LM term ---


def naive_mlm(folder, batch):
    """Mean of -log p over the labelled positions, row by row, by AutoModelForMaskedLM."""
    ids, labels = batch.extra["mlm_ids"], batch.extra["mlm_labels"]
    lost = []
    for row, wanted, real in zip(ids, labels, batch.mask, strict=True):
        length = int(real.sum())
        (found,) = logits(folder, [row[:length].tolist()])
        for position in range(length):
            if wanted[position] != -100:
                scores = found[position].tolist()
                top = max(scores)
                lost.append(math.log(sum(math.exp(s - top) for s in scores)) + top - scores[int(wanted[position])])
    return sum(lost) / len(lost), len(lost)


@pytest.mark.parametrize("in_place", [False, True])
def test_masked_lm_term(folder, in_place):
    method = simcse(folder, mlm_weight=0.3, mlm_probability=0.4, mlm_in_place=in_place)
    batch = batch_of(method, MemoryRows(folder, TRIPLETS))
    terms = method(batch)
    expected, count = naive_mlm(folder, batch)
    same(terms["mlm"].value, expected)
    assert terms["mlm"].count == count and terms["mlm"].weight == 0.3 and terms["contrastive"].weight == 1
    ids = batch.extra["mlm_ids"] if in_place else batch.ids
    rows = [row[: int(real.sum())].tolist() for row, real in zip(ids, batch.mask, strict=True)]
    vectors = heads([state[0] for state in states(folder, rows)], method.head.dense)
    same(terms["contrastive"].value, naive_info_nce(vectors[:5], vectors[5:10], [vectors[10:]]))


def test_masked_copies_differ_between_the_views(folder):
    method = simcse(folder, mlm_weight=0.1, mlm_probability=0.5)
    rows = MemoryRows(folder, {"sentence": TEXTS[:40]})
    views = method.views(rows, np.random.default_rng(0))
    assert [row.tolist() for row in views.tokens[0]] == [row.tolist() for row in views.tokens[1]]
    first, second = ([row.tolist() for row in view] for view in views.extra["mlm_labels"])
    assert first != second


def test_the_masked_lm_head_is_not_tied(folder):
    method = simcse(folder, mlm_weight=0.1)
    assert method.lm_head.decoder.weight is not method.backbone.model.get_input_embeddings().weight
    assert simcse(folder).lm_head is None


# --- views, roles, options, the tested encoder ---

EVERY_VIEW = [
    {}, {"fixed_dropout_mask": True}, {"mlm_weight": 0.1}, {"view": "crop", "rate": 0.2},
    {"view": "delete_words", "rate": 0.2}, {"view": "delete_one_word"}, {"view": "next"}, {"view": "next3"},
    {"view": "mlm", "rate": 0.3},
]
RANDOM = [options for options in EVERY_VIEW[2:] if options.get("view") != "next"]


def listed(views):
    return [[[list(map(int, row)) for row in view] for view in part] for part in (views.tokens, *views.extra.values())]


@pytest.mark.parametrize("options", EVERY_VIEW)
def test_views_depend_on_the_generator_alone(folder, options):
    method = simcse(folder, dropout=0.1, **options)
    rows = MemoryRows(folder, {"sentence": TEXTS}, range(30), documents=[0] * 60)
    first = listed(method.views(rows, np.random.default_rng(8)))
    torch.manual_seed(99), np.random.seed(99)
    assert listed(method.views(rows, np.random.default_rng(8))) == first
    assert (listed(method.views(rows, np.random.default_rng(9))) != first) == (options in RANDOM)
    assert all(len(row) <= LIMIT for part in first for view in part for row in view)


@pytest.mark.parametrize(("given", "used"), [
    (("sentence",), ("sentence",)), (("positive", "anchor"), ("anchor", "positive")),
    (("anchor", "positive", "negative", "label"), ("anchor", "positive", "negative")),
    (("negative2", "negative", "anchor", "positive"), ("anchor", "positive", "negative", "negative2")),
])
def test_roles(given, used):
    options = SimCSEOptions(view="dropout" if "sentence" in given else "given")
    assert MethodPlan(SimCSE, options).roles(given) == used
    other = SimCSEOptions(view="given" if "sentence" in given else "dropout")
    with pytest.raises(StsbenchError, match="supervised recipe"):  # triplets are not taken for plain text, nor the reverse
        MethodPlan(SimCSE, other).roles(given)


@pytest.mark.parametrize(("options", "given", "expected"), [
    ({}, ("premise", "hypothesis"), "needs the column sentence, or anchor and positive (the data give premise, hypothesis)"),
    ({}, (), "the data give no column"),
    ({"view": "given"}, ("anchor",), "needs the column positive beside anchor"),
    ({}, ("negative", "positive"), "needs the column anchor beside positive"),
    ({}, ("sentence", "anchor", "positive"), "name one or the other"),
    ({}, ("anchor", "positive", "negative2"), "negative2 without negative"),
    ({"view": "next"}, ("anchor", "positive"), "options.view next makes positives of plain sentences"),
    ({"view": "crop", "rate": 0.1}, ("anchor", "positive"), "options.view crop"),
    ({}, ("anchor", "positive"), "take a supervised recipe, e.g. sup-bert-base, or set options.view given"),
    ({"view": "given", "fixed_dropout_mask": True}, ("anchor", "positive"), "with view given and encoders 1"),
    ({"alpha": 2}, ("sentence",), "plain sentences have none"),
    ({"alpha": 2, "view": "given"}, ("anchor", "positive"), "the data have none"),
    ({"view": "crop"}, ("sentence",), "options.view crop needs rate"),
    ({"view": "mlm"}, ("sentence",), "options.view mlm needs rate"),
    ({"rate": 0.1}, ("sentence",), "options.rate 0.1 has no effect with view dropout: it goes with view crop, delete_words "
     "or mlm; leave it at null"),
    ({"view": "synonym"}, ("sentence",), "options.view synonym needs thesaurus"),
    ({"thesaurus": "x"}, ("sentence",), "it goes with view synonym"),
    ({"replacer": "x"}, ("sentence",), "it goes with view mlm"),
    ({"augment_both": True}, ("sentence",), "options.augment_both true has no effect with view dropout"),
    ({"fixed_dropout_mask": True, "view": "delete_one_word"}, ("sentence",), "it goes with view dropout and encoders 1"),
    ({"fixed_dropout_mask": True, "encoders": 2}, ("sentence",), "it goes with view dropout and encoders 1"),
    ({"mlm_in_place": True}, ("sentence",), "it goes with mlm_weight above 0"),
    ({"mlm_weight": 0.1, "view": "mlm", "rate": 0.1}, ("sentence",), "options.mlm_weight 0.1 and view mlm exclude each"),
    ({"mlm_weight": 0.1, "encoders": 2}, ("sentence",), "options.mlm_weight 0.1 and encoders 2 exclude each other"),
    ({"queue": {}, "encoders": 2}, ("sentence",), "encoders 2 exclude each other: which of them it follows is not publ"),
    ({"repeat": {}, "view": "next"}, ("sentence",), "without view dropout or given, and two masks"),
])
def test_what_does_not_go_together_is_refused_in_one_line(options, given, expected):
    with pytest.raises(StsbenchError) as caught:
        MethodPlan(SimCSE, validate(SimCSEOptions, options, "recipe", "options.")).roles(given)
    assert expected in str(caught.value) and "\n" not in str(caught.value)


def test_a_broken_thesaurus_is_noticed_before_training(folder, tmp_path):
    with pytest.raises(DataError, match="cannot read"):
        simcse(folder, view="synonym", thesaurus=str(tmp_path / "none.tsv"))


@pytest.mark.parametrize(("options", "pooler"), [({}, "cls"), ({"head": "mlp"}, "cls+dense"), ({"head": "none"}, "cls")])
def test_the_tested_encoder(folder, options, pooler):
    method = simcse(folder, dropout=0.1, **options)
    found = method.inference()
    assert found.pooler == pooler and found.masked_lm is None and found.tokenizer is method.backbone.tokenizer
    assert (found.dense is method.head.dense) if pooler == "cls+dense" else (found.dense is None)
    found.model.eval()
    ids = tokens(folder, PLAIN["sentence"])
    with torch.no_grad():
        for row, state in zip(ids, states(folder, ids), strict=True):
            assert torch.allclose(found.model(torch.tensor([row])).last_hidden_state[0], state, atol=1e-10)


def test_the_head_starts_as_published_and_is_not_the_checkpoints_pooler(headless):
    method = simcse(headless)
    weight = method.head.dense.weight
    assert not method.head.dense.bias.any()
    assert weight.std().item() == pytest.approx(method.backbone.model.config.initializer_range, rel=0.1)
    assert torch.equal(weight, simcse(headless).head.dense.weight)  # by the seed
