"""ESimCSE's recipes: every published row has one, and the settings are those of run.sh."""

import pytest
from shipped_recipes import (
    BERT,
    BERT_LARGE,
    ROBERTA,
    ROBERTA_LARGE,
    WAY_OF,
    changed,
    held,
    printed,
    recipe,
    rows_of,
    settings,
)

from stsbench.methods.esimcse.options import ESimCSEOptions
from stsbench.training.recipes.recipes import default_recipe, recipe_names

NAMES = recipe_names("esimcse")
MAIN = {  # model, learning rate, queue, dropout, rate of repetition
    "bert-base": (BERT, 3e-5, 160, 0.1, 0.32), "bert-large": (BERT_LARGE, 1e-5, 160, 0.1, 0.32),
    "roberta-base": (ROBERTA, 1e-5, 160, 0.1, 0.30), "roberta-large": (ROBERTA_LARGE, 1e-5, 128, 0.15, 0.28),
}


def test_every_published_row_has_a_recipe_with_its_scores_and_no_recipe_has_others():
    assert held("esimcse") == printed("esimcse") and {name for name, *_ in held("esimcse")} == {*MAIN}
    rows = rows_of(("esimcse-readme",), lambda row: True)
    assert len(rows) == 8 and all(WAY_OF[row.id].recipe for row in rows)
    assert {*NAMES} == {*MAIN, "bert-base-paper"}
    assert "No published row" in recipe("bert-base-paper", "esimcse").source.note


@pytest.mark.parametrize("name", MAIN)
def test_the_settings_of_the_script(name):
    model, rate, size, dropout, share = MAIN[name]
    expected = {
        "backbone.model": model, "backbone.pooler": "cls", "backbone.dropout": dropout, "backbone.max_length": 32,
        "options.temperature": 0.05, "options.head": "mlp_train_only",
        "options.repeat": {"unit": "subword", "rate": share, "count": "released"},
        "options.queue": {"size": size, "momentum": 0.995, "start": "random"},
        "data.file": "wiki1m_for_simcse.txt", "data.drop_blank": False, "data.drop_duplicates": False, "data.held_out": 0,
        "training.batch_size": 64, "training.learning_rate": rate, "training.epochs": 1, "training.schedule": "linear",
        "training.warmup": 0, "training.weight_decay": 0, "training.betas": (0.9, 0.999), "training.epsilon": 1e-8,
        "training.adam": "transformers", "training.clip": 1, "training.accumulate": 1, "training.gather": "exact",
        "selection.by": "sts-b dev", "selection.every": 125, "selection.at_end": False, "precision": "fp16", "seed": 42,
    }
    shipped = settings(recipe(name, "esimcse"))
    assert {key: shipped[key] for key in expected} == expected
    assert {f"options.{key}" for key in ESimCSEOptions.model_fields} <= set(expected)


def test_the_defaults_are_the_released_code_s_and_the_paper_s_are_two_options():
    assert default_recipe("esimcse") == "bert-base"
    assert ESimCSEOptions(**recipe("bert-base", "esimcse").options) == ESimCSEOptions()
    assert changed("bert-base", "bert-base-paper", "esimcse") == {
        "options.repeat": {"unit": "subword", "rate": 0.32, "count": "paper"},
        "options.queue": {"size": 160, "momentum": 0.995, "start": "copy"},
    }
