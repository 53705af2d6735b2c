"""Contrastive Tension's losses against plain loops in float64 and against sentence-transformers' own."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tiny_models
import torch
from ct_oracle import TEXTS, both_ways, ct, drawn, means, pair_losses, plain_means
from method_oracle import MemoryRows, batch_of
from shipped_recipes import one_line

from stsbench.config import validate
from stsbench.errors import StsbenchError
from stsbench.losses.labelled import ct as pair_loss
from stsbench.methods.ct.method import ContrastiveTension
from stsbench.methods.ct.options import ContrastiveTensionOptions
from stsbench.training.engine.optimiser import make_optimiser
from stsbench.training.recipes.method_plan import MethodPlan
from stsbench.training.recipes.sections import TrainingSettings

SIZES = {
    ("fresh", 7): 15, ("fresh", 2): 5, ("consecutive", 7): 15, ("consecutive", 2): 5, ("anchor", 7): 8, ("anchor", 2): 3,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_models.build(tmp_path_factory.mktemp("ct") / "tiny-bert", pooler=False)


def rows(folder, count):
    return MemoryRows(folder, {"sentence": TEXTS[:count]})


def vectors(method, folder, first, second):
    return means(method.first.model, folder, first), means(method.backbone.model, folder, second)


@pytest.mark.parametrize(("negatives", "k"), SIZES)
@pytest.mark.parametrize("more_padding", [0, 3])
def test_pairs(folder, negatives, k, more_padding):
    method = ct(folder, negatives=negatives, k=k)
    size = SIZES[negatives, k]
    assert ContrastiveTension.needs(method.options).group_size == size
    batch = batch_of(method, rows(folder, 2 * size), more_padding=more_padding)
    assert (len(batch), batch.views, batch.labels.tolist()) == (2 * (k + 1), 2, ([1] + [0] * k) * 2)
    term = method(batch)["tension"]
    first, second, labels = zip(*drawn(TEXTS[: 2 * size], negatives, k), strict=True)
    losses = pair_losses(*vectors(method, folder, first, second), labels)
    assert abs(term.value.item() - sum(losses) / len(losses)) < 1e-8
    assert (term.count, term.weight) == (len(losses), 1)
    summed = ct(folder, negatives=negatives, k=k, reduction="sum")(batch)["tension"]
    assert abs(summed.weight * summed.value.item() - sum(losses)) < 1e-8


@pytest.mark.parametrize("options", [{}, {"similarity": "cosine", "scale": 20.0}, {"scale": 0.3, "learned_scale": False}])
@pytest.mark.parametrize("more_padding", [0, 3])
def test_in_batch(folder, options, more_padding):
    method = ct(folder, objective="in-batch", **options)
    batch = batch_of(method, rows(folder, 6), more_padding=more_padding)
    assert (len(batch), batch.views) == (6, 1)
    term = method(batch)["in_batch"]
    cosine, scale = options.get("similarity") == "cosine", options.get("scale", 1.0)
    scale = method.metrics().get("scale", scale)  # e to the float32 nearest to its logarithm
    assert scale == pytest.approx(options.get("scale", 1.0), rel=1e-6)
    expected = both_ways(*vectors(method, folder, TEXTS[:6], TEXTS[:6]), scale, cosine)
    assert abs(term.value.item() - expected) < 1e-8 and (term.count, term.weight) == (6, 1)
    assert (method.log_scale is None) == (options.get("learned_scale") is False)
    if method.log_scale is not None:
        term.value.backward()
        step = 1e-6
        high, low = (both_ways(*vectors(method, folder, TEXTS[:6], TEXTS[:6]), scale * math.exp(by), cosine)
                     for by in (step, -step))
        assert method.log_scale.grad.item() == pytest.approx((high - low) / (2 * step), rel=1e-5)


def test_orthonormal_vectors():
    """Where both encoders give the same orthonormal vectors, a positive pair costs ln(1 + 1/e) and a negative one ln 2."""
    eye = torch.eye(16, dtype=torch.float64)
    positive = pair_loss(eye[:2], eye[:2], torch.ones(2))
    negative = pair_loss(eye[:7], eye[7:14], torch.zeros(7))
    assert positive.item() == pytest.approx(math.log1p(math.exp(-1)), abs=1e-15)
    assert negative.item() == pytest.approx(math.log(2), abs=1e-15)
    assert pair_loss(eye[:0], eye[:0], torch.ones(0)).item() == 0


def test_large_products_overflow_in_no_precision():
    """Dot products of 300 and 1,000, as BERT's vectors have; half precision's exponential ends at 11."""
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        first = torch.full((4, 100), 2.0, dtype=dtype).requires_grad_()
        second = torch.tensor([[1.5], [-1.5], [5.0], [-5.0]], dtype=dtype).expand(4, 100)
        with torch.autocast("cpu", torch.bfloat16):
            value = pair_loss(first, second, torch.tensor([1, 0, 0, 1]))
        value.backward()
        assert value.dtype == torch.promote_types(dtype, torch.float32) and value.item() == pytest.approx(500)
        assert first.grad.isfinite().all()


# --- sentence-transformers ---


def library(folder):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    transformer = Transformer(str(folder))
    model = SentenceTransformer(modules=[transformer, Pooling(transformer.get_embedding_dimension(), "mean")], device="cpu")
    return model.double().eval()


def features(method, texts):
    ids = method.backbone.tokenise(list(texts))
    longest = max(map(len, ids))
    return {
        "input_ids": torch.tensor([row + [0] * (longest - len(row)) for row in ids]),
        "attention_mask": torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in ids]),
    }


def test_the_library_loss_of_pairs(folder):
    """Its loader's pairs, its sum, its two copies of a model: the same loss and the same gradients."""
    from sentence_transformers.sentence_transformer.losses import ContrastiveTensionDataLoader, ContrastiveTensionLoss

    loader = ContrastiveTensionDataLoader(list(TEXTS[:30]), batch_size=16, pos_neg_ratio=8)
    (examples,) = list(loader)
    assert [(*each.texts, each.label) for each in examples] == drawn(loader.sentences, "consecutive", 7)
    method = ct(folder, apart=False, negatives="consecutive", reduction="sum")
    term = method(batch_of(method, MemoryRows(folder, {"sentence": loader.sentences})))["tension"]
    (term.weight * term.value).backward()
    theirs = ContrastiveTensionLoss(library(folder))
    sides = [features(method, texts) for texts in zip(*(each.texts for each in examples), strict=True)]
    loss = theirs(sides, torch.tensor([each.label for each in examples]))
    loss.backward()
    assert abs(term.weight * term.value.item() - loss.item()) < 1e-8
    for ours, other in ((method.first, theirs.model1), (method.backbone, theirs.model2)):
        expected = dict(other[0].auto_model.named_parameters())
        for name, weight in ours.model.named_parameters():
            assert (weight.grad - expected[name].grad).abs().max() < 1e-8, name


