"""What a method's author gets wrong in the class, its views and its loss: one line with class, file and line."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from stsbench.errors import StsbenchError
from stsbench.training.api import Backbone, Batch, Inference, Method, Needs, Options, Term, Views
from stsbench.training.api.checks import (
    check_class,
    check_inference,
    check_instance,
    check_rates,
    check_stages,
    check_terms,
    check_views,
)
from stsbench.training.recipes.method_plan import MethodPlan
from stsbench.training.recipes.sections import SemiSettings

TEXTS = ["A baker.", "Two nurses wait at a tram stop."]
AT = r"\(test_checks.py:\d+\)"


class Plain(Method):
    def views(self, rows, rng):
        return Views([rows.ids("sentence")])

    def forward(self, batch: Batch):
        return {"sum": Term(self.vectors(batch.ids, batch.mask).sum(), len(batch))}


@pytest.fixture
def method(backbone):
    return Plain(backbone, Options())


def wrong_views(backbone):
    ids = backbone.tokenise(TEXTS)
    padded = backbone.tokenizer(TEXTS, padding=True)["input_ids"]
    return [
        (Views([ids, padded]), f"^Plain.views {AT}: view 1 is padded: give each text's own token ids"),
        ([ids], f"Plain.views {AT} must return Views, not list"),
        (Views([]), "gave no view"),
        (Views([ids[:1]]), "view 0 has 1 texts for 2 rows"),
        (Views([TEXTS]), "view 0 has a text that is not a list of token ids but str"),
        (Views([[torch.tensor([each]) for each in ids]]), r"a list of token ids but a tensor of shape \(1, \d+\)"),
        (Views([[[], ids[1]]]), "not a list of token ids but an empty list"),
        (Views([[ids[0], [9_999_999]]]), r"has the token id 9999999, and the model knows 0 to \d+"),
        (Views([[ids[0], [5, -1]]]), "has the token id -1"),
        (Views([[ids[0], [5] * 65]]), "has a text of 65 tokens, and the model has 64 positions"),
        (Views([ids], {"mlm_labels": [[[1], [1]]]}), "extra 'mlm_labels' is not aligned with a view"),
        (Views([ids], labels=[1]), "gave 1 labels for 2 rows"),
        (Views([ids], labels=[0, -1]), "gave the label -1: labels are class numbers from 0"),
        (Views([ids], scores=[0.5]), "gave 1 scores for 2 rows"),
    ]


def test_wrong_views(method, backbone):
    for views, message in wrong_views(backbone):
        with pytest.raises(StsbenchError, match=message):
            check_views(method, views, range(2), "views")


def test_right_views_pass(method, backbone):
    ids = backbone.tokenise(TEXTS)
    arrays, tensors = [np.array(each) for each in ids], [torch.tensor(each) for each in ids]
    views = Views([ids, arrays, tensors], {"labels": [ids]}, labels=[1, 0])
    assert check_views(method, views, range(2), "views") is views
    eos = backbone.tokenizer.sep_token
    plain = AutoTokenizer.from_pretrained(backbone.tokenizer.name_or_path, pad_token=eos)  # as GPT's pad is its end of text
    shared = Plain(Backbone(backbone.model, plain), Options())
    check_views(shared, Views([ids]), range(2), "views")


def test_wrong_terms(method):
    value = torch.ones((), requires_grad=True)
    for terms, message in [
        ({}, f"Plain.forward {AT} gave no term"),
        ([1], "must give a dict of terms, .* not list"),
        ({"a": value}, "'a' must be a Term"),
        ({"a": Term(value, 0)}, "'a' has count 0 and a value that is not 0"),
        ({"a": Term(value.detach(), 2)}, f"Plain.forward {AT}: the loss has no gradient"),
    ]:
        with pytest.raises(StsbenchError, match=message):
            check_terms(method, terms)
    assert check_terms(method, {"a": Term(value, 2), "none": Term(value.detach() * 0, 0)})
    with torch.no_grad():
        check_terms(method, {"a": Term(value.detach(), 2)})


def test_a_wrong_class(backbone, method):
    class Forgets(Plain):
        def __init__(self, backbone, options):
            self.width = 3

    class Instance(Plain):
        def needs(self, options):
            return Needs()

    class Nothing(Plain):
        def inference(self):
            return None

    class Stray(Plain):
        @classmethod
        def group_size(cls, options):
            return 2

    class Wrong(Plain):
        given: ClassVar = {"dropout": True}

        @classmethod
        def needs(cls, options):
            return cls.given

    def told(call, message):
        with pytest.raises(StsbenchError, match=message):
            call()

    told(lambda: check_instance(Forgets(backbone, Options()), backbone),
         rf"Forgets.__init__ {AT} must call super\(\).__init__\(backbone, options\)")
    told(lambda: check_class(Instance, "it"), f"Instance.needs {AT} must be a class method: write @classmethod above it")
    told(lambda: check_class(Stray, "it"),
         rf"^Stray.group_size {AT} is not read from the class: let needs\(cls, options\) give Needs\(group_size=\.\.\.\)$")
    told(lambda: check_inference(Nothing(backbone, Options())), rf"Nothing.inference {AT} must give an Inference\(.*\)")
    assert isinstance(method.inference(), Inference) and check_class(Plain, "it") is Plain
    def of_wrong(stage):
        return MethodPlan(Wrong, Options()).labelled(stage)

    told(lambda: of_wrong("main"), f"Wrong.needs {AT} must give a Needs, not dict")
    for labelled, why in (({"joint": "only"}, "labelled names the stage 'joint', and there are main"),
                          ("some", "labelled must be 'none' or 'only' or 'with', not 'some', for stage main")):
        Wrong.given = Needs(labelled=labelled)
        told(lambda: check_stages(Wrong, {"main": of_wrong("main")}), f"Wrong.needs {AT}: {why}")
    method.rates = lambda: {"backbone.": 0.5}
    assert check_rates(method) == {"backbone.": 0.5}
    method.rates = lambda: {"head.": 2}
    told(lambda: check_rates(method), r"no parameter's name begins with 'head\.'")


def test_the_stages_of_a_run_go_by_the_options(backbone):
    class Chosen(Plain):
        class Options(Options):
            stages = ("first", "second")
            named: str = "second"

        @classmethod
        def stages_for(cls, options):
            return tuple(options.named.split())

        @classmethod
        def needs(cls, options):
            return Needs(labelled={"first": "only"})

    def plan(named, semi=None):
        return MethodPlan(Chosen, Chosen.Options(named=named), semi)

    assert plan("second").stages == ("second",) and plan("first second").stages == Chosen.Options.stages
    assert [plan(named).stream_number("second") for named in ("second", "first second")] == [1, 1]
    assert plan("second", SemiSettings(procedure="sup-unsup")).stages == ("sup", "second")
    for named in ("second first", "", "third", "first first"):
        with pytest.raises(StsbenchError, match=rf"Chosen.stages_for {AT} must give a tuple of stages \(first, second\)"):
            _ = plan(named).stages
