"""SG-OPT's losses against loops in float64, with padding and uneven lengths; what each option changes; what is refused."""

from __future__ import annotations

import pytest
import torch
from method_oracle import tokens, total
from sgopt_oracle import (
    TEXTS,
    batch_for,
    distance,
    layer_vectors,
    move,
    opt,
    projected,
    sentence_vectors,
    sg,
    sg_opt,
    sgopt,
)
from tiny_models import build
from torch.nn.functional import cosine_similarity
from training_runs import one_thread

from stsbench.config import validate
from stsbench.errors import StsbenchError
from stsbench.methods.sgopt.method import all_layers_term
from stsbench.methods.sgopt.options import SGOPTOptions
from stsbench.training.api.batch import Shares
from stsbench.training.engine.optimiser import make_optimiser
from stsbench.training.modules.backbone import pool_layers
from stsbench.training.recipes.recipe import TrainingSettings
from stsbench.training.recipes.sections import TrainingSettings

__all__ = ["one_thread"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("sgopt")
    return {family: build(place / family, family, pooler=False, layers=3) for family in ("bert", "roberta")}


@pytest.fixture(params=["bert", "roberta"])
def folder(request, folders):
    return folders[request.param]


# --- the losses ---


@pytest.mark.parametrize("engine", ["packed", "padded"])
@pytest.mark.parametrize(("pooling", "temperature", "first", "last"), [
    ("mean", 0.01, 0, None), ("max", 0.05, 1, None), ("sum", 0.1, 0, 1),
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
    assert abs(terms["contrastive"].value.item() - sg_opt(c, h, temperature)) < 1e-8


OBJECTIVES = [
    ({"objective": "sg"}, sg), ({"objective": "opt1"}, lambda *given: opt(*given, True)),
    ({"objective": "opt2"}, lambda *given: opt(*given, False)),
    ({"objective": "opt2", "skip_negative": True}, lambda *given: opt(*given, False, skip=True)),
]


@pytest.mark.parametrize(("options", "oracle"), OBJECTIVES)
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
        losses = []
        for i, anchor in enumerate(vectors):
            scores = [[(cosine_similarity(anchor, layer, dim=0) / 0.05).exp() for layer in row] for row in layers]
            rest = sum(sum(row) for m, row in enumerate(scores) if m != i)
            losses += [-(top / (top + rest)).log() for top in scores[i]]
        return torch.stack(losses).mean()

    weights = [weight for weight in method.backbone.parameters() if weight.requires_grad]
    expected = written_out()
    assert abs(term.item() - expected.item()) < 1e-8
    found, expected = (torch.autograd.grad(value, weights, allow_unused=True) for value in (term, expected))
    assert all((a is None) == (b is None) and (a is None or (a - b).abs().max() < 1e-8)
               for a, b in zip(found, expected, strict=True))
    assert sum(each is not None for each in found) > 20


def test_a_copy_is_in_memory_where_something_reads_it(folders):
    for guide, weight, there in (("trained", 0.0, False), ("trained", 0.1, True), ("frozen", 0.0, True)):
        method = sgopt(folders["bert"], guide=guide, regulariser_weight=weight)
        assert (method.reference is not None) == there
        assert any(name.startswith("reference") for name in method.state_dict()) == there
    dropped = sgopt(folders["bert"], guide="trained", dropout=0.3, regulariser_weight=0.0)
    batch, _ = batch_for(dropped, folders["bert"])
    assert len({dropped(batch)["contrastive"].value.item() for _ in range(3)}) == 3


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


def test_a_temperature_of_a_hundredth_neither_overflows_nor_loses_digits_in_half_precision(folders):
    method = sgopt(folders["bert"])
    batch, _ = batch_for(method, folders["bert"])
    exact = method(batch)["contrastive"].value
    x, h = (torch.randn(4, *shape, dtype=torch.bfloat16, requires_grad=True) for shape in ((8,), (3, 8)))
    with torch.autocast("cpu", torch.bfloat16):
        value = all_layers_term(x, h, 0.01, Shares((4,)), "exact").value
    wide = all_layers_term(x.detach().double(), h.detach().double(), 0.01, Shares((4,)), "exact").value
    assert value.dtype == torch.float32 and abs(value.item() - wide.item()) < 1e-4 and exact.isfinite()
    alone = all_layers_term(x[:1].float(), h[:1].float(), 0.01, Shares((1,)), "exact").value
    alone.backward()  # nothing to contrast with: 0, not NaN
    assert alone.item() == 0 and x.grad.isfinite().all()


def test_layers_pooled_over_real_tokens():
    states = [torch.tensor([[[1.0, -2.0], [3.0, -6.0], [9.0, 9.0]]]), torch.zeros(1, 3, 2)]
    mask = torch.tensor([[1, 1, 0]])
    for name, expected in (("mean", [2, -4]), ("max", [3, -2]), ("sum", [4, -8])):
        assert pool_layers(name, states, mask).tolist() == [[expected, [0, 0]]]


# --- options ---


CHANGES = [
    {"objective": "sg"}, {"objective": "opt1"}, {"objective": "opt2"}, {"temperature": 0.1}, {"first_layer": 1},
    {"last_layer": 1}, {"layer_pooling": "max"}, {"layer_pooling": "sum"}, {"projection_width": 7},
    {"freeze_embeddings": False}, {"regulariser_weight": 0.0}, {"regulariser_weight": 1.0}, {"guide": "trained"},
]


def loss_and_trained(folder, options):
    method = sgopt(folder, **options)
    loss = total(method(batch_for(method, folder)[0]))
    loss.backward()
    return loss.item(), {name for name, weight in method.named_parameters() if weight.grad is not None}


@pytest.mark.parametrize("change", CHANGES)
def test_every_option_changes_the_loss_or_what_is_trained(folders, change):
    assert loss_and_trained(folders["bert"], {}) != loss_and_trained(folders["bert"], change)


def test_the_released_opt2_has_a_negative_less(folders):
    whole, less = (loss_and_trained(folders["bert"], {"objective": "opt2", "temperature": 1.0, "skip_negative": skip})[0]
                   for skip in (False, True))
    assert less < whole


def test_no_option_is_untested():
    elsewhere = {"reference_dropout", "skip_negative"}
    assert set(SGOPTOptions.model_fields) == {*(name for each in CHANGES for name in each), *elsewhere}


def test_the_copys_dropout_is_its_own_option(folders):
    folder = folders["bert"]
    for on in (False, True):
        method = sgopt(folder, dropout=0.3, reference_dropout=on)
        assert method.backbone.training and method.reference.backbone.training == on
        batch, _ = batch_for(method, folder)
        one, two = (method.reference.states(batch.ids, batch.mask, (0, -1)) for _ in range(2))
        assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True)) != on
        assert not torch.equal(*(method.vectors(batch.ids, batch.mask) for _ in range(2)))
        method.eval()
        assert not method.reference.backbone.training
        method.train()
        assert method.reference.backbone.training == on


@pytest.mark.parametrize(("options", "message"), [
    ({"guide": "trained", "reference_dropout": True},
     "options.reference_dropout true has no effect with guide trained: it goes with guide frozen; leave it at false"),
    ({"skip_negative": True}, "options.skip_negative true has no effect with objective sg-opt: it goes with objective opt2"),
    ({"first_layer": 2, "last_layer": 1}, "options.first_layer 2 is above last_layer 1"),
])
def test_options_that_contradict_one_another(options, message):
    with pytest.raises(StsbenchError) as caught:
        validate(SGOPTOptions, options, "recipe", "options.")
    assert str(caught.value).startswith(f"recipe: {message}") and "\n" not in str(caught.value)


def test_what_the_model_lacks_is_refused(folders):
    for options, message in (({"last_layer": 4}, "options.last_layer 4: the model has 3 layers"),
                             ({"first_layer": 4}, "options.first_layer 4: the model has 3 layers"),
                             ({"pooler": "mask"}, "those of the pooler mask do not go with it")):
        with pytest.raises(StsbenchError, match=message):
            sgopt(folders["bert"], **options)


# --- what is trained ---


def test_the_copy_is_frozen_apart_and_of_the_weights_that_the_stage_begins_with(folders):
    folder = folders["bert"]
    method = sgopt(folder)
    one, two = ({weight.data_ptr() for weight in each.parameters()} for each in (method.reference, method.backbone))
    assert not one & two and method.reference.backbone.tokenizer is method.backbone.tokenizer
    total(method(batch_for(method, folder)[0])).backward()
    trained = {name for name, weight in method.named_parameters() if weight.grad is not None}
    assert {name.split(".")[0] for name in trained} == {"backbone", "projector"}
    assert not any("embeddings" in name for name in trained)
    chosen = [weight for group in make_optimiser(method, TrainingSettings()).param_groups for weight in group["params"]]
    assert not {weight.data_ptr() for weight in chosen} & one
    method.start_stage("main")
    assert method.reference.distance(method.backbone).item() == 0
    inference = method.inference()
    assert inference.model is method.backbone.model and inference.pooler == "cls" and inference.dense is None
