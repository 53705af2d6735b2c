"""CMLM against its equation, in loops over tokens, one text at a time, in float64."""

import copy
import math
from functools import cache

import numpy as np
import pytest
import torch
from method_oracle import MemoryRows, batch_of, make, tokens, total
from soft_oracle import HEADS, LAYERS, WIDTH, naive_states, own_positions
from tiny_models import build, masked_lm
from transformers import AutoModelForMaskedLM

from stsbench.errors import EncoderError, StsbenchError
from stsbench.methods.cmlm.method import ConditionalMaskedLM
from stsbench.methods.cmlm.options import ConditionalMaskedLMOptions
from stsbench.training.api.batch import IGNORED

TEXTS = [
    "the man plays guitar in the park", "a dog", "the big cat sleeps on the red food .", "a woman eats", "blue",
    "the dog runs with a cat", "red food", "a man sleeps in the big park .", "the woman plays", "a big blue dog eats food",
]
DOCUMENTS = [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]
PAIRED = [0, 1, 2, 4, 5, 7, 8]  # rows that another one follows
FIRST, NEXT = ([TEXTS[row + by] for row in PAIRED] for by in (0, 1))
SMALL = {"probability": 0.3, "masked": 0.5, "vectors": 3}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """family -> the folder of a tiny masked LM of soft_oracle's sizes."""
    place = tmp_path_factory.mktemp("cmlm")
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": 20}
    return {family: masked_lm(place / family, family, **sizes) for family in ("bert", "roberta")}


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


@cache
def weights_of(folder):
    """The encoder's weights by their names in the encoder, and the head's as (dense, LayerNorm, bias of the words)."""
    state = AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float32).double().state_dict()
    arrays = {name: weight.numpy().copy() for name, weight in state.items()}
    bert = any(name.startswith("bert.") for name in arrays)
    encoder = {name.split(".", 1)[1]: weight for name, weight in arrays.items() if name.startswith(("bert.", "roberta."))}
    dense, norm = ("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm") if bert else (
        "lm_head.dense", "lm_head.layer_norm")
    parts = [arrays[f"{name}.{kind}"] for name in (dense, norm) for kind in ("weight", "bias")]
    return encoder, parts, arrays["cls.predictions.bias" if bert else "lm_head.bias"]


def gelu(x):
    return np.array([value * 0.5 * (1 + math.erf(value / math.sqrt(2))) for value in x])


def layer_norm(x, gain, bias):
    centred = x - sum(x) / len(x)
    return centred / math.sqrt(sum(centred**2) / len(x) + 1e-12) * gain + bias


def naive_losses(folder, family, pooler, method, sources, masked, labels):
    """[-log p] of every masked word, text by text. sources: None, or the token ids of the sentences that give vectors."""
    encoder, (weight, bias, gain, shift), words_bias = weights_of(folder)
    learned = [] if method.projections is None else [
        [part.detach().numpy() for part in (each[0].weight, each[0].bias, each[2].weight, each[2].bias)]
        for each in method.projections.learned]
    losses = []
    for number, (ids, wanted) in enumerate(zip(masked, labels, strict=True)):
        embedded, before = list(naive_states(encoder, ids, own_positions(family, ids))[0]), []
        if sources is not None:
            states = naive_states(encoder, sources[number], own_positions(family, sources[number]))[-1]
            vector = {"cls": states[0], "max": np.max(states, 0), "mean": sum(states) / len(states)}[pooler]
            before = [vector, *(layer_norm(gelu(a @ vector + b), g, s) for a, b, g, s in learned)]
        states = naive_states(encoder, None, None, embedded=[*before, *embedded])[-1][len(before) :]
        for state, label in zip(states, wanted, strict=True):
            if label != IGNORED:
                hidden = layer_norm(gelu(weight @ state + bias), gain, shift)
                scores = encoder["embeddings.word_embeddings.weight"] @ hidden + words_bias
                losses.append(math.log(sum(math.exp(score - max(scores)) for score in scores)) + max(scores) - scores[label])
    return losses


