"""The section adaptive_layers: losses and gradients of sentence-transformers' AdaptiveLayerLoss, with matryoshka its 2D."""

import random

import pytest
import torch
from method_oracle import LIMIT, MemoryRows, batch_of, make, total
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses as library
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from simcse_oracle import PLAIN, TRIPLETS

from stsbench.errors import StsbenchError
from stsbench.methods.simcse.method import SimCSE
from stsbench.training.api.batch import Batch
from stsbench.training.engine.objective import AdaptiveLayers, Wrapped
from stsbench.training.recipes.sections import AdaptiveLayersSettings, MatryoshkaSettings

GIVEN = {"view": "given", "head": "none"}


def objective(folder, options=GIVEN, dims=None, pooler="mean", dims_per_step=None, **settings):
    method = make(SimCSE, folder, options, pooler=pooler)
    shorter = None if dims is None else MatryoshkaSettings(dims=dims, per_step=dims_per_step)
    inner = method if dims is None else Wrapped(method, method, shorter, None)
    return AdaptiveLayers(method, inner, AdaptiveLayersSettings(**settings))


def batch_for(made, texts):
    batch: Batch = batch_of(made, MemoryRows(made.method.backbone.folder, texts), more_padding=2)
    batch.by_row = {name: values.double() for name, values in batch.by_row.items()}
    return batch


@pytest.mark.parametrize(("engine", "dims", "pooler", "settings"), [
    ("packed", None, "cls", {"weighting": "log", "prior_weight": 0.7, "last_weight": 1.3}),
    ("padded", (32, 8), "mean", {"weighting": "linear", "kl_weight": 0.4, "kl_temperature": 0.8}),
    ("packed", None, "max", {"kl_weight": 0.0}),
    ("packed", (32, 20, 8, 4), "mean", {"per_step": 1, "dims_per_step": 1}),
    ("packed", (32, 20, 8, 4), "mean", {"per_step": 1, "dims_per_step": 2}),
])
def test_layers_and_dims_have_the_loss_and_gradients_of_the_library(folder, monkeypatch, engine, dims, pooler, settings):
    made = objective(folder, dims=dims, pooler=pooler, **{"per_step": None, **settings})
    made.method.backbone.engine = engine
    batch = batch_for(made, TRIPLETS)
    value = total(made(batch))
    value.backward()
    transformer = Transformer(str(folder), max_seq_length=LIMIT)
    width = transformer.get_embedding_dimension()
    model = SentenceTransformer(modules=[transformer, Pooling(width, pooling_mode=pooler)], device="cpu").double().eval()
    inner = library.MultipleNegativesRankingLoss(model, scale=20)
    if dims is not None:
        inner = library.MatryoshkaLoss(model, inner, list(dims), n_dims_per_step=settings.get("dims_per_step", -1))
    draws = {len(dims or ()): "matryoshka dims", made.layers: "adaptive layers"}
    monkeypatch.setattr(random, "sample", lambda numbers, count: batch.by_row[draws[len(numbers)]][0].int().tolist())
    how = {"n_layers_per_step": settings.get("per_step", -1), "kl_div_weight": settings.get("kl_weight", 1.0)}
    how |= {"last_layer_weight": settings.get("last_weight", 1.0), "prior_layers_weight": settings.get("prior_weight", 1.0),
            "layer_weighting": settings.get("weighting", "uniform"), "kl_temperature": settings.get("kl_temperature", 0.3)}
    expected = library.AdaptiveLayerLoss(model, inner, **how)([model.preprocess(texts) for texts in TRIPLETS.values()], None)
    expected.backward()
    assert value.item() == pytest.approx(expected.item(), abs=1e-9)
    theirs = dict(transformer.model.named_parameters())
    for name, weight in made.method.backbone.model.named_parameters():
        if weight.grad is not None and weight.grad.abs().max() > 1e-12:
            torch.testing.assert_close(weight.grad, theirs[name].grad, atol=1e-9, rtol=1e-6)


def test_a_step_draws_layers_by_the_batch_s_numbers_and_reads_one_pass(folder, monkeypatch):
    made = objective(folder, {"head": "none"}, per_step=1)
    passes = []
    run = made.method.backbone.model.encoder.forward
    monkeypatch.setattr(made.method.backbone.model.encoder, "forward", lambda *a, **b: passes.append(1) or run(*a, **b))
    batches = [batch_of(made, MemoryRows(folder, PLAIN), seed=seed) for seed in (0, *range(12))]
    drawn = [int(batch.by_row["adaptive layers"][0, 0]) for batch in batches]
    assert drawn[0] == drawn[1] and set(drawn) == set(range(made.layers))
    plain = made.method(batches[0])["contrastive"].value
    alone = len(passes)
    terms = made(batches[0])
    assert len(passes) == 2 * alone and terms.keys() == {"contrastive", "adaptive_layers"}
    assert terms["contrastive"].value > plain and terms["adaptive_layers"].value > 0
    assert made.method.backbone.layer_states is None
    assert made.method(batches[0])["contrastive"].value == plain  # nothing is left behind


def test_a_step_draws_dims_by_the_batch_s_numbers(folder):
    method = make(SimCSE, folder, {"head": "none"})
    made = Wrapped(method, method, MatryoshkaSettings(dims=(32, 20, 8), per_step=2), None)
    batches = [batch_of(made, MemoryRows(folder, PLAIN), seed=seed) for seed in (0, *range(12))]
    drawn = [tuple(sorted(batch.by_row["matryoshka dims"][0].int().tolist())) for batch in batches]
    assert drawn[0] == drawn[1] and set(drawn) == {(0, 1), (0, 2), (1, 2)}


@pytest.mark.parametrize(("options", "pooler", "settings", "why"), [
    ({"queue": {"size": 4}}, "cls", {}, "options.queue"), ({}, "first_last:layer1", {}, "pooler"),
    ({}, "cls", {"per_step": 9}, "per_step"),
])
def test_what_has_no_earlier_layer_is_refused(folder, options, pooler, settings, why):
    with pytest.raises(StsbenchError, match=why):
        objective(folder, {"head": "none", **options}, pooler=pooler, **settings)
