"""SG-OPT's recipes: the published row, the code's settings, what each of the others changes, a few steps of each."""

import json
import math

import pytest
from shipped_recipes import BERT, WAY_OF, changed, held, printed, recipe, rows_of, settings
from tiny_models import build
from training_runs import one_thread

import stsbench
from stsbench.methods.sgopt.options import SGOPTOptions
from stsbench.training.recipes.methods import card
from stsbench.training.recipes.recipes import default_recipe, recipe_names

__all__ = ["one_thread"]
NAMES = recipe_names("sg-opt")
RELEASED = {"options.reference_dropout": True, "selection.by": "none", "selection.every": 250, "selection.at_end": False}
CHANGES = {
    "bert-base-released": ("bert-base", RELEASED),
    **{f"bert-base-{name}": ("bert-base", {"options.objective": name}) for name in ("sg", "opt1", "opt2")},
    "bert-base-opt2-released": ("bert-base-opt2", {**RELEASED, "options.skip_negative": True}),
}


def test_the_published_row_has_a_recipe_with_its_scores_and_no_recipe_has_others():
    (row,) = rows_of(("diffcse",), lambda row: row.method == "SG-OPT")
    assert WAY_OF[row.id].recipe == "sg-opt/bert-base-released"
    assert held("sg-opt") == printed("sg-opt") and len(held("sg-opt")) == 8
    assert {name for name, *_ in held("sg-opt")} == {"bert-base-released"}


@pytest.mark.parametrize("name", NAMES)
def test_the_card_names_every_recipe(name):
    assert f"`{name}`" in card("sg-opt")


def test_the_settings_of_the_default_recipe():
    expected = {
        "backbone.model": BERT, "backbone.pooler": "cls", "backbone.dropout": None, "backbone.max_length": 131,
        "data.file": "stsb-texts", "data.drop_duplicates": False, "training.batch_size": 16, "training.epochs": 1,
        "training.learning_rate": 5e-5, "training.schedule": "linear", "training.warmup": 0.1, "training.weight_decay": 0.01,
        "training.betas": (0.9, 0.9), "training.epsilon": 1e-6, "training.adam": "transformers", "training.clip": 1,
        "training.drop_last": False, "selection.by": "sts-b dev", "selection.every": 50, "selection.at_end": True,
        "precision": "float32", "seed": 1,
    }
    got = settings(recipe("bert-base", "sg-opt"))
    assert {key: got[key] for key in expected} == expected
    assert default_recipe("sg-opt") == "bert-base"
    assert SGOPTOptions(**recipe("bert-base", "sg-opt").options) == SGOPTOptions()


@pytest.mark.parametrize("name", CHANGES)
def test_a_recipe_changes_what_it_says_and_nothing_else(name):
    base, expected = CHANGES[name]
    assert changed(base, name, "sg-opt") == expected


def test_no_recipe_is_untested():
    assert set(NAMES) == {"bert-base", *CHANGES}


@pytest.mark.parametrize("name", NAMES)
def test_a_few_steps(name, tmp_path, monkeypatch):
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    values = {"backbone.model": str(build(tmp_path / "model", pooler=False)), "training.max_steps": 2,
              "selection.by": "none", "backbone.max_length": 12, "options.projection_width": 16}
    stsbench.train("sg-opt", recipe=name, output=tmp_path / "run", settings=values, device="cpu", sample=True)
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text("utf-8").splitlines()]
    (line,) = (line for line in lines if line["kind"] == "train")
    assert set(line["terms"]) == {"contrastive", "regulariser"}
    assert math.isfinite(line["loss"]) and line["gradient_norm"] > 0
