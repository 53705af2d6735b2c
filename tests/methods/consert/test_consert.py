"""ConSERT's losses against its equations written out, in float64; which options go together; what each option changes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from consert_oracle import (
    LABELS,
    TEXTS,
    batch_for,
    consert,
    contrastive,
    cross_entropy,
    embedded,
    folders,
    pairs,
    plain,
    pooled,
    vectors,
)
from method_oracle import total
from shipped_recipes import one_line
from tiny_models import build
from training_runs import one_thread

from stsbench.config import validate
from stsbench.errors import StsbenchError
from stsbench.methods.consert.method import ConSERT
from stsbench.methods.consert.options import ConSERTOptions
from stsbench.training.modules.backbone import load_backbone
from stsbench.training.recipes.method_plan import MethodPlan

__all__ = ["folders", "one_thread"]
JOINT = {"setting": "joint", "joint_rates": (None, 0.3)}
MAX_SQUARE = ("u", "v", "difference", "max_square")


@pytest.fixture(params=["bert", "roberta"])
def family(request):
    return request.param


@pytest.mark.parametrize("temperature", [0.05, 0.1, 1.0])
def test_unsup_is_equation_2(folders, family, temperature):
    method = consert(folders[family], temperature=temperature)
    batch, views = batch_for(method, plain(folders[family]), more_padding=1)
    terms = method(batch)
    first, second = (
        vectors(folders[family], family, views, slot, name)
        for slot, name in (("first", "feature_cutoff"), ("second", "shuffle"))
    )
    assert set(terms) == {"contrastive"}
    assert abs(total(terms) - contrastive(first, second, temperature)) < 1e-10


def test_the_released_code_has_0_3_of_it(folders):
    plainly, released = (
        consert(folders["bert"], **more) for more in ({}, {"nt_xent": "sum", "weigh_unsup": True})
    )
    losses = [total(method(batch_for(method, plain(folders["bert"]))[0])) for method in (plainly, released)]
    assert abs(losses[1] - 2 * 0.15 * losses[0]) < 1e-12


def classified(method, folder, family, views, features=("u", "v", "difference")):
    """The cross-entropy of the unchanged texts."""
    u, v = (vectors(folder, family, views, "first", "none", text) for text in (0, 1))
    linear = method.classifier.linear
    return cross_entropy(u, v, linear.weight, linear.bias, LABELS, features)


@pytest.mark.parametrize("features", [("u", "v", "difference"), MAX_SQUARE])
def test_sup_is_the_cross_entropy_alone(folders, family, features):
    method = consert(folders[family], setting="sup", features=features)
    batch, views = batch_for(method, pairs(folders[family]), labelled=True)
    terms = method(batch)
    assert set(terms) == {"nli"} and not views.extra and not views.by_row
    assert abs(total(terms) - classified(method, folders[family], family, views, features)) < 1e-10
    assert method.classifier.linear.weight.shape == (3, len(features) * 32)


@pytest.mark.parametrize(("names", "rates"), [
    (("none", "token_cutoff"), (None, 0.3)), (("none", "shuffle"), (None, None)), (("dropout", "span"), (0.2, 0.5)),
])
def test_joint_adds_the_contrast_of_premises_and_of_hypotheses(folders, family, names, rates):
    method = consert(folders[family], setting="joint", joint_views=names, joint_rates=rates, features=MAX_SQUARE)
    batch, views = batch_for(method, pairs(folders[family]), labelled=True)
    terms = method(batch)
    want = classified(method, folders[family], family, views, MAX_SQUARE)
    assert abs(terms["nli"].value - want) < 1e-10 and terms["nli"].weight == 1
    for text in (0, 1):
        first, second = (
            vectors(folders[family], family, views, slot, name, text)
            for slot, name in zip(("first", "second"), names, strict=True)
        )
        want = want + 0.15 * contrastive(first, second)
    assert abs(total(terms) - want) < 1e-10


def test_the_adversarial_view_is_a_step_along_the_gradient_of_the_cross_entropy(folders, family):
    folder = folders[family]
    method = consert(folder, setting="joint", joint_views=("none", "adversarial"), joint_rates=(None, None),
                     adversarial_norm=0.4)
    batch, views = batch_for(method, pairs(folder), labelled=True, more_padding=1)
    linear = method.classifier.linear
    starts = [[embedded(folder, family, row).detach().requires_grad_() for row in part] for part in views.tokens]
    u, v = (torch.stack([pooled(folder, each) for each in part]) for part in starts)
    logits = torch.cat([u, v, (u - v).abs()], 1) @ linear.weight.detach().T + linear.bias.detach()
    loss = torch.stack([-logits[row].log_softmax(0)[label] for row, label in enumerate(LABELS)]).mean()
    loss.backward()
    want = float(loss.detach())
    for part, first in zip(starts, (u, v), strict=True):
        second = []
        for each in part:
            moved = each.detach().clone()
            for place in range(moved.shape[1]):
                gradient = each.grad[0, place]
                moved[0, place] += 0.4 * gradient / (gradient.square().sum().sqrt() + 1e-10)
            second.append(pooled(folder, moved).detach())
        want += 0.15 * float(contrastive(first.detach(), torch.stack(second)))
    for engine in ("packed", "padded"):
        method.backbone.engine = engine
        assert abs(float(total(method(batch)).detach()) - want) < 1e-8
        with torch.no_grad():  # as held-out rows are scored
            assert abs(float(total(method(batch)).detach()) - want) < 1e-8


def test_gradients_flow_through_the_adversarial_view_but_not_through_its_step(folders):
    method = consert(folders["bert"], setting="joint", joint_views=("none", "adversarial"), joint_rates=(None, None))
    batch, _ = batch_for(method, pairs(folders["bert"]), labelled=True)
    plain_vectors, second, _ = method._adversarial(batch, method.classifier)
    reached = torch.autograd.grad(second.sum(), method.backbone.model.embeddings.word_embeddings.weight, retain_graph=True)
    assert reached[0].abs().max() > 0
    assert torch.autograd.grad(second.sum(), method.classifier.linear.weight, allow_unused=True)[0] is None
    assert (plain_vectors - second).abs().max() > 1e-3


BASE = {"setting": "joint-unsup", "joint_rates": (None, 0.3)}
ABLATIONS = {
    "views": {"views": ("none", "shuffle"), "rates": (None, None)}, "rates": {"rates": (0.5, None)},
    "joint_views": {"joint_views": ("none", "dropout")}, "joint_rates": {"joint_rates": (None, 0.6)},
    "temperature": {"temperature": 0.5}, "contrastive_weight": {"contrastive_weight": 0.3},
    "weigh_unsup": {"weigh_unsup": True}, "nt_xent": {"nt_xent": "sum"}, "features": {"features": MAX_SQUARE},
    "adversarial_norm": {"joint_views": ("none", "adversarial"), "joint_rates": (None, None), "adversarial_norm": 0.1},
}


def losses(folder, options):
    method = consert(folder, **{**BASE, **options})
    parts = (False, plain(folder)), (True, pairs(folder))
    return [total(method(batch_for(method, rows, labelled=labelled)[0])).item() for labelled, rows in parts]


@pytest.mark.parametrize("name", ABLATIONS)
def test_every_option_changes_a_loss(folders, name):
    before = {"joint_views": ("none", "adversarial"), "joint_rates": (None, None)} if name == "adversarial_norm" else {}
    first, second = (losses(folders["bert"], options) for options in (before, ABLATIONS[name]))
    assert max(abs(a - b) for a, b in zip(first, second, strict=True)) > 1e-4


def test_no_option_is_untested():
    assert set(ConSERTOptions.model_fields) == {*ABLATIONS, "setting", "test_pooler"}


def test_stages_and_what_is_trained_and_tested(folders):
    for setting in ("unsup", "sup", "joint", "sup-unsup", "joint-unsup"):
        method = consert(folders["bert"], setting=setting)
        assert ConSERT.stages_for(method.options) == tuple(setting.split("-"))
        assert (method.classifier is None) == (setting == "unsup")
        assert method.inference().pooler == "last2" and method.dev_inference().pooler == "mean"
        for stage in ConSERT.stages_for(method.options):
            assert MethodPlan(ConSERT, method.options).labelled(stage) == ("none" if stage == "unsup" else "only")
            method.start_stage(stage)
            weights = [weight.requires_grad for weight in method.classifier.parameters()] if method.classifier else []
            assert set(weights) <= {stage != "unsup"}
            assert all(weight.requires_grad for weight in method.backbone.parameters())
    assert consert(folders["bert"], test_pooler="cls").inference().pooler == "cls"


def test_only_unchanged_views_need_dropout():
    for options, needs in (({}, False), ({"views": ("none", "none"), "rates": (None, None)}, True),
                           ({"setting": "joint", "joint_views": ("none", "none"), "joint_rates": (None, None)}, True),
                           ({"setting": "sup"}, False)):
        assert ConSERT.needs(ConSERTOptions(**options)).dropout == needs


REFUSED = [
    ({"views": ("dropout", "shuffle"), "rates": (None, None)}, "options.views: dropout needs its rate in rates, e.g. 0.2"),
    ({"rates": (0.2, 0.2)}, "options.rates: shuffle has no rate, and 0.2 is given: write null"),
    ({"views": ("none", "adversarial"), "rates": (None, None)}, "adversarial needs labels and the supervised loss"),
    ({"setting": "joint", "joint_views": ("adversarial", "none"), "joint_rates": (None, None)}, "is the second view"),
    ({"setting": "joint", "views": ("none", "shuffle")}, "options.views [none, shuffle] has no effect with setting joint"),
    ({"joint_rates": (None, 0.3)}, "options.joint_rates [null, 0.3] has no effect with setting unsup"),
    ({"setting": "sup", "temperature": 0.2}, "options.temperature 0.2 has no effect with setting sup"),
    ({"setting": "sup", "nt_xent": "sum"}, "options.nt_xent sum has no effect with setting sup"),
    ({"setting": "joint", "weigh_unsup": True}, "options.weigh_unsup true has no effect with setting joint"),
    ({"contrastive_weight": 0.3}, "0.3 has no effect without setting joint or joint-unsup, or weigh_unsup; leave it"),
    ({"features": MAX_SQUARE}, "options.features [u, v, difference, max_square] has no effect with setting unsup"),
    ({"setting": "joint", "adversarial_norm": 0.1}, "has no effect with joint_views [none, token_cutoff]: it goes with"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_options_that_contradict_one_another(options, message):
    one_line(lambda: validate(ConSERTOptions, options, "recipe", "options."), message)


def test_poolers_and_models_that_are_refused(folders, tmp_path):
    for pooler in ("mask", "last"):
        with pytest.raises(StsbenchError, match=f"not {pooler}"):
            consert(folders["bert"], pooler=pooler)
    other = load_backbone(build(tmp_path / "other", "distilbert"), "tiny", "mean", 10)
    with pytest.raises(StsbenchError, match="DistilBertModel"):
        ConSERT(other, ConSERTOptions())
    ConSERT(other, ConSERTOptions(setting="sup"))  # nothing is changed there


def test_dropout_of_the_model_is_on_top_of_the_views(folders):
    method = consert(folders["bert"], dropout=0.1)
    batch, _ = batch_for(method, plain(folders["bert"]))
    assert len({float(total(method(batch)).detach()) for _ in range(3)}) == 3
    assert np.isfinite(float(total(method(batch)))) and len(TEXTS) == len(batch)
