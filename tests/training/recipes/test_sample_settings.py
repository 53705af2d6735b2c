"""`train --sample`: every shipped recipe finds texts of its form in the package, and every method trains on them."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny_models
from clirun import cli, fails, place
from training_runs import one_thread

from stsbench.data.fetch.sources import NAMED
from stsbench.errors import StsbenchError
from stsbench.registry import names
from stsbench.training.recipes.recipes import load_recipe, recipe_names
from stsbench.training.recipes.sample import BACKBONE, BATCH, STEPS, TEXTS, is_of_sample, sample_settings

__all__ = ["cli", "one_thread", "place"]
METHODS = names("stsbench.methods")
NOT_THERE = {"QQP/train.tsv", "wikipedia_sections_triplets.csv", "amazon_qa_pairs_1172000.tsv", "flickr30k_pairs.csv",
             "nli_with_neutral.csv", "paranmt_pairs.csv", "multicsr_nli.csv", "sumcse.csv", "SynCSE-partial-NLI.csv",
             "SynCSE-scratch-NLI.csv"}


def files(recipe):
    """The texts that a recipe names, of its stages as well."""
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
    return tiny_models.build(tmp_path_factory.mktemp("model") / "tiny", pooler=False, positions=132)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_every_stage_on_the_sample(cli, model, method):
    code, _, err = cli("train", method, "--sample", "--backbone", model, "--max-steps", "1", "--device", "cpu",
                         "--dtype", "float32", "--output", "out", *tiny_models.SETTINGS.get(method, ()))
    assert code == 0, err
    for stage in load_recipe(method).stages:
        assert f"stage {stage}: 1 step of" in err
    assert "--sample: " in err and "at most 1 step a stage" in err and err.rstrip().endswith("prove nothing")
    assert Path("out/best/model.safetensors").is_file()


def test_rows_that_the_sample_has_none_of_are_named(cli, model):
    line = fails(cli("train", "sbert", "--recipe", "wiki-sections-bert-base", "--sample"), "--recipe", code=1)
    assert "wikipedia_sections_triplets.csv" in line


def test_texts_of_the_users_own_are_trained_on_in_full(cli, model):
    Path("text.txt").write_text("\n".join(tiny_models.sentences(40, longest=8)) + "\n", "utf-8")
    code, _, err = cli("train", "simcse", "--sample", "--data", "text.txt", "--backbone", model, "--device", "cpu",
                       "--dtype", "float32", "--set", "training.batch_size=8", "--output", "out")
    assert code == 0 and "5 steps of 8 of 40 rows" in err and "prove nothing" not in err, err
