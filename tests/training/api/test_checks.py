"""What a method's author gets wrong in the class, its views and its loss: one line with class, file and line. Labelled
rows: their roles, the classifier against loops, their batches, and no text in common with held-out rows."""

import math
from typing import ClassVar

import nli_files
import numpy as np
import pytest
import tiny_models
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from stsbench.errors import DataError, StsbenchError
from stsbench.training.api import Backbone, Batch, Inference, Method, Needs, Options, Term, Views, checks
from stsbench.training.api.batch import Shares
from stsbench.training.api.labelled import PAIR, TRIPLET, NLIClassifier, nli_roles
from stsbench.training.engine.stage import make_stage
from stsbench.training.recipes.method_plan import MethodPlan, load_plan
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.recipes.sections import SemiSettings, TrainingSettings
from stsbench.training.rows.batches import Batches, to_batch
from stsbench.training.rows.files import LABELLED
from stsbench.training.rows.stage_rows import open_rows
from stsbench.training.runs.prepare import make_backbone

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


def test_wrong_views_are_refused_and_right_ones_pass(method, backbone):
    ids = backbone.tokenise(TEXTS)
    padded = backbone.tokenizer(TEXTS, padding=True)["input_ids"]
    for views, message in [
            (Views([ids, padded]), f"^Plain.views {AT}: view 1 is padded: give each text's own token ids"),
            ([ids], f"Plain.views {AT} must return Views, not list"), (Views([]), "gave no view"),
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
            (Views([ids], scores=[0.5]), "gave 1 scores for 2 rows")]:
        with pytest.raises(StsbenchError, match=message):
            checks.check_views(method, views, range(2), "views")
    arrays, tensors = [np.array(each) for each in ids], [torch.tensor(each) for each in ids]
    views = Views([ids, arrays, tensors], {"labels": [ids]}, labels=[1, 0])
    assert checks.check_views(method, views, range(2), "views") is views
    eos = backbone.tokenizer.sep_token
    plain = AutoTokenizer.from_pretrained(backbone.tokenizer.name_or_path, pad_token=eos)  # as GPT's pad is its end of text
    checks.check_views(Plain(Backbone(backbone.model, plain), Options()), Views([ids]), range(2), "views")


def test_wrong_terms(method):
    value = torch.ones((), requires_grad=True)
    for terms, message in [
            ({}, f"Plain.forward {AT} gave no term"), ([1], "must give a dict of terms, .* not list"),
            ({"a": value}, "'a' must be a Term"), ({"a": Term(value, 0)}, "'a' has count 0 and a value that is not 0"),
            ({"a": Term(value.detach(), 2)}, f"Plain.forward {AT}: the loss has no gradient")]:
        with pytest.raises(StsbenchError, match=message):
            checks.check_terms(method, terms)
    assert checks.check_terms(method, {"a": Term(value, 2), "none": Term(value.detach() * 0, 0)})
    with torch.no_grad():
        checks.check_terms(method, {"a": Term(value.detach(), 2)})


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

    def told(message, check, *given):
        with pytest.raises(StsbenchError, match=message):
            check(*given)

    def of_wrong(stage):
        return MethodPlan(Wrong, Options()).labelled(stage)

    told(rf"Forgets.__init__ {AT} must call super\(\).__init__\(backbone, options\)", checks.check_instance,
         Forgets(backbone, Options()), backbone)
    told(f"Instance.needs {AT} must be a class method: write @classmethod above it", checks.check_class, Instance, "it")
    told(rf"^Stray.group_size {AT} is not read from the class: let needs\(cls, options\) give Needs\(group_size=\.\.\.\)$",
         checks.check_class, Stray, "it")
    told(rf"Nothing.inference {AT} must give an Inference\(.*\)", checks.check_inference, Nothing(backbone, Options()))
    assert isinstance(method.inference(), Inference) and checks.check_class(Plain, "it") is Plain
    told(f"Wrong.needs {AT} must give a Needs, not dict", of_wrong, "main")
    for labelled, why in (({"joint": "only"}, "labelled names the stage 'joint', and there are main"),
                          ("some", "labelled must be 'none' or 'only' or 'with', not 'some', for stage main")):
        Wrong.given = Needs(labelled=labelled)
        told(f"Wrong.needs {AT}: {why}", lambda: checks.check_stages(Wrong, {"main": of_wrong("main")}))
    method.rates = lambda: {"backbone.": 0.5}
    assert checks.check_rates(method) == {"backbone.": 0.5}
    method.rates = lambda: {"head.": 2}
    told(r"no parameter's name begins with 'head\.'", checks.check_rates, method)


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


def opened(values, processes=1):
    """(plan, what `open_rows` gave, the stages made of it, what was said)."""
    recipe = load_recipe("simcse", None, [], values)
    plan, said = load_plan(recipe), []
    backbone = make_backbone(recipe)
    data = open_rows(recipe, plan, backbone, plan.stages, said.append)
    made = {name: make_stage(name, recipe, plan, data, backbone.tokenizer.pad_token_id, processes) for name in plan.stages}
    return plan, data, made, said


def values_of(place, labelled=None, procedure="joint", **more):
    return nli_files.settings(place / "tiny", place / "text.txt", labelled or nli_files.triplets(place), procedure, **more)