def test_the_library_loss_over_the_batch(folder):
    from sentence_transformers import util
    from sentence_transformers.sentence_transformer.losses import ContrastiveTensionLossInBatchNegatives

    script = {"scale": 1, "similarity_fct": util.dot_score}
    for options, more in (({}, script), ({"similarity": "cosine", "scale": 20.0}, {})):
        method = ct(folder, apart=False, objective="in-batch", **options)
        value = method(batch_of(method, rows(folder, 6)))["in_batch"].value
        value.backward()
        theirs = ContrastiveTensionLossInBatchNegatives(library(folder), **more).double()
        loss = theirs([features(method, TEXTS[:6])], torch.zeros(6))
        loss.backward()
        assert abs(value.item() - loss.item()) < 1e-8
        assert abs(method.log_scale.grad.item() - theirs.logit_scale.grad.item()) < 1e-8


# --- options ---


CHANGES = [  # options, what differs, sentences
    ({"k": 2}, {"negatives": "consecutive"}, 15), ({"k": 2}, {"negatives": "anchor"}, 15), ({"k": 1}, {"k": 3}, 21),
    ({"k": 1}, {"reduction": "sum"}, 6), ({}, {"objective": "in-batch"}, 15),
    *(({"objective": "in-batch"}, change, 6)
      for change in ({"similarity": "cosine"}, {"scale": 2.0}, {"learned_scale": False})),
]


def gradients(folder, options, count):
    method = ct(folder, **options)
    (term,) = method(batch_of(method, rows(folder, count))).values()
    loss = term.weight * term.value
    loss.backward()
    trained = {name for name, weight in method.named_parameters() if weight.grad is not None}
    return loss.item(), trained


