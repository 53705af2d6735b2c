"""CoSENT's recipes: the released code's settings on English sets, without published rows: its own are of Chinese sets."""

import pytest
from shipped_recipes import BERT, held, recipe, settings

from stsbench.training.recipes.recipes import default_recipe, recipe_names

SHARED = {
    "backbone.model": BERT, "backbone.pooler": "cls", "backbone.dropout": 0.1, "backbone.max_length": 64,
    "options.scale": 20,
    "training.accumulate": 1, "training.learning_rate": 2e-5, "training.schedule": "constant", "training.warmup": 0,
    "training.weight_decay": 0, "training.betas": (0.9, 0.999), "training.epsilon": 1e-6, "training.adam": "transformers",
    "training.clip": None, "selection.by": "sts-b dev", "selection.at_end": False, "precision": "float32", "seed": 42,
}
NLI = {"contradiction": 0, "neutral": 1, "entailment": 2}


@pytest.mark.parametrize(("name", "own"), [
    ("stsb-bert-base", {"options.format": "scored", "data.file": "stsb/train", "training.batch_size": 32,
                        "training.epochs": 5, "selection.every": 180}),
    ("nli-bert-base", {"options.format": "labelled", "options.label_scores": NLI, "data.file": None,
                       "training.batch_size": 64, "training.epochs": 10, "training.max_steps": 50000,
                       "selection.every": 5000}),
])
def test_the_settings_of_the_code(name, own):
    shipped = settings(recipe(name, "cosent"))
    expected = {**SHARED, **own}
    assert {key: shipped[key] for key in expected} == expected
    assert "No published row" in recipe(name, "cosent").source.note


def test_no_row_is_held_and_both_recipes_are_these():
    assert held("cosent") == set() and recipe_names("cosent") == ["nli-bert-base", "stsb-bert-base"]
    assert default_recipe("cosent") == "stsb-bert-base"