@pytest.mark.parametrize(("init", "bias"), [("normal", False), ("truncated_normal", True), ("torch", True)])
def test_the_starting_weights_of_a_classifier(init, bias):
    torch.manual_seed(0)
    linear = NLIClassifier(400, 3, std=0.02, features=("difference", "product"), bias=bias, init=init).linear
    weight, edge = linear.weight, {"normal": math.inf, "truncated_normal": 0.04, "torch": 800**-0.5}[init]
    spread = {"normal": 0.02, "truncated_normal": 0.02 * 0.8796, "torch": edge / 3**0.5}[init]  # of what is drawn from
    assert weight.shape == (3, 800) and weight.std().item() == pytest.approx(spread, rel=0.05)
    assert weight.abs().max() <= edge and weight.abs().max() > (0.98 * edge if init != "normal" else 0.04)
    assert (linear.bias is not None) == bias and (not bias or linear.bias.any() == (init == "torch"))
    # weights of existing seeds stay the same: torch's Linear first, then N(0, std^2) over it
    torch.manual_seed(7)
    expected = torch.nn.init.normal_(torch.nn.Linear(3 * 5, 3).weight, std=0.02)
    torch.manual_seed(7)
    assert torch.equal(NLIClassifier(5, 3).linear.weight, expected)


@settings(deadline=None, max_examples=20)
@given(rows=st.integers(1, 30), size=st.integers(1, 12), own=st.integers(4, 40), accumulate=st.integers(1, 3))
def test_every_labelled_row_once_an_epoch_whatever_the_stage_does(rows, size, own, accumulate):
    main = Batches(np.arange(own), TrainingSettings(batch_size=3, accumulate=accumulate, epochs=20), 1, least=2)

    def drawn(place):
        """As a resumed run draws, which has seen nothing before."""
        fresh = Batches(100 + np.arange(rows), TrainingSettings(batch_size=size), 1, use="labelled order")
        return fresh.step(place)[0].tolist()

    places = [main.forward_pass(step, number) for step in range(main.steps) for number in range(len(main.step(step)))]
    assert places == list(range(len(places)))  # one batch for each forward pass, none left out
    batches, epoch = [*map(drawn, places)], math.ceil(rows / size)
    for start in range(0, len(batches) - epoch + 1, epoch):
        assert sorted(row for each in batches[start : start + epoch] for row in each) == list(range(100, 100 + rows))
    assert all(len(batch) == size for batch in batches if len(batch) != (rows % size or size))


def test_what_a_batch_holds(place):
    """Triplets: a view a text, no labels; pairs: two views and the labels as the file has them."""
    assert nli_roles(("sentence", *TRIPLET, "negative2"), "x") == TRIPLET and nli_roles(PAIR, "x") == PAIR
    _, data, made, said = opened(values_of(place, nli_files.pairs(place)))
    stage = made["main"]
    assert any("used as premise, hypothesis, label" in line for line in said) and not stage.labelled_only
    rows = stage.labelled.rows(np.array([4, 2]))
    assert rows.labels() == [data[LABELLED].store.label_names.index(nli_files.LABELS[i % 3]) for i in (4, 2)]
    plan, _, made, _ = opened(values_of(place, procedure="sup-joint"))
    assert plan.stages == ("sup", "main") and made["sup"].labelled_only and made["sup"].labelled is None
    assert made["main"].labelled.batches.size == 8 and made["sup"].batches.size == 10
    batch = to_batch(Views([[[1, 2]], [[3]]], labels=[1]), Shares((1,)), 0, torch.device("cpu"))
    assert not batch.labelled_only and batch.labelled is None


def test_held_out_rows_are_in_neither(place, tmp_path):
    texts = tiny_models.sentences(60, longest=9)
    path = tmp_path / "labelled.csv"
    rows = [f"{text},dog {i} a,cat {i} b" for i, text in enumerate(texts[::-1])]
    path.write_text("\n".join(["sent0,sent1,hard_neg", *rows]) + "\n")
    _, data, _, said = opened(values_of(place, path, **{"data.held_out": 7, "labelled.held_out": 5}))
    own, labelled = data["main"], data[LABELLED]
    held_out = {*own.store.texts("sentence", own.held_out)}, {*labelled.store.texts("anchor", labelled.held_out)}
    assert (len(held_out[0]), len(held_out[1])) == (7, 5)
    assert not (held_out[0] | held_out[1]) & {*own.store.texts("sentence", own.trained)}
    assert not (held_out[0] | held_out[1]) & {*labelled.store.texts("anchor", labelled.trained)}
    assert len(labelled.trained) == 60 - 5 - len(held_out[0] - held_out[1])
    assert len(own.trained) == 60 - 7 - len(held_out[1] - held_out[0])
    assert f"labelled.csv: {len(held_out[0] - held_out[1])} rows left out, with a text that is held out of text.txt" in said


def test_a_process_has_a_labelled_row_at_least_and_the_same_file_may_be_both(place):
    with pytest.raises(StsbenchError, match="less than the 3 processes"):
        opened(values_of(place, **{"labelled.batch_size": 2}), processes=3)
    path = nli_files.triplets(place, count=10)
    _, _, made, _ = opened(values_of(place, path), processes=3)  # 8 and 2: the rest are too few for three
    assert made["main"].labelled.batches.dropped == 2
    with pytest.raises(StsbenchError, match="one batch: 1 row"):
        opened(values_of(place, nli_files.triplets(place, count=1)), processes=2)
    path = nli_files.triplets(place)
    _, data, _, _ = opened(values_of(place, path, **{"data.file": str(path), "options.view": "given"}))
    assert data["main"].store.digest == data[LABELLED].store.digest
    with pytest.raises(DataError, match="every row has a text that is held out"):
        opened(values_of(place, path, **{"data.file": str(path), "options.view": "given", "data.held_out": 29,
                                                "labelled.sample": 1, "labelled.sample_seed": 1}))
