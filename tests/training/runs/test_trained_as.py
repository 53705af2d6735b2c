"""What a record says of a training's settings: that of runs from before training.adam stays what it was."""

import pytest

from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.runs.finish import trained_as

BEFORE = {  # computed at b4e3039, when every training was by torch's AdamW
    ("simcse", "unsup-bert-base"): "317e58652b303810", ("diffaug", "bert-base-semi"): "9f988b483ec470b6",
    ("mlm", "bert"): "78d0587b6246f579",
}


@pytest.mark.parametrize(("method", "name"), BEFORE)
def test_torchs_adam_is_what_had_no_name(method, name):
    recipe = load_recipe(method, name)
    torch = load_recipe(method, name, ["training.adam=torch"])
    assert trained_as(torch)["settings"] == BEFORE[method, name]
    other = trained_as(recipe)["settings"]
    assert (other == BEFORE[method, name]) == (recipe.training.adam == "torch") == (method == "mlm")


BOARD = {  # of the rows minilm-mlm32-sg-opt and -is-bert
    ("sg-opt", "bert-base"): "9b6c5eae246ca1a8", ("is-bert", "bert-base-nli"): "e4403c75922511f6",
}


@pytest.mark.parametrize(("method", "name"), BOARD)
def test_the_boards_rows_are_of_the_recipes_as_they_are(method, name):
    """They set the length, which the recipes have changed since; settings that came later are as nothing was."""
    adam = {"training.adam": "torch"} if method == "is-bert" else {}
    sets = {"selection.every": 25, "selection.at_end": True, "precision": "bf16", "backbone.model": "runs/mlm32",
            "data.file": "wiki_sentences.txt", "training.max_steps": 100, "training.batch_size": 64,
            "training.learning_rate": 3e-5, "backbone.max_length": 32, **adam}
    assert trained_as(load_recipe(method, name, (), sets))["settings"] == BOARD[method, name]
