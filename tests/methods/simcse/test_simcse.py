"""SimCSE's passes and masks, on texts encoded one at a time by transformers. Its plain loss: test_terms.py."""

from __future__ import annotations

import pytest
import torch
from method_oracle import MemoryRows, batch_of, naive_mlm, states, tokens
from simcse_oracle import PLAIN, TRIPLETS, cls, count_passes, heads, info_nce, loss, same, simcse

from stsbench.methods.simcse.method import SimCSE
from stsbench.methods.simcse.options import SimCSEOptions


def test_two_dropout_masks_in_one_forward_pass(folder):
    method = simcse(folder, dropout=0.1)
    calls = count_passes(method.backbone)
    first = loss(method, MemoryRows(folder, PLAIN))
    ((rows, pooled),) = calls
    assert rows == 2 * 5
    assert (pooled[:5] - pooled[5:]).abs().amax(1).min() > 1e-3  # every sentence's two vectors differ
    vectors = heads(pooled, method.head.dense)
    same(first, info_nce(vectors[:5], vectors[5:]))
    method.eval()
    plain = cls(folder, PLAIN["sentence"], method.head.dense)
    same(loss(method, MemoryRows(folder, PLAIN)), info_nce(plain, plain))


def test_fixed_dropout_mask_makes_both_views_one_vector(folder):
    method = simcse(folder, dropout=0.1, fixed_dropout_mask=True)
    calls = count_passes(method.backbone)
    value = loss(method, MemoryRows(folder, PLAIN))
    ((rows, pooled),) = calls
    assert rows == 5
    vectors = heads(pooled, method.head.dense)
    same(value, info_nce(vectors, vectors))
    plain = cls(folder, PLAIN["sentence"], method.head.dense)
    assert abs(value.item() - info_nce(plain, plain)) > 1e-4  # dropout did act


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
        first = [[backbone.model(torch.tensor([row])).last_hidden_state[0, 0] for row in tokens(folder, TRIPLETS[role])]
                 for role in ("positive", "negative")]
        keys, negatives = (heads(vectors, head.dense) for vectors in first)
    queries = cls(folder, TRIPLETS["anchor"], method.head.dense)
    same(value, info_nce(queries, keys, negatives))
    value.backward()
    assert all(weight.grad.any() for weight in method.second.parameters())
    assert method.inference().model is method.backbone.model


@pytest.mark.parametrize("in_place", [False, True])
def test_masked_lm_term(folder, in_place):
    method = simcse(folder, mlm_weight=0.3, mlm_probability=0.4, mlm_in_place=in_place)
    batch = batch_of(method, MemoryRows(folder, TRIPLETS))
    terms = method(batch)
    expected, _, count = naive_mlm(folder, batch)
    same(terms["mlm"].value, expected)
    first, second, _ = ([row.tolist() for row in part] for part in batch.extra["mlm_labels"].split(5))
    assert first != second  # each view has masks of its own
    assert terms["mlm"].count == count and terms["mlm"].weight == 0.3 and terms["contrastive"].weight == 1
    assert method.lm_head.decoder.weight is not method.backbone.model.get_input_embeddings().weight
    ids = batch.extra["mlm_ids"] if in_place else batch.ids
    rows = [row[: int(real.sum())].tolist() for row, real in zip(ids, batch.mask, strict=True)]
    vectors = heads([state[0] for state in states(folder, rows)], method.head.dense)
    same(terms["contrastive"].value, info_nce(*vectors.split(5)))


@pytest.mark.parametrize(("options", "needed"), [
    ({}, True), ({"mlm_weight": 0.1}, True), ({"encoders": 2}, True), ({"fixed_dropout_mask": True}, False),
    ({"mlm_weight": 0.1, "mlm_in_place": True}, False), ({"repeat": {}}, False), ({"view": "given"}, False),
    ({"view": "next"}, False),
])
def test_dropout_is_needed_where_the_views_are_one_sentence_twice(options, needed):
    assert SimCSE.needs(SimCSEOptions(**options)).dropout == needed


def test_the_head_starts_as_published_and_is_not_the_checkpoints_pooler(encoders):
    method = simcse(encoders["bert"])
    weight = method.head.dense.weight
    assert not method.head.dense.bias.any()
    assert weight.std().item() == pytest.approx(method.backbone.model.config.initializer_range, rel=0.1)
    assert torch.equal(weight, simcse(encoders["bert"]).head.dense.weight)  # by the seed
