"""WhitenedCSE's recipes: the settings of its README, the figures that are printed, and what each other reading changes."""

from shipped_recipes import BERT, WAY_OF, changed, held, printed, recipe, rows_of, settings

from stsbench.methods.whitenedcse.options import WhitenedCSEOptions
from stsbench.training.recipes.recipes import default_recipe, recipe_names

CHANGES = {
    "bert-base-per-view": {"options.split": "per_view"},
    "bert-base-32-groups": {"options.groups": 32, "options.shuffle": False},
    "bert-base-repeated": {"options.repeat": {"unit": "subword", "rate": 0.32, "count": "released"}},
    "bert-base-no-whitening": {"options.split": "none"},
}


def test_the_row_with_settings_has_a_recipe_with_its_scores_and_the_other_says_why_not():
    assert held("whitenedcse") == printed("whitenedcse") and {name for name, *_ in held("whitenedcse")} == {"bert-base"}
    first, second = rows_of(("whitenedcse-readme",), lambda row: True)
    assert WAY_OF[first.id].recipe == "whitenedcse/bert-base" and first.average == 78.78
    assert "no settings" in WAY_OF[second.id].missing and second.average == 79.97


def test_the_settings_of_the_readme():
    expected = {
        "backbone.model": BERT, "backbone.pooler": "cls", "backbone.dropout": 0.1, "backbone.max_length": 32,
        "options.temperature": 0.05, "options.views": 3, "options.reduce": "sum", "options.split": "per_third",
        "options.groups": 128, "options.shuffle": True, "options.eps": 0, "options.detach_matrix": True,
        "options.repeat": None,
        "data.file": "wiki1m_for_simcse.txt", "data.drop_blank": False, "data.drop_duplicates": False, "data.held_out": 0,
        "training.batch_size": 128, "training.learning_rate": 1e-5, "training.epochs": 1, "training.schedule": "linear",
        "training.warmup": 0, "training.weight_decay": 0, "training.betas": (0.9, 0.999), "training.epsilon": 1e-8,
        "training.adam": "transformers", "training.clip": 1, "training.accumulate": 1, "training.gather": "exact",
        "training.drop_last": False,  # the last of 10^6 sentences are 64
        "selection.by": "sts-b dev", "selection.every": 125, "selection.at_end": False, "precision": "fp16", "seed": 42,
    }
    shipped = settings(recipe("bert-base", "whitenedcse"))
    assert {key: shipped[key] for key in expected} == expected
    assert {f"options.{key}" for key in WhitenedCSEOptions.model_fields} <= set(expected)


def test_the_defaults_are_the_released_code_s_and_every_other_reading_has_a_name():
    assert default_recipe("whitenedcse") == "bert-base"
    assert WhitenedCSEOptions(**recipe("bert-base", "whitenedcse").options) == WhitenedCSEOptions()
    assert {*recipe_names("whitenedcse")} == {"bert-base", *CHANGES}
    for name, changes in CHANGES.items():
        assert changed("bert-base", name, "whitenedcse") == changes
        assert recipe(name, "whitenedcse").source.note.startswith("No published row")
