"""SARCSE's recipes: options that go together, the paper's scores, and a difference from the base that is the row's alone."""

import pytest
from shipped_recipes import BERT, ROBERTA, ROBERTA_LARGE, WAY_OF, changed, held, printed, recipe, rows_of, settings

from stsbench.methods.sarcse.method import check_pooler
from stsbench.methods.sarcse.options import SARCSEOptions
from stsbench.training.recipes.methods import card
from stsbench.training.recipes.recipes import default_recipe, recipe_names

BASE = "roberta-base"
NAMES = recipe_names("sarcse")


@pytest.mark.parametrize("name", NAMES)
def test_the_pooler_and_the_data(name):
    found = recipe(name, "sarcse")
    check_pooler(found.backbone.pooler)
    assert found.data.columns == {}


# Published scores ------------------------------------------------------------------------------------------------

def own(row):
    return "SARCSE" in row.method


def test_every_published_row_has_a_recipe_with_its_scores_and_no_recipe_has_others():
    assert held("sarcse") == printed("sarcse")
    assert all(WAY_OF[row.id].recipes for row in rows_of(("sarcse",), own))
    assert {name for name in NAMES if not recipe(name, "sarcse").published} == {"bert-base"}
    assert "No published row" in recipe("bert-base", "sarcse").source.note


def test_a_row_of_the_tables_of_settings_names_the_setting_of_its_recipe():
    for row in rows_of(("sarcse",), lambda row: row.copied_from is None and "CSE" in row.method):
        [holder] = WAY_OF[row.id].recipes
        found, label = recipe(holder.partition("/")[2], holder.partition("/")[0]), row.method
        if "bs=" in label:
            assert int(label.split("=")[1]) == found.training.batch_size
        if "theta=" in label:
            assert float(label.split("=")[1]) == found.options["theta"]


def test_the_card_holds_the_geometry_that_is_published():
    rows = [row for row in rows_of(("sarcse",), own) if row.heading.protocol == "geometry"]
    assert len(rows) == 2 and all(f"{row.scores[0]:.3f}" in card("sarcse") for row in rows)


# Settings --------------------------------------------------------------------------------------------------------

MAIN = {BASE: ROBERTA, "roberta-large": ROBERTA_LARGE, "bert-base": BERT}
CHANGES = {  # ablation -> what differs from roberta-base, and nothing else
    "no-sal": {"options.self_adaptive": False},
    "no-sal-no-decoder": {"options.beta": 0, "options.gamma": 0},
    **{f"theta-{theta}": {"options.theta": float(theta)} for theta in ("0", "0.2", "0.3", "0.4", "0.5", "0.6")},
    **{f"batch-{size}": {"training.batch_size": size} for size in (32, 128, 192, 256, 512)},
}


@pytest.mark.parametrize("name", MAIN)
def test_the_settings_of_the_main_recipes(name):
    expected = {
        "backbone.model": MAIN[name], "backbone.pooler": "text_cnn", "backbone.dropout": 0.1, "backbone.max_length": 32,
        "backbone.text_cnn": {"kernels": (3, 4, 5), "channels": 500, "fusion_channels": 3, "fusion_width": 2,
                              "activation": "relu"},
        "options.view": "dropout", "options.similarity": "cosine", "options.temperature": 0.05,
        "options.contrastive_weight": 1, "options.beta": 2.5e-4, "options.gamma": 2.5e-4, "options.self_adaptive": True,
        "options.theta": 0.1, "options.frequency_scale": 50, "options.unpool": "max", "options.transposed_fusion": "shared",
        "options.mse_reduction": "mean", "options.detach_target": False, "options.head_rate": 1,
        "training.batch_size": 64, "training.learning_rate": 1e-5, "training.epochs": 1, "training.schedule": "linear",
        "training.warmup": 0, "training.weight_decay": 0, "training.betas": (0.9, 0.999), "training.epsilon": 1e-8,
        "training.adam": "transformers",
        "training.clip": 1, "training.drop_last": False, "training.accumulate": 1, "training.order": "random",
        "training.max_steps": None, "training.gather": "exact",
        "data.file": "wiki1m_for_simcse.txt", "data.columns": {}, "data.contiguous": False, "data.drop_blank": False,
        "data.drop_duplicates": False, "data.held_out": 0, "selection.by": "sts-b dev", "selection.every": 125,
        "selection.at_end": False, "precision": "float32", "seed": 42,
    }
    got = settings(recipe(name, "sarcse"))
    assert {key: got[key] for key in expected} == expected
    assert {f"options.{key}" for key in SARCSEOptions.model_fields} <= set(expected)


def test_the_default_is_the_papers_model():
    assert default_recipe("sarcse") == BASE
    assert SARCSEOptions(**recipe(BASE, "sarcse").options) == SARCSEOptions()


@pytest.mark.parametrize("name", CHANGES)
def test_an_ablation_changes_what_its_row_says_and_nothing_else(name):
    assert changed(BASE, name, "sarcse") == CHANGES[name]


def test_no_recipe_is_untested():
    assert set(NAMES) == {*MAIN, *CHANGES}
