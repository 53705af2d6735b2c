"""BERT's masking against its stated shares, and continued masked-LM training against AutoModelForMaskedLM."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from method_oracle import MemoryRows, batch_of, logits, make, masked_lm_folder, states, tokens
from tiny_models import build, sentences, tokenizer
from transformers import AutoTokenizer

from stsbench.config import validate
from stsbench.errors import StsbenchError
from stsbench.methods.mlm.method import MaskedLM
from stsbench.methods.mlm.options import MaskedLMOptions
from stsbench.training.api.batch import IGNORED
from stsbench.training.modules.edits import mask_tokens
from stsbench.training.recipes.method_plan import MethodPlan

TEXTS = {"sentence": sentences(12, longest=9, seed=3)}
SPECIAL, MASK, SIZE = (0, 1, 2, 3), 3, 50


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return masked_lm_folder(tmp_path_factory.mktemp("mlm") / "tiny-mlm")


@pytest.fixture(scope="module")
def headless(tmp_path_factory):
    return build(tmp_path_factory.mktemp("mlm") / "tiny-bert")


# --- masking ---


def within(count, trials, probability):
    """Five standard deviations of a binomial count."""
    return abs(count - trials * probability) <= 5 * math.sqrt(trials * probability * (1 - probability)) + 1e-9


@pytest.mark.parametrize(("probability", "masked", "random"), [
    (0.15, 0.8, 0.1), (0.4, 0.8, 0.1), (0.15, 1.0, 0.0), (0.3, 0.0, 1.0), (0.3, 0.0, 0.0), (0.5, 0.2, 0.5),
])
def test_the_shares_of_masking(probability, masked, random):
    rng = np.random.default_rng(0)
    rows = [np.concatenate([[1], rng.integers(4, SIZE, 18), [2]]) for _ in range(3000)]
    copies, labels = mask_tokens(rows, SPECIAL, MASK, SIZE, rng, probability, masked, random)
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
        found = np.bincount(others, minlength=SIZE)
        ratio = len(others) / (SIZE - 1)
        assert found[MASK] == 0 and found[0] > 0 and found[SIZE - 1] > 0  # special ids, too, may come, as in BERT
        assert np.abs(np.delete(found, MASK) - ratio).max() < 6 * math.sqrt(ratio) + 0.1 * ratio
    else:
        assert not len(others)


def test_positions_and_rows_are_chosen_alike():
    rng = np.random.default_rng(1)
    rows = [np.full(10, 7) for _ in range(4000)]
    chosen = np.stack(mask_tokens(rows, SPECIAL, MASK, SIZE, rng, 0.2)[1]) != IGNORED
    assert all(within(int(column.sum()), 4000, 0.2) for column in chosen.T)
    together = int((chosen[:, 0] & chosen[:, 1]).sum())  # each on its own
    assert within(together, 4000, 0.04)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, SIZE - 1), max_size=12), max_size=8), st.integers(0, 2**32 - 1), st.floats(0.01, 0.99)
)
def test_masking_keeps_shapes_and_its_argument(rows, seed, probability):
    before = [list(row) for row in rows]
    first = mask_tokens(rows, SPECIAL, MASK, SIZE, np.random.default_rng(seed), probability)
    again = mask_tokens(rows, SPECIAL, MASK, SIZE, np.random.default_rng(seed), probability)
    assert rows == before
    for part, other in zip(first, again, strict=True):
        assert [len(row) for row in part] == [len(row) for row in rows]
        assert [row.tolist() for row in part] == [row.tolist() for row in other]
    for row, copy, labels in zip(rows, *first, strict=True):
        for token, new, label in zip(row, copy, labels, strict=True):
            assert label in (IGNORED, token) and (label != IGNORED or new == token) and 0 <= new < SIZE
            assert token not in SPECIAL or label == IGNORED


# --- the method ---


def naive(folder, batch):
    """(mean loss, right guesses, positions) by AutoModelForMaskedLM, one text at a time."""
    lost, right = [], 0
    for row, wanted, real in zip(batch.ids, batch.extra["mlm_labels"], batch.mask, strict=True):
        length = int(real.sum())
        (found,) = logits(folder, [row[:length].tolist()])
        for position in np.flatnonzero(wanted[:length].numpy() != IGNORED):
            scores, label = found[position].tolist(), int(wanted[position])
            top = max(scores)
            lost.append(math.log(sum(math.exp(s - top) for s in scores)) + top - scores[label])
            right += scores.index(top) == label
    return sum(lost) / len(lost), right, len(lost)


@pytest.mark.parametrize("options", [{}, {"probability": 0.5}, {"masked": 0.0, "random": 0.0, "probability": 0.6}])
def test_loss_and_accuracy(folder, options):
    method = make(MaskedLM, folder, options)
    assert method.metrics() == {}
    rights = counts = 0
    for seed in range(2):
        batch = batch_of(method, MemoryRows(folder, TEXTS), seed=seed)
        (term,) = method(batch).values()
        expected, right, count = naive(folder, batch)
        assert term.value.item() == pytest.approx(expected, rel=1e-9)
        assert term.count == count and term.weight == 1
        rights, counts = rights + right, counts + count
    assert method.state_dict()["guesses"].tolist() == [rights, counts]  # what a resumed run goes on with
    assert method.metrics() == {"masked_accuracy": rights / counts}
    assert method.metrics() == {}


def test_only_masked_positions_get_logits(folder):
    method, seen = make(MaskedLM, folder), []
    method.head.register_forward_hook(lambda _, inputs, output: seen.append((inputs[0].shape, output.shape)))
    batch = batch_of(method, MemoryRows(folder, TEXTS))
    method(batch)
    count = int((batch.extra["mlm_labels"] != IGNORED).sum())
    assert 0 < count < int(batch.mask.sum()) / 2
    assert seen == [((count, 32), (count, len(method.backbone.tokenizer)))]


def test_padding_changes_nothing(folder):
    method, rows = make(MaskedLM, folder, {"probability": 0.4}), MemoryRows(folder, TEXTS)
    short, long = (method(batch_of(method, rows, more_padding=columns))["mlm"] for columns in (0, 7))
    assert long.value.item() == pytest.approx(short.value.item(), rel=1e-9) and long.count == short.count


def test_a_batch_without_a_masked_token_has_no_loss_but_a_gradient(folder):
    method = make(MaskedLM, folder, {"probability": 1e-9})
    term = method(batch_of(method, MemoryRows(folder, TEXTS)))["mlm"]
    term.value.backward()
    assert term.value.item() == 0 and term.count == 0 and method.metrics() == {}
    assert all(weight.grad is not None and not weight.grad.any() for weight in method.parameters())


@pytest.mark.parametrize("tied", [True, False])
def test_the_parameters_that_learn(folder, headless, tied):
    for start in (folder, headless):
        method = make(MaskedLM, start, {"tied": tied})
        method(batch_of(method, MemoryRows(start, TEXTS)))["mlm"].value.backward()
        assert not [name for name, weight in method.named_parameters() if weight.grad is None or not weight.grad.any()]
        embedding = method.backbone.model.get_input_embeddings().weight
        assert (method.head.decoder.weight is embedding) == tied


def test_training_learns_what_the_context_tells(headless):
    method = make(MaskedLM, headless, {"probability": 0.3}).float()
    words = ["cat", "dog", "man", "red", "park", "food"]
    rows = MemoryRows(headless, {"sentence": [" ".join([word] * 7) for word in words]})
    optimiser = torch.optim.Adam(method.parameters(), lr=5e-3)
    fresh = batch_of(method, rows, seed=10_000)

    def measured():
        method.metrics()
        with torch.no_grad():
            value = method(fresh)["mlm"].value.item()
        return value, method.metrics()["masked_accuracy"]

    before = measured()
    for step in range(60):
        optimiser.zero_grad()
        method(batch_of(method, rows, seed=step))["mlm"].value.backward()
        optimiser.step()
    after = measured()
    assert before[0] > math.log(len(words)) > 2 * after[0]  # knowing these words alone would give log 6
    assert before[1] < 0.5 < after[1]


def test_views(folder):
    method, rows = make(MaskedLM, folder, {"probability": 0.5}), MemoryRows(folder, TEXTS)
    first, again, other = (method.views(rows, np.random.default_rng(seed)) for seed in (1, 1, 2))
    (ids,), (labels,) = first.tokens, first.extra["mlm_labels"]
    plain = tokens(folder, TEXTS["sentence"])
    special = AutoTokenizer.from_pretrained(folder).all_special_ids
    for row, copy, wanted in zip(plain, ids, labels, strict=True):
        assert [token if label == IGNORED else int(label) for token, label in zip(copy, wanted, strict=True)] == row
        assert all(label == IGNORED or label not in special for label in wanted)
    for one, two in zip(first.tokens[0], again.tokens[0], strict=True):
        assert one.tolist() == two.tolist()
    assert [row.tolist() for row in other.tokens[0]] != [row.tolist() for row in ids]


def test_the_tested_encoder(folder):
    method = make(MaskedLM, folder, pooler="mean", dropout=0.1)
    found = method.inference()
    assert found.model is method.backbone.model and found.pooler == "mean" and found.dense is None
    whole = found.masked_lm.eval()
    ids = tokens(folder, TEXTS["sentence"])
    with torch.no_grad():
        for row, state, scores in zip(ids, states(folder, ids), logits(folder, ids), strict=True):
            assert torch.allclose(found.model(torch.tensor([row])).last_hidden_state[0], state, atol=1e-10)
            assert torch.allclose(whole(torch.tensor([row])).logits[0], scores, atol=1e-10)


# --- roles and options ---


def test_roles(folder):
    assert MethodPlan(MaskedLM, MaskedLMOptions()).roles(("label", "sentence")) == ("sentence",)
    assert MethodPlan(MaskedLM, MaskedLMOptions()).roles(("positive", "anchor")) == ("anchor",)
    with pytest.raises(StsbenchError, match=r"needs the column sentence or anchor \(the data give premise\)"):
        MethodPlan(MaskedLM, MaskedLMOptions()).roles(("premise",))
    method = make(MaskedLM, folder)
    rows = MemoryRows(folder, {"anchor": TEXTS["sentence"]})
    assert len(method.views(rows, np.random.default_rng(0)).tokens) == 1


def test_shares_beyond_one_and_a_missing_mask_token_are_one_line(tmp_path):
    with pytest.raises(StsbenchError, match=r"^recipe: options\.masked 0\.8 and random 0\.3 .* their sum may not exceed 1$"):
        validate(MaskedLMOptions, {"masked": 0.8, "random": 0.3}, "recipe", "options.")
    other = masked_lm_folder(tmp_path / "no-mask")
    tok = tokenizer("bert")
    tok.mask_token = None
    tok.save_pretrained(other)
    with pytest.raises(StsbenchError, match="the tokenizer of no-mask has none"):
        make(MaskedLM, other)
