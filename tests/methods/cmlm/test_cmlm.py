"""CMLM against its equation written out in loops, in float64, with padding; every option; what the vectors are good for."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from cmlm_oracle import DOCUMENTS, PAIRED, TEXTS, cmlm, detached, documents, folders, naive_losses, plain_lists
from method_oracle import MemoryRows, batch_of, make, tokens, total
from shipped_recipes import one_line

from stsbench.config import validate
from stsbench.errors import StsbenchError
from stsbench.methods.cmlm.method import ConditionalMaskedLM
from stsbench.methods.cmlm.options import ConditionalMaskedLMOptions
from stsbench.methods.mlm.method import MaskedLM
from stsbench.training.api.batch import IGNORED

__all__ = ["folders"]
NEXT = [TEXTS[row + 1] for row in PAIRED]
THIS = [TEXTS[row] for row in PAIRED]
CHOSEN = [
    {}, {"vectors": 1}, {"vectors": 0}, {"vectors": 4, "probability": 0.5}, {"both_directions": True, "probability": 0.4},
    {"both_directions": True, "vectors": 0}, {"sentence": "same", "vectors": 3}, {"masked": 0.0, "random": 0.5},
]


def changed(base, **options):
    return {"probability": 0.3, "masked": 0.5, "vectors": 3, **base, **options}


# --- the loss ---


@pytest.mark.parametrize("family", ["bert", "roberta"])
@pytest.mark.parametrize("options", CHOSEN, ids=str)
def test_the_loss_is_what_the_loops_compute(folders, family, options):
    folder = folders[family]
    method = cmlm(folder, **options)
    views = method.views(documents(folder), np.random.default_rng(1))
    masked, labels = plain_lists_of_masked(views)
    sources = {True: [None, None], False: [tokens(folder, THIS), tokens(folder, NEXT)]}[method.projections is None]
    terms = method(batch_of(method, documents(folder), seed=1))
    assert list(terms) == (["mlm", "mlm_back"] if method.options.both_directions else ["mlm"])
    for number, term in enumerate(terms.values()):
        losses = naive_losses(folder, family, "mean", method, sources[number], masked[number], labels[number])
        assert term.count == len(losses) > 0 and term.weight == 1
        assert abs(term.value.item() - sum(losses) / len(losses)) < 1e-10


def plain_lists_of_masked(views):
    """[term] -> the masked sentences, and their labels."""
    labels = views.extra["mlm_labels"]
    return [plain_lists(view) for view in views.tokens[-len(labels) :]], [plain_lists(view) for view in labels]


@pytest.mark.parametrize("pooler", ["cls", "max"])
def test_other_poolers(folders, pooler):
    folder = folders["bert"]
    method = cmlm(folder, pooler, vectors=3)
    (masked,), (labels,) = plain_lists_of_masked(method.views(documents(folder), np.random.default_rng(2)))
    losses = naive_losses(folder, "bert", pooler, method, tokens(folder, THIS), masked, labels)
    term = method(batch_of(method, documents(folder), seed=2))["mlm"]
    assert abs(term.value.item() - sum(losses) / len(losses)) < 1e-10
    assert method.inference().pooler == pooler and method.inference().model is method.backbone.model


@pytest.mark.parametrize("engine", ["packed", "padded"])
def test_padding_changes_nothing_in_either_engine(folders, engine):
    for family in ("bert", "roberta"):
        method = cmlm(folders[family], **changed({}, both_directions=True))
        expected = total(method(batch_of(method, documents(folders[family]))))
        method.backbone.engine = engine
        for columns in (0, 7):
            value = total(method(batch_of(method, documents(folders[family]), more_padding=columns)))
            assert abs(value.item() - expected.item()) < 1e-11


def test_without_vectors_it_is_plain_masked_lm(folders):
    """To the last bit, gradients included."""
    folder = folders["bert"]
    plain, rows = make(MaskedLM, folder, pooler="mean"), documents(folder, range(10))
    method = make(ConditionalMaskedLM, folder, {"vectors": 0, "sentence": "same"}, pooler="mean")
    batches = [batch_of(each, rows, seed=4) for each in (plain, method)]
    assert torch.equal(batches[0].ids, batches[1].ids) and batches[1].views == 1
    for each, batch in zip((plain, method), batches, strict=True):
        each(batch)["mlm"].value.backward()
    assert plain(batches[0])["mlm"].value.item() == method(batches[1])["mlm"].value.item()
    weights = dict(plain.named_parameters())
    assert weights.keys() == dict(method.named_parameters()).keys()
    for name, weight in method.named_parameters():
        assert torch.equal(weight.grad, weights[name].grad), name
    assert plain.metrics() == method.metrics()


# --- gradients ---


def gradient(method, batch):
    method.zero_grad()
    total(method(batch)).backward()
    return {name: weight.grad.clone() for name, weight in method.named_parameters() if weight.grad is not None}


def test_the_sentence_is_reached_through_its_vector_alone(folders):
    """With vectors of zeros, times anything, its pass has no gradient; and every weight learns."""
    folder = folders["bert"]
    method = cmlm(folder, **changed({}))
    batch = batch_of(method, documents(folder))
    seen, pooled = [], method.backbone.pooled

    def keeping(*arguments):
        seen.append(pooled(*arguments))
        seen[-1].retain_grad()
        return seen[-1]

    method.backbone.pooled = keeping
    gradients = gradient(method, batch)
    guessed = (batch.extra["mlm_labels"] != IGNORED).any(1)
    assert guessed.sum() > 3 and seen[-1].grad.any(1).tolist() == guessed.tolist()
    assert not [name for name, weight in method.named_parameters() if not gradients[name].any()]
    whole = method.projections.forward
    method.projections.forward = lambda vectors: 0 * whole(vectors)
    gradient(method, batch)
    assert not seen[-1].grad.any()


def test_the_gradient_of_the_vector_is_part_of_the_encoder_s(folders):
    folder = folders["bert"]
    method = cmlm(folder, **changed({}))
    batch = batch_of(method, documents(folder))
    gradients, without = gradient(method, batch), gradient(detached(method), batch)
    differing = {name for name in gradients if not torch.allclose(gradients[name], without[name], rtol=1e-9, atol=1e-12)}
    assert any("layer.0" in name for name in differing)
    assert not any(name.startswith(("projections", "head.parts.cls.predictions.transform")) for name in differing)


# --- options ---


@pytest.mark.parametrize("options", [
    {"vectors": 0}, {"vectors": 1}, {"vectors": 4}, {"sentence": "same"}, {"both_directions": True}, {"probability": 0.6},
    {"masked": 0.1}, {"random": 0.5},
], ids=str)
def test_every_option_changes_the_loss(folders, options):
    folder = folders["bert"]
    base, other = (cmlm(folder, **changed({}, **more)) for more in ({}, options))
    values = [total(method(batch_of(method, documents(folder)))).item() for method in (base, other)]
    assert abs(values[0] - values[1]) > 1e-6


def test_the_projections_start_as_transformers_draws_weights(folders):
    method = make(ConditionalMaskedLM, folders["bert"], {"vectors": 200})
    learned = method.projections.learned
    assert len(learned) == 199
    weights = torch.cat([each[0].weight.flatten() for each in learned])
    assert abs(weights.std().item() - 0.3) < 0.01 and abs(weights.mean().item()) < 0.01  # its initializer_range
    assert not any(each[0].bias.any() or each[2].bias.any() for each in learned)
    assert len(make(ConditionalMaskedLM, folders["bert"]).projections.learned) == 14


def test_views(folders):
    folder = folders["bert"]
    method = cmlm(folder, both_directions=True, probability=0.5)
    views, again = (method.views(documents(folder), np.random.default_rng(1)) for _ in range(2))
    first, second, *masked = views.tokens
    assert (plain_lists(first), plain_lists(second)) == (tokens(folder, THIS), tokens(folder, NEXT))
    assert [plain_lists(view) for view in views.tokens] == [plain_lists(view) for view in again.tokens]
    for texts, copies, labels in zip((NEXT, THIS), masked, views.extra["mlm_labels"], strict=True):
        for ids, changed_ids, wanted in zip(tokens(folder, texts), copies, labels, strict=True):
            restored = np.where(np.array(wanted) == IGNORED, changed_ids, wanted)
            assert restored.tolist() == ids
    assert method.counts(batch_of(method, documents(folder), seed=1)) == {
        name: sum(label != IGNORED for row in labels for label in row)
        for name, labels in zip(("mlm", "mlm_back"), views.extra["mlm_labels"], strict=True)
    }


def test_a_batch_without_a_masked_token_has_no_loss_but_a_gradient(folders):
    method = make(ConditionalMaskedLM, folders["bert"], {"probability": 1e-9})
    (term,) = method(batch_of(method, documents(folders["bert"]))).values()
    term.value.backward()
    assert term.value.item() == 0 and term.count == 0 and method.metrics() == {}
    assert all(weight.grad is not None and not weight.grad.any() for weight in method.parameters())


# --- rows ---


def test_which_rows_can_be_used(folders):
    every = documents(folders["bert"], range(len(TEXTS)))
    assert np.flatnonzero(ConditionalMaskedLM.needs(ConditionalMaskedLMOptions()).usable(every)).tolist() == PAIRED
    assert ConditionalMaskedLM.needs(ConditionalMaskedLMOptions(sentence="same")).usable is None
    apart = MemoryRows(folders["bert"], {"sentence": TEXTS}, documents=range(len(TEXTS)))
    with pytest.raises(StsbenchError, match=r"options.sentence next: no row has a next sentence; set data\.contiguous"):
        ConditionalMaskedLM.needs(ConditionalMaskedLMOptions()).usable(apart)
    with pytest.raises(StsbenchError, match="row 3 has no next sentence"):
        cmlm(folders["bert"]).views(documents(folders["bert"], [0, 3]), np.random.default_rng(0))
    assert DOCUMENTS[3] != DOCUMENTS[4]


@pytest.mark.parametrize(("options", "line"), [
    ({"masked": 0.9, "random": 0.2}, "options.masked 0.9 and random 0.2 are shares of the chosen tokens: their sum may"),
    ({"sentence": "same", "both_directions": True}, "with sentence same: it goes with sentence next; leave it at false"),
])
def test_options_that_contradict_one_another(options, line):
    one_line(lambda: validate(ConditionalMaskedLMOptions, options, "recipe", "options."), line)


def test_a_vector_of_another_width_is_refused(folders):
    one_line(lambda: cmlm(folders["bert"], pooler="text_cnn"), "set backbone.pooler to mean, max or cls")


def test_another_family_is_refused_by_name(tmp_path):
    from tiny_models import build

    folder = build(tmp_path / "distil", "distilbert")
    method = make(ConditionalMaskedLM, folder)
    with pytest.raises(StsbenchError, match="DistilBertModel takes no positions"):
        method(batch_of(method, documents(folder)))


# --- what is learnt ---


def test_the_vector_of_another_sentence_raises_the_loss_once_trained(folders):
    """Almost all words are masked, and a document's sentences are of one word: its neighbour alone tells which."""
    folder, words = folders["bert"], ["cat", "dog", "man", "red", "park", "food", "blue", "big"]
    texts = [" ".join([word] * 5) for word in words for _ in range(2)]
    rows = MemoryRows(folder, {"sentence": texts}, range(0, 16, 2), [row // 2 for row in range(16)])
    options = {"probability": 0.95, "masked": 1.0, "random": 0.0}
    method = make(ConditionalMaskedLM, folder, options, pooler="mean").float()
    optimiser = torch.optim.Adam(method.parameters(), lr=1e-2)
    for step in range(80):
        optimiser.zero_grad()
        total(method(batch_of(method, rows, seed=step))).backward()
        optimiser.step()
    batch, n = batch_of(method, rows, seed=1000), len(rows.rows)
    with torch.no_grad():
        right = total(method(batch)).item()
        order = torch.arange(n).roll(1)
        batch.ids[:n], batch.mask[:n] = batch.ids[order], batch.mask[order]
        wrong = total(method(batch)).item()
    assert right < 1 < 2 < wrong
