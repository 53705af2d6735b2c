"""A recipe as an object: loaded by its name, changed, saved, and what it says of itself."""

from __future__ import annotations

import json

import pytest

import stsbench
from stsbench.errors import StsbenchError
from stsbench.training.recipes.recipes import load_recipe

CHANGES = {"training.learning_rate": 1e-5, "options.temperature": 0.1, "data.columns": {"sentence": "text"}}


def test_a_changed_recipe_is_what_set_makes_of_the_shipped_one(tmp_path):
    recipe = stsbench.load_recipe("simcse/unsup-bert-base")
    assert recipe == stsbench.load_recipe("simcse") == load_recipe("simcse", "unsup-bert-base")
    changed = recipe.with_settings(CHANGES)
    words = ["training.learning_rate=1e-5", "options.temperature=0.1", "data.columns={sentence: text}"]
    assert changed == load_recipe("simcse", "unsup-bert-base", words) and recipe.training.learning_rate == 3e-5
    assert repr(changed) == ("<Recipe unsup-bert-base-changed of simcse: data.columns, options.temperature, "
                             "training.learning_rate changed>") and repr(recipe) == "<Recipe unsup-bert-base of simcse>"
    assert changed.save(tmp_path / "mine.yaml").read_text("utf-8") == str(changed)
    assert stsbench.load_recipe(tmp_path / "mine.yaml") == changed
    assert changed.with_settings({"seed": 5}) == load_recipe("simcse", str(tmp_path / "mine.yaml"), overrides={"seed": 5})


@pytest.mark.parametrize(("settings", "message"), [
    ({"training.lerning_rate": 1}, "options: unknown key 'training.lerning_rate'; did you mean training.learning_rate"),
    ({"training.learning_rate": "big"}, "options: training.learning_rate must be a number, not 'big'"),
    ({"options.temprature": 1}, "options: unknown key 'options.temprature'; did you mean options.temperature"),
    ({"method": "mlm"}, "options: method must be 'simcse', not 'mlm'"),
])
def test_a_change_that_cannot_be_is_one_line(settings, message):
    with pytest.raises(StsbenchError) as error:
        stsbench.load_recipe("simcse").with_settings(settings)
    assert str(error.value).startswith(message) and "\n" not in str(error.value)


@pytest.mark.parametrize(("name", "message"), [
    ("simcse/unsup-bert-bas", "the method 'simcse' has no recipe"), ("simsce", "there is no recipe 'simsce'; did you mean"),
])
def test_a_recipe_that_there_is_not(name, message):
    with pytest.raises(StsbenchError, match=f"^{message}|there is no such file"):
        stsbench.load_recipe(name)


def test_a_recipe_of_a_python_file_runs_it_only_where_it_is_named(tmp_path):
    file = tmp_path / "toy.py"
    file.write_text("raise SystemExit('it was run')\n", "utf-8")
    recipe = {"name": "toy", "method": f"{file}:Toy", "backbone": {"model": "minilm"}}
    (tmp_path / "toy.yaml").write_text(json.dumps(recipe), "utf-8")
    with pytest.raises(StsbenchError, match="a Python file, which is run only where it is named"):
        stsbench.load_recipe(tmp_path / "toy.yaml")