@pytest.mark.parametrize(("family", "pooler", "options"), [
    ("bert", "mean", {}), ("roberta", "mean", {"both_directions": True, "probability": 0.4, "vectors": 3}),
    ("bert", "cls", {"vectors": 1}), ("bert", "max", {"both_directions": True, "vectors": 0}),
    ("roberta", "cls", {"sentence": "same", "vectors": 3, "masked": 0.0, "random": 0.5}), ("bert", "mean", {"vectors": 0}),
], ids=str)
def test_the_loss_is_what_the_loops_compute_in_either_engine(folders, family, pooler, options):
    folder = folders[family]
    method, rows = cmlm(folder, pooler, **options), documents(folder)
    views = method.views(rows, np.random.default_rng(1))
    labels = views.extra["mlm_labels"]
    sources = [None, None] if method.projections is None else [tokens(folder, FIRST), tokens(folder, NEXT)]
    masked, batch = views.tokens[-len(labels) :], batch_of(method, rows, seed=1, more_padding=7)
    for engine in ("packed", "padded"):
        method.backbone.engine = engine
        terms = method(batch)
        assert list(terms) == (["mlm", "mlm_back"] if method.options.both_directions else ["mlm"])
        for number, (name, term) in enumerate(terms.items()):
            guesses = lists(masked[number]), lists(labels[number])
            losses = naive_losses(folder, family, pooler, method, sources[number], *guesses)
            assert term.count == len(losses) == method.counts(batch)[name] > 0 and term.weight == 1
            assert abs(term.value.item() - sum(losses) / len(losses)) < 1e-10
    assert method.inference().pooler == pooler and method.inference().model is method.backbone.model


def gradient(method, batch):
    method.zero_grad()
    total(method(batch)).backward()
    return {name: weight.grad.clone() for name, weight in method.named_parameters() if weight.grad is not None}


def test_the_gradient_of_the_vector_is_part_of_the_encoder_s(folders):
    method = cmlm(folders["bert"], **SMALL)
    batch, detached = batch_of(method, documents(folders["bert"])), copy.deepcopy(method)
    pooled = detached.backbone.pooled
    detached.backbone.pooled = lambda *arguments: pooled(*arguments).detach()
    gradients, without = gradient(method, batch), gradient(detached, batch)
    differing = {name for name in gradients if not torch.allclose(gradients[name], without[name], rtol=1e-9, atol=1e-12)}
    assert any("layer.0" in name for name in differing)
    assert not any(name.startswith(("projections", "head.parts.cls.predictions.transform")) for name in differing)


def test_a_batch_without_a_masked_token_has_no_loss_but_a_gradient(folders):
    method = make(ConditionalMaskedLM, folders["bert"], {"probability": 1e-9})
    (term,) = method(batch_of(method, documents(folders["bert"]))).values()
    term.value.backward()
    assert term.value.item() == 0 and term.count == 0 and method.metrics() == {}
    assert all(weight.grad is not None and not weight.grad.any() for weight in method.parameters())


def test_the_projections_start_as_transformers_draws_weights(folders):
    learned = make(ConditionalMaskedLM, folders["bert"], {"vectors": 200}).projections.learned
    assert len(learned) == 199
    weights = torch.cat([projection[0].weight.flatten() for projection in learned])
    assert abs(weights.std().item() - 0.3) < 0.01 and abs(weights.mean().item()) < 0.01  # its initializer_range
    assert not any(projection[0].bias.any() or projection[2].bias.any() for projection in learned)


def test_views_are_both_sentences_and_masked_copies_of_the_guessed_ones(folders):
    folder = folders["bert"]
    method = cmlm(folder, both_directions=True, probability=0.5)
    views = method.views(documents(folder), np.random.default_rng(1))
    first, second, *masked = views.tokens
    assert (lists(first), lists(second)) == (tokens(folder, FIRST), tokens(folder, NEXT))
    for texts, copies, labels in zip((NEXT, FIRST), masked, views.extra["mlm_labels"], strict=True):
        for ids, changed, wanted in zip(tokens(folder, texts), copies, labels, strict=True):
            assert np.where(np.array(wanted) == IGNORED, changed, wanted).tolist() == ids


def test_rows_that_another_one_follows_can_be_used(folders):
    folder, needs = folders["bert"], ConditionalMaskedLM.needs
    every = documents(folder, range(len(TEXTS)))
    assert np.flatnonzero(needs(ConditionalMaskedLMOptions()).usable(every)).tolist() == PAIRED
    assert needs(ConditionalMaskedLMOptions(sentence="same")).usable is None
    assert not any(needs(ConditionalMaskedLMOptions(sentence=which)).negatives for which in ("same", "next"))
    with pytest.raises(StsbenchError):
        cmlm(folder).views(documents(folder, [0, 3]), np.random.default_rng(0))


def test_a_model_without_positions_of_its_own_is_refused(tmp_path):
    folder = build(tmp_path / "distil", "distilbert")
    method = make(ConditionalMaskedLM, folder)
    with pytest.raises(EncoderError):
        method(batch_of(method, documents(folder)))
