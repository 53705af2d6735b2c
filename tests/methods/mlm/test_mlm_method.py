"""BERT's masking against its stated shares, and continued masked-LM training against AutoModelForMaskedLM."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from method_oracle import MemoryRows, batch_of, logits, make, naive_mlm, tokens
from tiny_models import sentences

from stsbench.methods.mlm.method import MaskedLM
from stsbench.training.api.batch import IGNORED
from stsbench.training.modules.edits import mask_tokens

TEXTS = {"sentence": sentences(12, longest=9, seed=3)}
SPECIAL, MASK, SIZE = (0, 1, 2, 3), 3, 50


class Vocabulary:
    all_special_ids, mask_token_id = SPECIAL, MASK

    def __len__(self):
        return SIZE


def within(count, trials, probability):
    """Five standard deviations of a binomial count."""
    return abs(count - trials * probability) <= 5 * math.sqrt(trials * probability * (1 - probability)) + 1e-9


@pytest.mark.parametrize(("probability", "masked", "random"), [
    (0.15, 0.8, 0.1), (0.3, 0.0, 0.0),
])
def test_the_shares_of_masking(probability, masked, random):
    rng = np.random.default_rng(0)
    rows = [np.concatenate([[1], rng.integers(4, SIZE, 18), [2]]) for _ in range(3000)]
    copies, labels = mask_tokens(rows, Vocabulary(), rng, probability, masked, random)
    before, after, wanted = (np.concatenate(part) for part in (rows, copies, labels))
    chosen = wanted != IGNORED
    ordinary, count = 18 * 3000, int(chosen.sum())
    assert within(count, ordinary, probability)
    assert not chosen[np.isin(before, SPECIAL)].any()
    assert np.array_equal(wanted[chosen], before[chosen]) and np.array_equal(after[~chosen], before[~chosen])
    hidden = int((after[chosen] == MASK).sum())
    assert within(hidden, count, masked + random / SIZE)
    same = int((after[chosen] == before[chosen]).sum())
    assert within(same, count, 1 - masked - random + random / SIZE)
    others = after[chosen & (after != MASK) & (after != before)]
    if random:
        actual = np.bincount(others, minlength=SIZE)
        ratio = len(others) / (SIZE - 1)
        assert actual[MASK] == 0 and actual[0] > 0 and actual[SIZE - 1] > 0  # special ids, too, may come, as in BERT
        assert np.abs(np.delete(actual, MASK) - ratio).max() < 6 * math.sqrt(ratio) + 0.1 * ratio
    else:
        assert not len(others)


@settings(max_examples=40)
@given(
    st.lists(st.lists(st.integers(0, SIZE - 1), max_size=12), max_size=8), st.integers(0, 2**32 - 1), st.floats(0.01, 0.99)
)
def test_masking_keeps_shapes_and_its_argument(rows, seed, probability):
    before = [list(row) for row in rows]
    first = mask_tokens(rows, Vocabulary(), np.random.default_rng(seed), probability)
    again = mask_tokens(rows, Vocabulary(), np.random.default_rng(seed), probability)
    assert rows == before
    for part, other in zip(first, again, strict=True):
        assert [len(row) for row in part] == [len(row) for row in rows]
        assert [row.tolist() for row in part] == [row.tolist() for row in other]
    for row, copy, labels in zip(rows, *first, strict=True):
        for token, new, label in zip(row, copy, labels, strict=True):
            assert label in (IGNORED, token) and (label != IGNORED or new == token) and 0 <= new < SIZE
            assert token not in SPECIAL or label == IGNORED


@pytest.mark.parametrize("options", [{}, {"masked": 0.0, "random": 0.0, "probability": 0.6}])
def test_loss_and_accuracy(folder, options):
    method = make(MaskedLM, folder, options)
    rights = counts = 0
    for seed in range(2):
        batch = batch_of(method, MemoryRows(folder, TEXTS), seed=seed)
        (term,) = method(batch).values()
        expected, right, count = naive_mlm(folder, batch)
        assert term.value.item() == pytest.approx(expected, rel=1e-9)
        assert term.count == count and term.weight == 1
        rights, counts = rights + right, counts + count
    assert method.state_dict()["guesses"].tolist() == [rights, counts]  # what a resumed run goes on with
    assert method.metrics() == {"masked_accuracy": rights / counts}


def test_the_tested_encoder_stands_in_its_masked_lm_and_reads_anchors_of_pairs_too(folder):
    method = make(MaskedLM, folder, pooler="mean", dropout=0.1)
    whole, ids = method.inference().masked_lm.eval(), tokens(folder, TEXTS["sentence"])
    with torch.no_grad():
        for row, scores in zip(ids, logits(folder, ids), strict=True):
            assert torch.allclose(whole(torch.tensor([row])).logits[0], scores, atol=1e-10)
    views = method.views(MemoryRows(folder, {"anchor": TEXTS["sentence"]}), np.random.default_rng(0))
    assert [len(row) for (*view,) in views.tokens for row in view] == [len(row) for row in ids]
