"""TSDAE's recipes: what was published is of USEB, so none holds a score; the settings are those of the authors' scripts."""

from shipped_recipes import BERT, changed, held, recipe, settings

from stsbench.methods.tsdae.options import TSDAEOptions
from stsbench.training.recipes.recipes import default_recipe, recipe_names

WIKI = "wiki-bert-base"
NAMES = {WIKI, "askubuntu-bert-base", "wiki-bert-base-delete-40"}


def test_no_recipe_holds_a_published_score_and_each_says_why():
    assert {*recipe_names("tsdae")} == NAMES and held("tsdae") == set()
    notes = {name: recipe(name, "tsdae").source.note for name in NAMES}
    assert all("No published row" in note or "which no protocol here measures" in note for note in notes.values())


def test_the_settings_of_the_legacy_scripts():
    expected = {
        "backbone.model": BERT, "backbone.pooler": "cls", "backbone.dropout": 0.1, "backbone.max_length": 75,
        "options.delete": 0.6, "options.unit": "word", "options.detokenise": "treebank-like", "options.tie": True,
        "options.decoder": None, "data.file": "wiki1m_for_simcse.txt", "data.min_characters": 10, "training.batch_size": 8,
        "training.learning_rate": 3e-5, "training.epochs": 1, "training.max_steps": None, "training.schedule": "linear",
        "training.warmup": 100, "training.weight_decay": 0, "training.betas": (0.9, 0.999), "training.epsilon": 1e-6,
        "training.adam": "transformers", "training.clip": 1, "training.accumulate": 1, "training.drop_last": True,
        "selection.by": "sts-b dev", "selection.every": 1000, "selection.at_end": True, "precision": "fp16", "seed": 42,
    }
    shipped = settings(recipe(WIKI, "tsdae"))
    assert {key: shipped[key] for key in expected} == expected
    assert {f"options.{key}" for key in TSDAEOptions.model_fields} <= set(expected)
    assert changed(WIKI, "askubuntu-bert-base", "tsdae") == {
        "backbone.max_length": 512, "data.file": "askubuntu_titles.txt", "data.min_characters": 0,
        "training.max_steps": 20000, "training.schedule": "constant", "training.warmup": 0, "selection.by": "none",
        "selection.every": 250, "selection.at_end": False, "precision": "float32",
    }


def test_today_s_script_deletes_what_the_older_ones_keep():
    assert changed(WIKI, "wiki-bert-base-delete-40", "tsdae") == {
        "options.delete": 0.4, "data.min_characters": 0, "training.warmup": 0.1, "training.adam": "torch",
        "training.epsilon": 1e-8, "training.drop_last": False, "selection.by": "none", "selection.every": 250,
        "selection.at_end": False,
    }


def test_the_default_recipe_has_the_default_options():
    assert default_recipe("tsdae") == WIKI and TSDAEOptions(**recipe(WIKI, "tsdae").options) == TSDAEOptions()
