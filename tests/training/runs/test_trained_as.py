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
