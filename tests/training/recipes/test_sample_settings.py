"""Runs shorter than their recipe. `train --sample`: every shipped recipe finds texts of its form in the package, and every
method trains on them. A warm-up in steps shrinks with the run, and what else is in steps and not reached is said."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import tiny_models
from clirun import cli, fails, place  # noqa: F401

from stsbench.data.fetch.sources import NAMED
from stsbench.errors import StsbenchError
from stsbench.registry import names
from stsbench.training.engine.optimiser import shortened_warmup
from stsbench.training.engine.stage import scheduled
from stsbench.training.recipes.recipe import resolved_yaml
from stsbench.training.recipes.recipes import (
    BACKBONE,
    BATCH,
    STEPS,
    TEXTS,
    is_of_sample,
    load_recipe,
    recipe_names,
    sample_settings,
)
from stsbench.training.runs.finish import trained_as

METHODS = names("stsbench.methods")
NOT_THERE = {"QQP/train.tsv", "wikipedia_sections_triplets.csv", "amazon_qa_pairs_1172000.tsv", "flickr30k_pairs.csv",
             "nli_with_neutral.csv", "paranmt_pairs.csv", "multicsr_nli.csv", "sumcse.csv", "SynCSE-partial-NLI.csv",
             "SynCSE-scratch-NLI.csv"}


def files(recipe):
    parts = (recipe.model_dump(), *recipe.stages.values())
    return {part[name]["file"] for part in parts for name in ("data", "labelled")
            if part.get(name) and part[name].get("file")}


@pytest.mark.parametrize("method", METHODS)
def test_every_recipe_becomes_a_short_one_on_texts_that_are_there(method):
    short = 0
    for name in recipe_names(method):
        recipe = load_recipe(method, name)
        try:
            made = load_recipe(method, name, (), sample_settings(recipe, (), lambda line: None))
        except StsbenchError as error:
            idle = str(error).startswith("options: options.")  # what the sample needs, beside the recipe's own options
            assert idle or (files(recipe) & NOT_THERE and "--recipe" in str(error)), (name, error)
            continue
        there = {file for file in files(made) if Path(file).is_file()}
        assert all(file in NAMED or file == "stsb/train" for file in files(made) - there), (name, files(made))
        assert all(Path(file).parent == TEXTS for file in there)
        assert is_of_sample(made) == bool(there) and not is_of_sample(recipe)  # resumed, too, or in a further stage
        assert made.backbone.model == BACKBONE and not made.published
        for stage in (None, *made.stages):
            training = made.training if stage is None else made.stage_training(stage)
            assert training.max_steps == STEPS and BATCH / 2 < training.batch_size <= BATCH, (name, stage)
        short += 1
    assert short, f"no recipe of {method} can be tried"


def test_what_the_user_set_stays():
    recipe = load_recipe("diffaug")
    chosen = {"backbone.model", "training.max_steps", "stages.joint.training.batch_size"}
    settings = sample_settings(recipe, chosen, lambda line: None)
    assert not settings.keys() & chosen
    assert not any(key.endswith("max_steps") for key in settings)  # --max-steps is meant for every stage


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_models.build_for_sample(tmp_path_factory.mktemp("model") / "tiny")


@pytest.mark.parametrize("method", ["diffaug", "ct", "cosent"])
def test_a_method_trains_every_stage_on_the_sample(cli, model, method):
    """What every method makes of such rows: tests/methods/test_method_contract.py."""
    code, _, err = cli("train", method, "--sample", "--backbone", model, "--max-steps", "1", "--device", "cpu",
                       "--dtype", "float32", "--output", "out", *tiny_models.SETTINGS.get(method, ()))
    assert code == 0, err
    for stage in load_recipe(method).stages:
        assert f"stage {stage}: 1 step of" in err
    assert ("training.milestones 501, 1001, 1501, 2001 are not reached" in err) == (method == "ct")
    assert ("stsb/train: its sentences are in the test sets of" in err) == (method == "cosent")
    assert "--sample: " in err and "at most 1 step a stage" in err and err.rstrip().endswith("prove nothing")
    assert Path("out/best/model.safetensors").is_file()


def test_rows_that_the_sample_has_none_of_are_named(cli, model):
    line = fails(cli("train", "sbert", "--recipe", "wiki-sections-bert-base", "--sample"), "--recipe", code=1)
    assert "wikipedia_sections_triplets.csv" in line


# --- a warm-up in steps ---

CT = ("ct", "bert-base-in-batch")  # one epoch, 1,000 steps of warm-up


def meant(recipe, stage="main"):
    return recipe.stage_training(stage).warmup_of


def test_what_the_warm_up_was_meant_for(tmp_path):
    for sets, overrides, expected in (
        (["seed=3"], {}, None), (["training.max_steps=40"], {}, "epochs"), ([], {"training.max_steps": 40}, "epochs"),
        (["stages.main.training.max_steps=40"], {}, "epochs"), (["training.max_steps=40", "training.warmup=7"], {}, None),
        (["training.max_steps=40", "training.warmup=0.1"], {}, None),
        (["training.max_steps=40", "stages.main.training.warmup=0.5"], {}, None),
    ):
        assert meant(load_recipe(*CT, sets, overrides)) == expected
    path = tmp_path / "longer.yaml"  # a recipe with a length in steps of its own
    path.write_text("extends: bert-base-in-batch\ntraining: {max_steps: 5000, epochs: 1000}\n"
                    "stages: {main: {training: {max_steps: 4000}}}\n", "utf-8")
    for sets, expected in (
        ([], None), (["stages.main.training.max_steps=9000"], None), (["stages.main.training.max_steps=400"], 4000),
        (["training.max_steps=400"], None),  # the stage's own number holds
    ):
        assert meant(load_recipe("ct", str(path), sets)) == expected


def test_it_is_kept_with_the_recipe_and_is_no_setting_of_its_own(tmp_path):
    recipe = load_recipe(*CT, ["training.max_steps=40"])
    assert "max_steps" in recipe.description and "warmup_of" not in recipe.description
    path = tmp_path / "recipe.yaml"
    path.write_text(resolved_yaml(recipe), "utf-8")
    assert load_recipe("ct", str(path)) == recipe == load_recipe("ct", str(path), ["training.max_steps=40"])
    assert meant(load_recipe("ct", str(path), ["training.max_steps=20"])) == "epochs"
    plain = load_recipe(*CT)
    assert trained_as(plain) == trained_as(plain.model_copy(update={"training": plain.training.model_copy()}))


def test_steps_that_are_not_reached_are_said():
    def told(steps, method, name=None, *sets):
        recipe = load_recipe(method, name, [f"training.max_steps={steps}", *sets])
        settings = recipe.stage_training("main")
        settings = settings.model_copy(update={"warmup": shortened_warmup(settings, steps, 10_000)})
        batches = SimpleNamespace(steps=steps)
        return scheduled(SimpleNamespace(name="main", settings=settings, schedule=None, batches=batches), recipe)

    assert told(4, *CT) == ["the warm-up of 1000 steps is shortened as the run is: 1 of 4 steps"]
    [longer] = told(4, "simcse", None, "training.warmup=9")
    assert longer.startswith("warning: ") and "its warm-up is 9 steps, and it has 4" in longer
    assert told(2, "ct") == ["training.milestones 501, 1001, 1501, 2001 are not reached: stage main has 2 steps"]
    assert told(1501, "ct") == ["training.milestones 1501, 2001 are not reached: stage main has 1501 steps"]
    assert told(2002, "ct") == []
