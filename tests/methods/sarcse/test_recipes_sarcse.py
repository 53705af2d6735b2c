"""SARCSE's recipes: options that go together, the paper's scores, and a difference from the base that is the row's alone."""

import pytest
from shipped_recipes import BERT, ROBERTA, ROBERTA_LARGE, changed, held, printed, recipe, settings

from stsbench.leaderboard.publications.load import load_publications
from stsbench.leaderboard.records.paths import PUBLISHED
from stsbench.methods.sarcse.checks import check_options, check_pooler
from stsbench.methods.sarcse.method import SARCSE
from stsbench.methods.sarcse.options import SARCSEOptions
from stsbench.training.recipes.describe import card
from stsbench.training.recipes.recipes import default_recipe, recipe_names

BASE = "roberta-base"
NAMES = recipe_names("sarcse")


@pytest.mark.parametrize("name", NAMES)
def test_the_options_of_a_recipe_go_together(name):
    found = recipe(name, "sarcse")
    options = SARCSEOptions(**found.options)
    check_options(options)
    check_pooler(found.backbone.pooler)
    assert SARCSE.roles(options, ("sentence",)) == ("sentence",) and found.data.columns == {}


# Published scores ------------------------------------------------------------------------------------------------

HOLDERS = {
    "sarcse:1:5": BASE, "sarcse:1:6": "no-sal", "sarcse:1:7": "no-sal-no-decoder", "sarcse:1:10": "roberta-large",
    **{f"sarcse:2:{row}": BASE if size == 64 else f"batch-{size}"
       for row, size in zip(range(2, 13, 2), (32, 64, 128, 192, 256, 512), strict=True)},
    **{f"sarcse:3:{row}": BASE if theta == "0.1" else f"theta-{theta}"
       for row, theta in enumerate(("0", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6"), 1)},
    "sarcse:4/sts:3": BASE,
}  # fmt: skip


def own(row):
    return "SARCSE" in row.method


def test_every_published_row_has_a_recipe_with_its_scores_and_no_recipe_has_others():
    assert held("sarcse") == printed(("sarcse",), own, HOLDERS)
    assert {name for name in NAMES if not recipe(name, "sarcse").published} == {"bert-base"}
    assert "No published row" in recipe("bert-base", "sarcse").source.note


def test_a_row_of_the_tables_of_settings_names_the_setting_of_its_recipe():
    rows = {row.id: row for each in load_publications(PUBLISHED) if each.paper.id == "sarcse" for row in each.rows}
    for id, name in HOLDERS.items():
        found, label = recipe(name, "sarcse"), rows[id].method
        if "bs=" in label:
            assert int(label.split("=")[1]) == found.training.batch_size
        if "theta=" in label:
            assert float(label.split("=")[1]) == found.options["theta"]


def test_the_card_holds_the_geometry_that_is_published():
    rows = [row for each in load_publications(PUBLISHED) if each.paper.id == "sarcse" for row in each.rows
            if row.heading.protocol == "geometry" and own(row)]  # fmt: skip
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
    }  # fmt: skip
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
