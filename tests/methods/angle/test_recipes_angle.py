"""AnglE's recipes: the one row of its README that has one, and the settings of the command beside it."""

from shipped_recipes import BERT, WAY_OF, held, printed, recipe, rows_of, settings

from stsbench.methods.angle.options import AnglEOptions
from stsbench.training.recipes.recipes import default_recipe, recipe_names


def test_the_row_of_bert_has_a_recipe_with_its_scores_and_the_others_are_tested_as_released():
    assert held("angle") == printed("angle") and {name for name, *_ in held("angle")} == {"nli-bert-base"}
    rows = rows_of(("angle-readme",), lambda row: True)
    ways = [WAY_OF[row.id] for row in rows]
    assert [way.recipe is not None for way in ways] == [False, False, False, True]
    assert all("Summarize sentence" in way.eval for way in ways[:3]) and ways[3].model.endswith("nli-en-v1")
    assert recipe_names("angle") == ["nli-bert-base"] and default_recipe("angle") == "nli-bert-base"


def test_the_settings_of_the_command():
    expected = {
        "backbone.model": BERT, "backbone.pooler": "cls", "backbone.dropout": 0.1, "backbone.max_length": 128,
        "options.format": "labelled", "options.label_scores": {"contradiction": 0, "entailment": 1},
        "options.ibn_weight": 30, "options.cln_weight": 1, "options.cosine_weight": 0, "options.angle_weight": 1,
        "options.ibn_scale": 20, "options.cosine_scale": 20, "options.angle_scale": 20, "options.test_pooler": "cls_avg",
        "training.batch_size": 128, "training.accumulate": 16, "training.learning_rate": 5e-5, "training.epochs": 10,
        "training.schedule": "linear", "training.warmup": 50, "training.weight_decay": 0, "training.betas": (0.9, 0.999),
        "training.epsilon": 1e-8, "training.adam": "torch", "training.clip": 1, "training.gather": "exact",
        "selection.by": "none", "precision": "float32", "seed": 42,
    }
    shipped = settings(recipe("nli-bert-base", "angle"))
    assert {key: shipped[key] for key in expected} == expected
    assert {f"options.{key}" for key in AnglEOptions.model_fields} <= set(expected)


def test_the_defaults_are_the_released_code_s():
    options = AnglEOptions()
    assert (options.ibn_weight, options.cln_weight, options.cosine_weight, options.angle_weight) == (1, 1, 0, 0.02)
    assert {options.ibn_scale, options.cosine_scale, options.angle_scale} == {20}
