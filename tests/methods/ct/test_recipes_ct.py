"""Contrastive Tension's recipes: every published row has one, and the settings are those of the two codebases."""

import pytest
from shipped_recipes import BERT, BERT_LARGE, WAY_OF, changed, held, printed, recipe, rows_of, settings

from stsbench.methods.ct.options import ContrastiveTensionOptions
from stsbench.training.recipes.recipes import recipe_names

NAMES = recipe_names("ct")


def test_every_published_row_has_a_recipe_with_its_scores_and_no_recipe_has_others():
    shipped = printed("ct")
    assert held("ct") == shipped and {name for name, *_ in shipped} == set(NAMES)
    papers = ("consert", "simcse", "diffcse", "ct-readme", "sentence-transformers")
    own = rows_of(papers, lambda row: row.method.startswith("CT") or row.method.endswith("-CT"))
    assert len(own) == 33 and all(WAY_OF[row.id].recipe for row in own)


def test_the_settings_of_the_authors_code():
    expected = {
        "backbone.model": BERT, "backbone.pooler": "mean", "backbone.dropout": 0, "backbone.max_length": 75,
        "options.objective": "pairs", "options.negatives": "fresh", "options.k": 7, "options.reduction": "mean",
        "options.keep": "best", "training.batch_size": 30, "training.max_steps": 5000, "training.optimizer": "rmsprop",
        "training.rho": 0.9, "training.epsilon": 1e-7, "training.learning_rate": 1e-5, "training.schedule": "piecewise",
        "training.milestones": (501, 1001, 1501, 2001), "training.rates": (8e-6, 6e-6, 4e-6, 2e-6), "training.warmup": 0,
        "training.weight_decay": 0, "training.clip": None, "training.drop_last": True, "selection.by": "sts-b dev",
        "selection.every": 500, "selection.at_end": False, "precision": "float32",
    }
    shipped = settings(recipe("bert-base", "ct"))
    assert {key: shipped[key] for key in expected} == expected
    assert ContrastiveTensionOptions(**recipe("bert-base", "ct").options) == ContrastiveTensionOptions()


@pytest.mark.parametrize(("base", "name", "expected"), [
    ("bert-base", "bert-large", {"backbone.model": BERT_LARGE}),
    ("bert-base", "bert-base-checkpoint", {}), ("bert-large", "bert-large-checkpoint", {}),
    ("bert-base", "distilbert-checkpoint", {"backbone.model": "distilbert/distilbert-base-uncased"}),
    ("bert-base", "sbert-base", {"backbone.model": "sentence-transformers/bert-base-nli-mean-tokens"}),
    ("bert-base", "sbert-large", {"backbone.model": "sentence-transformers/bert-large-nli-mean-tokens"}),
    ("bert-base", "sbert-distil-checkpoint", {"backbone.model": "sentence-transformers/distilbert-base-nli-mean-tokens"}),
    ("sbert-base", "sbert-base-checkpoint", {}), ("sbert-large", "sbert-large-checkpoint", {}),
    ("bert-base", "bert-base-library", {
        "backbone.dropout": None, "options.negatives": "consecutive", "options.reduction": "sum", "options.keep": "model2",
        "training.epochs": 1, "training.max_steps": None, "training.rho": 0.99, "training.epsilon": 1e-8,
        "training.schedule": "linear", "training.milestones": (), "training.rates": (), "training.clip": 1.0,
        "selection.every": 1000, "selection.at_end": True, "data.min_characters": 10,
    }),
    ("bert-base-library", "bert-base-in-batch", {
        "options.objective": "in-batch", "options.negatives": "fresh", "options.reduction": "mean",
        "training.batch_size": 128, "training.optimizer": "adamw", "training.rho": None, "training.learning_rate": 5e-5,
        "training.warmup": 1000, "training.weight_decay": 0.01, "precision": "fp16", "data.min_characters": 0,
    }),
])
def test_what_differs(base, name, expected):
    assert changed(base, name, "ct") == expected
