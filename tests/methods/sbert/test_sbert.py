"""Sentence-BERT's three objectives against loops over single texts, and what each option changes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import sbert_oracle as oracle
import torch
from sbert_oracle import batch_of, rows_of, sbert, vectors
from tiny_models import build, sentences
from training_runs import one_thread

from stsbench.config import validate
from stsbench.errors import StsbenchError
from stsbench.methods.sbert.method import SBERT
from stsbench.methods.sbert.options import SBERTOptions
from stsbench.training.recipes.method_plan import MethodPlan

__all__ = ["one_thread"]
TEXTS = sentences(12, longest=9, seed=3)
CLASSES, SCORES = [2, 0, 1, 1, 0, 2], [0.0, 5.0, 3.8, 1.25, 2.5, 4.4]
FEATURES = [
    ("u", "v"), ("difference",), ("product",), ("difference", "product"), ("u", "v", "product"), ("u", "v", "difference"),
    ("u", "v", "difference", "product"), ("u", "v", "difference", "max_square"),
]


@pytest.fixture(scope="module", params=["bert", "roberta"])
def folder(request, tmp_path_factory):
    return build(tmp_path_factory.mktemp("sbert") / request.param, request.param, pooler=False)


def value_of(method, stage, rows, **more):
    ((name, term),) = method(batch_of(method, stage, rows, **more)).items()
    assert (name, term.count, term.weight) == (stage, len(rows.rows), 1.0)
    return term.value


@pytest.mark.parametrize("pooler", ["mean", "max", "cls"])
@pytest.mark.parametrize("features", FEATURES, ids="-".join)
def test_nli_is_the_loop(folder, features, pooler):
    rows = rows_of(folder, "nli", TEXTS, CLASSES)
    u, v = (vectors(folder, rows.texts(role), pooler) for role in rows.roles)
    for bias in (True, False):
        method = sbert(folder, "nli", pooler, features=features, bias=bias)
        linear = method.classifier.linear
        numbers = linear.bias.tolist() if bias else [0.0] * 3
        expected = oracle.nli(u, v, CLASSES, linear.weight.tolist(), numbers, features)
        assert abs(value_of(method, "nli", rows, more_padding=3).item() - expected) < 1e-8


@pytest.mark.parametrize("pooler", ["mean", "max", "cls"])
@pytest.mark.parametrize("scale", [(0.0, 5.0), (-1.0, 6.0)])
@pytest.mark.parametrize("similarity", ["cosine", "rescaled_cosine"])
def test_regression_is_the_loop(folder, similarity, scale, pooler):
    rows = rows_of(folder, "sts", TEXTS, SCORES)
    method = sbert(folder, "sts", pooler, similarity=similarity, scale=scale)
    u, v = (vectors(folder, rows.texts(role), pooler) for role in rows.roles)
    expected = oracle.regression(u, v, SCORES, scale, similarity == "rescaled_cosine")
    assert abs(value_of(method, "sts", rows, more_padding=3).item() - expected) < 1e-8


@pytest.mark.parametrize("pooler", ["mean", "max", "cls"])
@pytest.mark.parametrize("margin", [1.0, 0.1])
def test_triplets_are_the_loop(folder, margin, pooler):
    rows = rows_of(folder, "triplet", TEXTS)
    method = sbert(folder, "triplet", pooler, margin=margin)
    expected = oracle.triplet(*(vectors(folder, rows.texts(role), pooler) for role in rows.roles), margin)
    assert abs(value_of(method, "triplet", rows, more_padding=3).item() - expected) < 1e-8


def test_a_triplet_beyond_the_margin_has_no_gradient(folder):
    rows = rows_of(folder, "triplet", [TEXTS[0], TEXTS[0], TEXTS[1]])
    method = sbert(folder, "triplet", margin=1e-3)
    value = value_of(method, "triplet", rows)
    value.backward()
    assert value.item() == 0 and not any(weight.grad.any() for weight in method.parameters() if weight.grad is not None)


def test_one_text_twice_has_a_finite_gradient(folder):
    """At 0 both |u - v| and the distance of two equal vectors have the derivative 0."""
    same = [TEXTS[0], TEXTS[1]] * 2
    for stage, texts in (("nli", same), ("sts", same), ("triplet", [*same, *TEXTS[2:4]])):
        method = sbert(folder, stage)
        value_of(method, stage, rows_of(folder, stage, texts, [1, 0])).backward()
        assert all(bool(weight.grad.isfinite().all()) for weight in method.parameters() if weight.grad is not None)


@pytest.mark.parametrize(("stage", "options"), [
    ("nli", {"features": ["u", "v"]}), ("nli", {"features": ["v", "u", "difference"]}), ("nli", {"bias": False}),
    ("nli", {"classifier_init": "truncated_normal"}), ("sts", {"similarity": "rescaled_cosine"}),
    ("sts", {"scale": [0.0, 10.0]}), ("triplet", {"margin": 0.5}),
], ids=str)
def test_an_option_changes_the_loss(folder, stage, options):
    rows = rows_of(folder, stage, TEXTS, CLASSES if stage == "nli" else SCORES)
    plain, changed = (value_of(sbert(folder, stage, **each), stage, rows).item() for each in ({}, options))
    assert abs(plain - changed) > 1e-6


def test_two_classes_and_many(folder):
    assert sbert(folder, "nli", classes=2).classifier.linear.weight.shape[0] == 2
    with pytest.raises(StsbenchError, match="1 label"):
        sbert(folder, "nli", classes=1)


def test_the_classifier_sees_raw_vectors_in_the_order_of_the_pair(folder):
    """Swapping the two texts swaps the first two blocks of the features, and nothing else."""
    method = sbert(folder, "nli", bias=False)
    width, weight = method.backbone.width, method.classifier.linear.weight
    there, back = (rows_of(folder, "nli", texts, CLASSES) for texts in (TEXTS, [*TEXTS[6:], *TEXTS[:6]]))
    first = value_of(method, "nli", there).item()
    assert abs(value_of(method, "nli", back).item() - first) > 1e-6
    with torch.no_grad():
        weight.copy_(torch.cat([weight[:, width : 2 * width], weight[:, :width], weight[:, 2 * width :]], dim=1))
    assert value_of(method, "nli", back).item() == pytest.approx(first, abs=1e-12)
    with torch.no_grad():
        weight.zero_()
    assert value_of(method, "nli", there).item() == pytest.approx(math.log(3), abs=1e-12)


# --- what is trained and tested ---


def test_stages():
    for objective, stages, uses in [
        ("nli", ("nli",), ["only"]), ("sts", ("sts",), ["none"]), ("nli-sts", ("nli", "sts"), ["only", "none"]),
        ("triplet", ("triplet",), ["none"]),
    ]:
        options = SBERTOptions(objective=objective)
        assert SBERT.stages_for(options) == stages
        assert [MethodPlan(SBERT, options).labelled(stage) for stage in stages] == uses


def test_the_classifier_has_no_part_in_the_second_stage(folder):
    method = sbert(folder, "nli-sts")
    for stage in ("nli", "sts"):
        method.start_stage(stage)
        assert {weight.requires_grad for weight in method.classifier.parameters()} <= {stage == "nli"}
    assert all(weight.requires_grad for weight in method.backbone.parameters())


def test_the_tested_encoder(folder):
    plain, other = sbert(folder, "nli"), sbert(folder, "nli", test_pooler="first_last:layer1")
    assert plain.inference().pooler == "mean" == plain.dev_inference().pooler
    assert (other.inference().pooler, other.dev_inference().pooler) == ("first_last:layer1", "mean")
    assert plain.inference().model is plain.backbone.model and plain.inference().dense is None


# --- mistakes ---


@pytest.mark.parametrize(("options", "message"), [
    ({"objective": "sts", "bias": False}, "options.bias false has no effect with objective sts: it goes with objective nli "
     "or nli-sts; leave it at true"),
    ({"objective": "triplet", "features": ["u"]}, "options.features [u] has no effect with objective triplet"),
    ({"scale": [0, 1]}, "options.scale [0, 1] has no effect with objective nli: it goes with objective sts or nli-sts; "
     "leave it at [0, 5]"),
    ({"similarity": "rescaled_cosine"}, "options.similarity rescaled_cosine has no effect with objective nli"),
    ({"objective": "nli-sts", "margin": 2.0}, "options.margin 2 has no effect with objective nli-sts"),
    ({"objective": "sts", "scale": [5, 5]}, "options.scale [5, 5]: the least score comes first, then the greatest"),
], ids=str)
def test_options_that_do_not_go_together(options, message):
    with pytest.raises(StsbenchError) as caught:
        validate(SBERTOptions, options, "recipe", "options.")
    assert str(caught.value).startswith(f"recipe: {message}") and "\n" not in str(caught.value)


def test_wrong_columns(folder):
    for objective, given, message in [
        ("sts", ("sentence",), r"objective sts needs the columns sentence1, sentence2 and score \(the data give sentence\)"),
        ("nli-sts", ("sentence1", "sentence2"), "needs the columns sentence1, sentence2 and score"),
        ("triplet", ("anchor", "positive"), "needs the columns anchor, positive and negative"),
    ]:
        with pytest.raises(StsbenchError, match=message):
            MethodPlan(SBERT, SBERTOptions(objective=objective)).roles(given)
    with pytest.raises(StsbenchError, match=r"needs labelled rows of premise, hypothesis and label \(these give anchor"):
        MethodPlan(SBERT, SBERTOptions()).labelled_roles(("anchor", "positive", "negative"))


def test_a_batch_of_equal_pairs_is_no_mistake(folder):
    """Two texts of a pair may be one and the same: nothing of dropout is checked."""
    method = sbert(folder, "sts")
    rows = rows_of(folder, "sts", [TEXTS[0]] * 4, [5.0, 5.0])
    assert method.view_vectors(batch_of(method, "sts", rows)) is None
    assert np.allclose(value_of(method, "sts", rows).item(), 0)
