"""CMLM against its equation, one text at a time by transformers' layers and head, with its gradients. BERT's masking against
its stated shares, and continued masked-LM training against AutoModelForMaskedLM."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from method_oracle import MemoryRows, _reference, batch_of, logits, make, naive_mlm, tokens
from tiny_models import build, sentences
from torch.nn import functional
from transformers import AutoModelForMaskedLM

from stsbench.errors import EncoderError, StsbenchError
from stsbench.methods.cmlm.method import ConditionalMaskedLM
from stsbench.methods.cmlm.options import ConditionalMaskedLMOptions
from stsbench.methods.mlm.method import MaskedLM
from stsbench.training.api.batch import IGNORED
from stsbench.training.modules.edits import mask_tokens

TEXTS = [
    "the man plays guitar in the park", "a dog", "the big cat sleeps on the red food .", "a woman eats", "blue",
    "the dog runs with a cat", "red food", "a man sleeps in the big park .", "the woman plays", "a big blue dog eats food",
]
DOCUMENTS = [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]
PAIRED = [0, 1, 2, 4, 5, 7, 8]  # rows that another one follows
FIRST, NEXT = ([TEXTS[row + by] for row in PAIRED] for by in (0, 1))


def documents(folder, rows=PAIRED):
    return MemoryRows(folder, {"sentence": TEXTS}, rows, DOCUMENTS)


def cmlm(folder, pooler="mean", **options):
    """In float64 and train mode, its projections with biases and gains that a forgotten one would show by."""
    method = make(ConditionalMaskedLM, folder, options, pooler=pooler)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, weight in method.named_parameters():
            if name.startswith("projections"):
                weight.add_(0.3 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype))
    return method


def lists(ragged):
    return [[int(value) for value in row] for row in ragged]


def naive_losses(folder, pooler, method, sources, masked, labels):
    """(m,) -log p of every masked word, text by text. sources: None, or the token ids of the sentences that give vectors."""
    whole, losses = _reference(AutoModelForMaskedLM, folder), []
    encoder, head = whole.base_model, getattr(whole, "cls", None) or whole.lm_head
    for number, (ids, wanted) in enumerate(zip(masked, map(torch.tensor, labels), strict=True)):
        embedded, before = encoder.embeddings(torch.tensor([ids]))[0], []
        if sources is not None:
            read = encoder(torch.tensor([sources[number]])).last_hidden_state[0]
            vector = {"cls": read[0], "max": read.amax(0), "mean": read.mean(0)}[pooler]
            before = [vector]
            for linear, _, norm in method.projections.learned:
                projected = functional.gelu(linear.weight @ vector + linear.bias)
                before.append(functional.layer_norm(projected, projected.shape, norm.weight, norm.bias, 1e-12))
        states = torch.cat([*(vector[None] for vector in before), embedded])
        hidden = encoder.encoder(states[None]).last_hidden_state[0, len(before) :]
        chosen = wanted != IGNORED
        losses.append(functional.cross_entropy(head(hidden[chosen]), wanted[chosen], reduction="none"))
    return torch.cat(losses)


@pytest.mark.parametrize(("family", "pooler", "options"), [
    ("bert", "mean", {}), ("roberta", "mean", {"both_directions": True, "probability": 0.4, "vectors": 3}),
    ("bert", "max", {"both_directions": True, "vectors": 0}),
    ("roberta", "cls", {"sentence": "same", "vectors": 3, "masked": 0.0, "random": 0.5}),
], ids=str)
def test_loss_and_gradients_are_those_of_single_texts_in_either_engine(masked_lms, family, pooler, options):
    folder = masked_lms[family]
    method, rows = cmlm(folder, pooler, **options), documents(folder)
    views = method.views(rows, np.random.default_rng(1))
    labels = views.extra["mlm_labels"]
    sources = [None, None] if method.projections is None else [tokens(folder, FIRST), tokens(folder, NEXT)]
    masked, batch = views.tokens[-len(labels) :], batch_of(method, rows, seed=1, more_padding=7)
    weights = dict(method.backbone.model.named_parameters())
    theirs = dict(_reference(AutoModelForMaskedLM, folder).base_model.named_parameters())
    for engine in ("packed", "padded"):
        method.backbone.engine = engine
        terms = method(batch)
        assert list(terms) == (["mlm", "mlm_back"] if method.options.both_directions else ["mlm"])
        for number, (name, term) in enumerate(terms.items()):
            losses = naive_losses(folder, pooler, method, sources[number], lists(masked[number]), lists(labels[number]))
            assert term.count == len(losses) == method.counts(batch)[name] > 0 and term.weight == 1
            assert abs(term.value.item() - losses.mean().item()) < 1e-10
            ours = torch.autograd.grad(term.value, weights.values(), retain_graph=True)
            expected = torch.autograd.grad(losses.mean(), [theirs[each] for each in weights])
            assert all(torch.allclose(*pair, rtol=0, atol=1e-10) for pair in zip(ours, expected, strict=True))
    assert method.inference().pooler == pooler and method.inference().model is method.backbone.model


def test_the_projections_start_as_transformers_draws_weights(masked_lms):
    learned = make(ConditionalMaskedLM, masked_lms["bert"], {"vectors": 200}).projections.learned
    assert len(learned) == 199
    weights = torch.cat([projection[0].weight.flatten() for projection in learned])
    assert abs(weights.std().item() - 0.3) < 0.01 and abs(weights.mean().item()) < 0.01  # its initializer_range
    assert not any(projection[0].bias.any() or projection[2].bias.any() for projection in learned)


def test_views_are_both_sentences_and_masked_copies_of_the_guessed_ones(masked_lms):
    folder = masked_lms["bert"]
    method = cmlm(folder, both_directions=True, probability=0.5)
    views = method.views(documents(folder), np.random.default_rng(1))
    first, second, *masked = views.tokens
    assert (lists(first), lists(second)) == (tokens(folder, FIRST), tokens(folder, NEXT))
    for texts, copies, labels in zip((NEXT, FIRST), masked, views.extra["mlm_labels"], strict=True):
        for ids, changed, wanted in zip(tokens(folder, texts), copies, labels, strict=True):
            assert np.where(np.array(wanted) == IGNORED, changed, wanted).tolist() == ids


def test_rows_that_another_one_follows_can_be_used_and_a_model_with_positions_of_its_own(masked_lms, tmp_path):
    folder, needs = masked_lms["bert"], ConditionalMaskedLM.needs
    every = documents(folder, range(len(TEXTS)))
    assert np.flatnonzero(needs(ConditionalMaskedLMOptions()).usable(every)).tolist() == PAIRED
    assert needs(ConditionalMaskedLMOptions(sentence="same")).usable is None
    assert not any(needs(ConditionalMaskedLMOptions(sentence=which)).negatives for which in ("same", "next"))
    with pytest.raises(StsbenchError):
        cmlm(folder).views(documents(folder, [0, 3]), np.random.default_rng(0))
    other = build(tmp_path / "distil", "distilbert")
    method = make(ConditionalMaskedLM, other)
    with pytest.raises(EncoderError):
        method(batch_of(method, documents(other)))


COLUMNS = {"sentence": sentences(12, longest=9, seed=3)}
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
        batch = batch_of(method, MemoryRows(folder, COLUMNS), seed=seed)
        (term,) = method(batch).values()
        expected, right, count = naive_mlm(folder, batch)
        assert term.value.item() == pytest.approx(expected, rel=1e-9)
        assert term.count == count and term.weight == 1
        rights, counts = rights + right, counts + count
    assert method.state_dict()["guesses"].tolist() == [rights, counts]  # what a resumed run goes on with
    assert method.metrics() == {"masked_accuracy": rights / counts}


def test_the_tested_encoder_stands_in_its_masked_lm_and_reads_anchors_of_pairs_too(folder):
    method = make(MaskedLM, folder, pooler="mean", dropout=0.1)
    whole, ids = method.inference().masked_lm.eval(), tokens(folder, COLUMNS["sentence"])
    with torch.no_grad():
        for row, scores in zip(ids, logits(folder, ids), strict=True):
            assert torch.allclose(whole(torch.tensor([row])).logits[0], scores, atol=1e-10)
    views = method.views(MemoryRows(folder, {"anchor": COLUMNS["sentence"]}), np.random.default_rng(0))
    assert [len(row) for (*view,) in views.tokens for row in view] == [len(row) for row in ids]
