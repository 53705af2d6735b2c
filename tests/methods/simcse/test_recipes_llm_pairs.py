"""SynCSE, SumCSE and MultiCSR: what their recipes change, and a run of MultiCSR's on triplets by the released loss."""

import pytest
import torch
from method_runs import cached_place, recipe_of, train
from shipped_recipes import BERT, ROBERTA, ROBERTA_LARGE, changed, recipe, settings

from stsbench.training.recipes.method_plan import plan_of
from stsbench.training.recipes.recipes import load_recipe

BASE = "sup-roberta-base"
GUIDE = {"model": "princeton-nlp/unsup-simcse-bert-base-uncased", "settings": {"pooler": "cls", "max_length": 32},
         "threshold": "fixed", "margin": 0.0, "phi": 0.95, "contrast_anchors": False, "contrast_positives": False,
         "diagonals": "masked", "masked": "zero", "dropout": True, "loss": "bce_of_softmax"}


@pytest.mark.parametrize(("name", "model", "rate", "file", "average"), [
    ("syncse-partial-roberta-base", ROBERTA, 5e-5, "SynCSE-partial-NLI.csv", 81.84),
    ("syncse-partial-roberta-large", ROBERTA_LARGE, 1e-5, "SynCSE-partial-NLI.csv", 82.66),
    ("syncse-scratch-roberta-base", ROBERTA, 5e-5, "SynCSE-scratch-NLI.csv", 80.66),
])
def test_syncse(name, model, rate, file, average):
    known = {"options.mlm_weight": 0.1, "selection.by": "avg_sts", "selection.every": 25, "data.file": file}
    got = settings(recipe(name))
    assert {key: got[key] for key in known} == known
    assert (got["backbone.model"], got["training.learning_rate"], got["options.head"]) == (model, rate, "mlp")
    assert {**changed(BASE, name, "simcse"), "backbone.model": model, "training.learning_rate": rate} == {
        **known, "backbone.model": model, "training.learning_rate": rate}
    [row] = recipe(name).published
    assert row.protocol == "sts:all" and row.scores["Avg"] == average


def test_sumcse():
    assert changed("sup-roberta-large", "sumcse-roberta-large", "simcse") == {
        "data.file": "sumcse.csv", "selection.every": 125}
    assert recipe("sumcse-roberta-large").published == []


def test_multicsr():
    released, meant = recipe("multicsr-bert-base"), recipe("multicsr-bert-base-intent")
    assert released.backbone.model == BERT and released.published == meant.published == []
    assert (released.training.batch_size, released.training.learning_rate, released.selection.every) == (128, 5e-5, 25)
    assert released.options["head"] == "mlp_train_only" and released.options["temperature"] == 0.05
    assert released.guide.model_dump() == GUIDE
    assert meant.guide.model_dump() == {**GUIDE, "masked": "remove", "dropout": False, "loss": "ce"}
    for name in ("multicsr-bert-base", "multicsr-bert-base-intent"):
        assert plan_of(load_recipe("simcse", name)).guide == recipe(name).guide


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    yield from cached_place(tmp_path_factory.mktemp("pairs"))


def test_a_guide_with_dropout_draws_by_the_batch_and_not_from_the_training_s_numbers(place, tmp_path):
    guide = {**GUIDE, "model": "model", "settings": {"pooler": "cls"}, "phi": 0.9}
    recipe = recipe_of(place, "simcse-given", **{"guide": guide, "options.alpha": 1.0, "backbone.dropout": 0.1})
    runs = []
    for name in ("one", "two"):
        torch.manual_seed(len(runs))
        _, log = train(recipe, tmp_path / name, place)
        runs.append([line["loss"] for line in log if line["kind"] == "train"])
    assert runs[0] == runs[1] and len(runs[0]) == 2
