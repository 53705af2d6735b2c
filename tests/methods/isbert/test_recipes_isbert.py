"""IS-BERT's recipes: every published row has one, and the settings are those of the released code."""

from shipped_recipes import BERT, WAY_OF, changed, held, printed, recipe, rows_of, settings

from stsbench.methods.isbert.options import ISBERTOptions
from stsbench.training.recipes.recipes import recipe_names
from stsbench.training.recipes.sections import MeanCNNSettings

METHOD, PAPER, RELEASED = "is-bert", "bert-base-nli", "bert-base-nli-released"


def test_every_published_row_has_a_recipe_with_its_scores_and_no_recipe_has_others():
    assert held(METHOD) == printed(METHOD) and {name for name, *_ in held(METHOD)} == {PAPER}
    assert set(recipe_names(METHOD)) == {PAPER, RELEASED}
    own = rows_of(("simcse", "diffcse"), lambda row: row.method.startswith("IS-BERT"))
    assert {row.id for row in own} == {"simcse:5:5", "simcse:E.1:5", "diffcse:1:5"}
    assert {WAY_OF[row.id].recipe for row in own} == {f"{METHOD}/{PAPER}"}


def test_the_settings_of_the_paper_and_the_code():
    expected = {
        "backbone.model": BERT, "backbone.pooler": "mean_cnn", "backbone.dropout": None, "backbone.max_length": 131,
        "training.batch_size": 32, "training.epochs": 1, "training.learning_rate": 2e-6, "training.schedule": "linear",
        "training.warmup": 0.1, "training.weight_decay": 0.01, "training.adam": "uncorrected", "training.epsilon": 1e-7,
        "training.clip": 1, "selection.by": "sts-b dev", "selection.every": 1000, "selection.at_end": True,
        "precision": "float32",
    }
    shipped = settings(recipe(PAPER, METHOD))
    assert {key: shipped[key] for key in expected} == expected
    assert recipe(PAPER, METHOD).backbone.mean_cnn == MeanCNNSettings()  # they are the defaults
    assert ISBERTOptions(**recipe(PAPER, METHOD).options) == ISBERTOptions()


def test_what_the_released_code_has_otherwise():
    assert changed(PAPER, RELEASED, METHOD) == {
        "backbone.mean_cnn": {**MeanCNNSettings().model_dump(), "activation": "none"}, "options.padding": "states",
    }
