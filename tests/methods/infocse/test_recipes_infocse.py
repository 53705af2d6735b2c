"""InfoCSE's recipes: the settings of its two scripts, the figures that are printed, and what its other form changes."""

import pytest
from shipped_recipes import WAY_OF, changed, recipe, rows_of, settings

from stsbench.methods.infocse.options import InfoCSEOptions
from stsbench.training.recipes.methods import card
from stsbench.training.recipes.recipes import default_recipe, recipe_names

NAMES = recipe_names("infocse")
MAIN = {  # model, probability, frozen layers' mode
    "bert-base": ("Luyu/condenser", 0.4, "eval"),
    "bert-large": ("ffgcc/condenser-bert-large-uncased", 0.3, "train"),
}
PRINTED = {
    "bert-base": (70.53, 84.59, 76.40, 85.10, 81.95, 82.00, 71.37, 78.85),
    "bert-large": (71.89, 86.17, 77.72, 86.20, 81.29, 83.16, 74.84, 80.18),
}


def test_the_figures_are_those_that_are_printed_and_a_row_without_a_recipe_says_why():
    assert {*NAMES} == {*MAIN, "bert-base-condenser-head"}
    for name, figures in PRINTED.items():
        [row] = recipe(name, "infocse").published
        assert (row.protocol, row.metric, tuple(row.scores.values())) == ("sts:all", "spearman", figures)
        assert sum(figures[:7]) / 7 == pytest.approx(figures[7], abs=0.0051), name
        assert f"{figures[7]:.2f}" in card("infocse")
    assert "second hand" in recipe("bert-large", "infocse").source.note
    rows = rows_of(("infocse-readme",), lambda row: True)
    assert [row.average for row in rows] == [78.85, 79.39, 80.18]
    assert [WAY_OF[row.id].recipe for row in rows] == ["infocse/bert-base", None, "infocse/bert-large"]
    assert "not public" in WAY_OF[rows[1].id].missing and "79.39" in card("infocse")


def test_the_starting_point_is_said_wherever_a_row_is():
    for name in NAMES:
        assert "Condenser" in recipe(name, "infocse").description
    assert all("not BERT" in recipe(name, "infocse").source.note for name in MAIN)
    assert "Condenser, not BERT" in card("infocse") and "Luyu/condenser" in card("infocse")


@pytest.mark.parametrize("name", MAIN)
def test_the_settings_of_the_script(name):
    model, probability, mode = MAIN[name]
    expected = {
        "backbone.model": model, "backbone.pooler": "cls", "backbone.dropout": 0.1, "backbone.max_length": 32,
        "options.temperature": 0.05, "options.projector": "batchnorm", "options.mlm_weight": 1e-5,
        "options.mlm_probability": probability, "options.frozen_layers": 6, "options.frozen_mode": mode,
        "options.head_layers": 2, "options.head_init": "random",
        "data.file": "wiki1m_for_simcse.txt", "data.drop_blank": False, "data.drop_duplicates": False, "data.held_out": 0,
        "training.batch_size": 64, "training.learning_rate": 7e-6, "training.epochs": 2, "training.schedule": "linear",
        "training.warmup": 0, "training.weight_decay": 0, "training.betas": (0.9, 0.999), "training.epsilon": 1e-8,
        "training.adam": "transformers", "training.clip": 1, "training.accumulate": 1, "training.gather": "exact",
        "selection.by": "sts-b dev", "selection.every": 125, "selection.at_end": False, "precision": "fp16", "seed": 42,
    }
    shipped = settings(recipe(name, "infocse"))
    assert {key: shipped[key] for key in expected} == expected
    assert {f"options.{key}" for key in InfoCSEOptions.model_fields} <= set(expected)


def test_the_defaults_are_the_released_code_s_and_the_other_form_is_an_option():
    assert default_recipe("infocse") == "bert-base"
    assert InfoCSEOptions(**recipe("bert-base", "infocse").options) == InfoCSEOptions()
    assert changed("bert-base", "bert-base-condenser-head", "infocse") == {"options.head_init": "condenser"}
    assert recipe("bert-base-condenser-head", "infocse").published == []