@pytest.mark.parametrize(("base", "change", "count"), CHANGES)
def test_every_option_changes_the_loss_or_what_is_trained(folder, base, change, count):
    assert gradients(folder, base, count) != gradients(folder, {**base, **change}, count)


def test_dropout_and_pooler_change_the_loss(folder):
    torch.manual_seed(0)
    methods = [ct(folder, k=1, dropout=rate, pooler=pooler) for rate in (0.0, 0.3) for pooler in ("mean", "cls")]
    assert len({method(batch_of(method, rows(folder, 6)))["tension"].value.item() for method in methods}) == 4


@pytest.mark.parametrize(("options", "message"), [
    ({"similarity": "cosine"}, "similarity cosine has no effect with objective pairs: it goes with objective in-batch"),
    ({"scale": 20.0}, "scale 20 has no effect with objective pairs"),
    ({"learned_scale": False}, "learned_scale false has no effect with objective pairs"),
    ({"objective": "in-batch", "negatives": "anchor"}, "negatives anchor has no effect with objective in-batch"),
    ({"objective": "in-batch", "k": 3}, "k 3 has no effect with objective in-batch: it goes with objective pairs"),
    ({"objective": "in-batch", "reduction": "sum"}, "reduction sum has no effect with objective in-batch"),
])
def test_options_without_effect_are_refused(options, message):
    one_line(lambda: validate(ContrastiveTensionOptions, options, "recipe", "options."), f"recipe: options.{message}")


def test_pairs_of_the_data_are_refused():
    with pytest.raises(StsbenchError, match="ct needs the column sentence"):
        MethodPlan(ContrastiveTension, ContrastiveTensionOptions()).roles(("anchor", "positive"))


# --- two encoders ---


def test_both_start_as_the_checkpoint_and_share_nothing(folder):
    method = ct(folder, apart=False)
    for encoder in (method.first, method.backbone):
        found = means(encoder.model, folder, TEXTS[:5])
        assert np.abs(np.array(found) - np.array(plain_means(folder, TEXTS[:5]))).max() < 1e-12
    one, two = ({weight.data_ptr() for weight in each.parameters()} for each in (method.first, method.backbone))
    assert not one & two and method.first.tokenizer is method.backbone.tokenizer
    method(batch_of(method, rows(folder, 15)))["tension"].value.backward()
    assert all(weight.grad is not None and weight.grad.any() for name, weight in method.named_parameters()
               if "position_embeddings" not in name and not name.endswith("key.bias"))


def test_a_stage_begins_with_two_alike(folder):
    """Also where labelled rows (recipe.semi) trained model2 before."""
    method = ct(folder)
    method.start_stage("main")
    states = method.first.state_dict(), method.backbone.state_dict()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[1])


@pytest.mark.parametrize("keep", ["best", "model1"])
def test_model1_is_never_kept_before_it_is_trained(folder, keep):
    """A stage of labelled rows (recipe.semi) trains model2 alone; selection.over all may keep its weights."""
    method = ct(folder, keep=keep)
    assert all(each.model is method.backbone.model for each in (method.inference(), *method.candidates().values()))
    labelled = {name: tensor.clone() for name, tensor in method.state_dict().items()}
    method.start_stage("main")
    later = [each.model for each in (method.inference(), *method.candidates().values())]
    assert any(model is method.first.model for model in later)
    method.load_state_dict(labelled)
    assert method.inference().model is method.backbone.model


def test_the_kept_encoder(folder):
    for keep, expected in (("best", "backbone"), ("model2", "backbone"), ("model1", "first")):
        method = ct(folder, keep=keep)
        method.start_stage("main")
        assert method.inference().model is getattr(method, expected).model and method.inference().pooler == "mean"
        assert list(method.candidates()) == (["model2", "model1"] if keep == "best" else [])
    method = ct(folder)
    method.choose("model1")
    assert method.inference().model is method.first.model and int(method.state_dict()["kept"]) == 1
    method.choose("model2")
    assert method.inference().model is method.backbone.model


def test_weight_decay_acts_on_the_learned_scale_as_in_the_library(folder):
    method = ct(folder, objective="in-batch")
    decayed = [group for group in make_optimiser(method, TrainingSettings(weight_decay=0.01)).param_groups
               if any(weight is method.log_scale for weight in group["params"])]
    assert [group["weight_decay"] for group in decayed] == [0.01]
