"""SG-OPT written out: every state by transformers, one text at a time; pooling, projection and losses in loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from info_nce_oracle import naive_nt_xent
from method_oracle import MemoryRows, _reference, grown, make, tokens
from tiny_models import build
from torch.nn.functional import cosine_similarity
from transformers import AutoModel

from stsbench import losses
from stsbench.methods.sgopt.method import SGOPT
from stsbench.training.api.batch import Shares
from stsbench.training.rows.batches import to_batch

TEXTS = ["the man plays guitar in the park", "a dog", "the big cat sleeps on the red food .", "a woman eats", "blue"]
INNER = 12  # width of the projection


def sgopt(folder, dropout=0.0, moved=True, pooler="cls", **options):
    """In float64 and train mode. moved: the weights are no longer those at the start, so that nothing is 0 by chance."""
    method = make(SGOPT, folder, {"projection_width": INNER, **options}, pooler=pooler, dropout=dropout)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in method.projector.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator, dtype=weight.dtype) * 0.3)
    method.start_stage("main")
    if moved:
        move(method)
    return method


def move(method):
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for weight in method.backbone.parameters():
            if weight.requires_grad:
                weight.add_(torch.randn(weight.shape, generator=generator, dtype=weight.dtype) * 0.02)


def batch_for(method, folder, more_padding=0, texts=TEXTS):
    """(a batch, the layers drawn for its texts or None)."""
    views = method.views(MemoryRows(folder, {"sentence": texts}), np.random.default_rng(0))
    pad = method.backbone.tokenizer.pad_token_id
    batch = grown(method, to_batch(views, Shares((len(texts),)), pad, torch.device("cpu")), more_padding)
    drawn = views.by_row.get("layer")
    return batch, None if drawn is None else [int(layer) for layer in drawn[0]]


def layer_vectors(folder, pooling="mean"):
    """[text][layer] -> numbers, by the checkpoint's own weights; layer 0 is the embedding output."""
    model, by_text = _reference(AutoModel, folder), []
    for ids in tokens(folder, TEXTS):
        with torch.no_grad():
            states = model(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states
        by_text.append([[_pooled(column, pooling) for column in zip(*state[0].tolist(), strict=True)] for state in states])
    return by_text


def _pooled(numbers, pooling):
    return {"mean": sum(numbers) / len(numbers), "max": max(numbers), "sum": sum(numbers)}[pooling]


def sentence_vectors(method, folder):
    """[text] -> numbers: the first token's, by the weights that are trained."""
    model = method.backbone.model
    mode = model.training
    model.eval()
    with torch.no_grad():
        by_text = [model(input_ids=torch.tensor([ids])).last_hidden_state[0, 0].tolist() for ids in tokens(folder, TEXTS)]
    model.train(mode)
    return by_text


def projected(method, vector):
    for linear in (method.projector.inner, method.projector.outer):
        vector = [sum(w * x for w, x in zip(row, vector, strict=True)) + b
                  for row, b in zip(linear.weight.tolist(), linear.bias.tolist(), strict=True)]
        vector = [x * (1 + math.erf(x / math.sqrt(2))) / 2 for x in vector]
    return vector


def e(a, b, temperature):
    dot, norms = sum(x * y for x, y in zip(a, b, strict=True)), [math.sqrt(sum(x * x for x in v)) for v in (a, b)]
    return math.exp(dot / norms[0] / norms[1] / temperature)


def opt(c, h, temperature, with_vectors, skip=False):
    """opt1 with the other sentences' c among the negatives; opt2 without, and with `skip` without the first other h."""
    losses = []
    for i, anchor in enumerate(c):
        others = [m for m in range(len(c)) if m != i]
        rest = [e(anchor, h[m], temperature) for m in (others[1:] if skip else others)]
        if with_vectors:
            rest += [e(anchor, c[m], temperature) for m in others]
        top = e(anchor, h[i], temperature)
        losses.append(-math.log(top / (top + sum(rest))))
    return sum(losses) / len(losses)


def distance(method, folder):
    """Number by number, of all weights."""
    start = dict(_reference(AutoModel, folder).named_parameters())
    trained = dict(method.backbone.model.named_parameters())
    return math.fsum((a - b) ** 2 for name, weight in trained.items()
                     for a, b in zip(weight.flatten().tolist(), start[name].flatten().tolist(), strict=True))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("sgopt")
    return {family: build(place / family, family, pooler=False, layers=3) for family in ("bert", "roberta")}


@pytest.fixture(params=["bert", "roberta"])
def folder(request, folders):
    return folders[request.param]


@pytest.mark.parametrize(("engine", "pooling", "temperature", "first", "last"), [
    ("packed", "mean", 0.01, 0, None), ("padded", "max", 0.05, 1, None), ("packed", "sum", 0.1, 0, 1),
])
def test_sg_opt_is_the_mean_over_sentences_and_layers(folder, engine, pooling, temperature, first, last):
    method = sgopt(folder, layer_pooling=pooling, temperature=temperature, first_layer=first, last_layer=last)
    method.backbone.engine = method.reference.backbone.engine = engine
    batch, drawn = batch_for(method, folder, more_padding=2)
    terms = method(batch)
    every = layer_vectors(folder, pooling)
    stop = len(every[0]) if last is None else last + 1
    h = [[projected(method, layer) for layer in layers[first:stop]] for layers in every]
    c = [projected(method, vector) for vector in sentence_vectors(method, folder)]
    assert drawn is None and set(terms) == {"contrastive", "regulariser"}
    expected = losses.sgopt(*(torch.tensor(rows, dtype=torch.float64) for rows in (c, h)), temperature=temperature)
    assert abs(terms["contrastive"].value.item() - expected.item()) < 1e-8  # in loops: tests/losses


def nt_xent(c, h, temperature):
    return naive_nt_xent(*(torch.tensor(rows, dtype=torch.float64) for rows in (c, h)), temperature).mean().item()


@pytest.mark.parametrize(("options", "oracle"), [
    ({"objective": "sg"}, nt_xent), ({"objective": "opt1"}, lambda *given: opt(*given, True)),
    ({"objective": "opt2"}, lambda *given: opt(*given, False)),
    ({"objective": "opt2", "skip_negative": True}, lambda *given: opt(*given, False, skip=True)),
])
def test_the_objectives_of_one_drawn_layer(folder, options, oracle):
    method = sgopt(folder, temperature=0.05, **options)
    batch, drawn = batch_for(method, folder, more_padding=1)
    every = layer_vectors(folder)
    h = [projected(method, layers[layer]) for layers, layer in zip(every, drawn, strict=True)]
    c = [projected(method, vector) for vector in sentence_vectors(method, folder)]
    assert abs(method(batch)["contrastive"].value.item() - oracle(c, h, 0.05)) < 1e-8


def test_without_a_copy_the_layers_are_of_the_trained_model_and_have_a_gradient(folder):
    """Against a loop over single texts, read by transformers, in which h is not a constant."""
    method = sgopt(folder, temperature=0.05, guide="trained")
    batch, _ = batch_for(method, folder, more_padding=2)
    term = method(batch)["contrastive"].value

    def written_out():
        states = [method.backbone.model(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states
                  for ids in tokens(folder, TEXTS)]
        vectors = [method.projector(state[-1][0, 0]) for state in states]
        layers = [[method.projector(layer[0].mean(0)) for layer in state] for state in states]
        values = []
        for i, anchor in enumerate(vectors):
            scores = [[(cosine_similarity(anchor, layer, dim=0) / 0.05).exp() for layer in row] for row in layers]
            rest = sum(sum(row) for m, row in enumerate(scores) if m != i)
            values += [-(top / (top + rest)).log() for top in scores[i]]
        return torch.stack(values).mean()

    weights = [weight for weight in method.backbone.parameters() if weight.requires_grad]
    expected = written_out()
    assert abs(term.item() - expected.item()) < 1e-8
    found, expected = (torch.autograd.grad(value, weights, allow_unused=True) for value in (term, expected))
    assert all((a is None) == (b is None) and (a is None or (a - b).abs().max() < 1e-8)
               for a, b in zip(found, expected, strict=True))
    assert sum(each is not None for each in found) > 20


def test_the_regulariser_is_the_sum_of_squared_differences(folder):
    method = sgopt(folder, moved=False, regulariser_weight=0.3)
    batch, _ = batch_for(method, folder)
    assert method(batch)["regulariser"].value.item() == 0
    move(method)
    term = method(batch)["regulariser"]
    assert abs(term.value.item() - distance(method, folder)) < 1e-8 and term.weight == 0.3
    (gradient,) = torch.autograd.grad(term.value, method.backbone.model.encoder.layer[1].output.dense.weight)
    moved, start = (each.model.encoder.layer[1].output.dense.weight for each in (method.backbone, method.reference.backbone))
    assert (gradient - 2 * (moved - start)).abs().max() < 1e-12


def test_a_layer_of_each_kind_is_drawn_for_each_sentence(folders):
    method = sgopt(folders["bert"], objective="opt1", first_layer=1)
    drawn = batch_for(method, folders["bert"], texts=TEXTS * 40)[1]
    assert set(drawn) == set(method.layers) == set(range(1, 4)) and min(map(drawn.count, set(drawn))) > 40


def test_a_copy_is_in_memory_where_something_reads_it(folders):
    for guide, weight, there in (("trained", 0.0, False), ("trained", 0.1, True), ("frozen", 0.0, True)):
        method = sgopt(folders["bert"], guide=guide, regulariser_weight=weight)
        assert (method.reference is not None) == there
        assert any(name.startswith("reference") for name in method.state_dict()) == there
    dropped = sgopt(folders["bert"], guide="trained", dropout=0.3, regulariser_weight=0.0)
    batch, _ = batch_for(dropped, folders["bert"])
    assert len({dropped(batch)["contrastive"].value.item() for _ in range(3)}) == 3


def test_a_stage_begins_with_a_copy_of_what_was_trained_before(folders):
    """As by a stage of labelled rows (recipe.semi)."""
    method = sgopt(folders["bert"])
    method.start_stage("main")
    for one, other in zip(method.reference.backbone.parameters(), method.backbone.parameters(), strict=True):
        assert torch.equal(one, other) and one is not other
    assert method(batch_for(method, folders["bert"])[0])["regulariser"].value.item() == 0
