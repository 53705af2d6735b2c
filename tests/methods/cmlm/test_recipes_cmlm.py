"""CMLM's recipes: a reading of a paper without code, so none holds a published score."""

from shipped_recipes import WAY_OF, changed, held, printed, recipe, rows_of, settings

from stsbench.methods.cmlm.options import ConditionalMaskedLMOptions
from stsbench.training.recipes.recipes import recipe_names

NAMES = recipe_names("cmlm")


def test_no_recipe_holds_a_published_score_and_every_row_says_why():
    rows = rows_of(("diffcse",), lambda row: row.method.startswith("CMLM"))
    assert [row.id for row in rows] == ["diffcse:1:6", "diffcse:2:2"]
    for way in (WAY_OF[row.id] for row in rows):
        assert way.recipe == "cmlm/bert-base" and "reading of the paper" in way.not_held and "not comparable" in way.note
    assert held("cmlm") == printed("cmlm") == set()
    assert all("reading" in recipe("bert-base", "cmlm").source.note for _ in NAMES)


def test_the_default_recipe_has_the_default_options():
    assert ConditionalMaskedLMOptions(**recipe("bert-base", "cmlm").options) == ConditionalMaskedLMOptions()


def test_what_differs():
    assert set(NAMES) == {"bert-base", "bert-base-both", "bert-base-same"}
    assert changed("bert-base", "bert-base-both", "cmlm") == {"options.both_directions": True}
    assert changed("bert-base", "bert-base-same", "cmlm") == {
        "options.sentence": "same", "data.file": "wiki1m_for_simcse.txt", "data.contiguous": False
    }


def test_the_settings_that_are_this_project_s():
    expected = {
        "backbone.pooler": "mean", "backbone.max_length": 64, "options.vectors": 15, "options.probability": 0.15,
        "data.contiguous": True, "training.batch_size": 64, "training.learning_rate": 5e-5, "training.warmup": 0.1,
        "training.weight_decay": 0.01, "training.schedule": "linear", "selection.every": 125, "precision": "float32",
    }
    shipped = settings(recipe("bert-base", "cmlm"))
    assert {key: shipped[key] for key in expected} == expected
