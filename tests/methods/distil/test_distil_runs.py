"""A run of `distil`: its PCA in checkpoints and records, what it exports, and recipes."""

import json
import shutil

import numpy as np
import pytest
import torch
from method_runs import StopAt, Stopped, cached_place, recipe_of, train
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from shipped_recipes import one_line, recipe, settings
from training_runs import one_thread

from stsbench.encoders.load import load_encoder
from stsbench.methods.distil.projections import principal_components
from stsbench.training.recipes.recipes import recipe_names
from stsbench.training.runs.finish import load_trained

__all__ = ["one_thread"]
# two teachers side by side are wider than the student
TWO = [{"model": "model", "settings": {"pooler": pooler}, "weight": weight} for pooler, weight in (("cls", 1), ("mean", 2))]
WIDE = {"options.teachers": TWO, "options.pca_texts": 40, "options.projection": "auto"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    yield from cached_place(tmp_path_factory.mktemp("distil"))


def stored(run):
    newest = sorted((run / "checkpoints").glob("0-*"))[-1]
    return load_file(newest / "model.safetensors")


def test_pca_is_of_rows_drawn_by_the_seed_and_stored(place, tmp_path):
    kept = {}
    for name, seed in (("one", 42), ("same", 42), ("other", 43)):
        summary, _ = train(recipe_of(place, "distil", **WIDE, seed=seed), tmp_path / name, place)
        weights = stored(tmp_path / name)
        kept[name] = weights["pca.components"], summary["teachers"]["teacher PCA"]
        assert weights["pca.components"].shape == (32, 64) and weights["pca.mean"].shape == (64,)
    assert torch.equal(kept["one"][0], kept["same"][0]) and kept["one"][1] == kept["same"][1]
    assert not torch.equal(kept["one"][0], kept["other"][0]) and kept["one"][1] != kept["other"][1]
    trained = load_trained(tmp_path / "one", device="cpu")
    assert torch.equal(trained.pca.components, kept["one"][0])


def test_pca_of_all_texts_where_there_are_no_more(place, tmp_path):
    recipe = recipe_of(place, "distil", **{**WIDE, "options.pca_texts": 40_000, "data.held_out": 0, "selection.by": "none"})
    train(recipe, tmp_path / "run", place)
    trained = load_trained(tmp_path / "run", device="cpu")
    texts = (place / "text.txt").read_text("utf-8").splitlines()
    _, components = principal_components(trained.teachers.vectors(texts), 32)
    assert np.abs(stored(tmp_path / "run")["pca.components"].numpy() - components).max() < 1e-4


def test_broken_off_it_goes_on_with_the_components_that_it_had(place, tmp_path):
    recipe = recipe_of(place, "distil", **WIDE, **{"training.max_steps": 4, "checkpoint_every": 3, "backbone.dropout": 0.1})
    train(recipe, tmp_path / "whole", place)
    with pytest.raises(Stopped):
        train(recipe, tmp_path / "run", place, callback=StopAt(3))
    train(recipe, tmp_path / "run", place, resume=True)
    whole, resumed = stored(tmp_path / "whole"), stored(tmp_path / "run")
    assert whole.keys() == resumed.keys() and all(torch.equal(whole[key], resumed[key]) for key in whole)


@pytest.mark.parametrize("name", ["distil", "distil-linear"])
def test_the_export_is_a_model_of_that_depth_without_teachers_or_projection(place, tmp_path, name):
    train(recipe_of(place, name), tmp_path / "run", place)
    best = tmp_path / "run" / "best"
    assert json.loads((best / "config.json").read_text("utf-8"))["num_hidden_layers"] == 1
    weights = load_file(best / "model.safetensors")
    assert {key.split("layer.")[1].partition(".")[0] for key in weights if "layer." in key} == {"0"}
    assert not [key for key in weights if "pca" in key or "linear" in key]
    library = SentenceTransformer(str(best), device="cpu")
    assert len(library[0].auto_model.encoder.layer) == 1
    texts = ["the man runs .", "a dog"]
    assert np.abs(library.encode(texts) - load_encoder(str(best), device="cpu").encode(texts)).max() < 1e-6


def test_another_teacher_is_no_resumption(place, tmp_path):
    changed = place / "teacher"
    shutil.copytree(place / "model", changed)
    recipe = recipe_of(place, "distil", **{"options.teachers": [{"model": "teacher", "settings": {"pooler": "mean"}}]})
    with pytest.raises(Stopped):
        train(recipe, tmp_path / "run", place, callback=StopAt(2))
    config = json.loads((changed / "config.json").read_text("utf-8"))
    (changed / "config.json").write_text(json.dumps({**config, "layer_norm_eps": 1e-6}), "utf-8")
    one_line(lambda: train(recipe, tmp_path / "run", place, resume=True), "the teacher 1 is not what")


# --- recipes ---


def test_the_settings_of_the_library_s_example():
    assert {*recipe_names("distil")} == {"layers-4", "layers-4-ranks", "layers-4-similarities", "tinybert"}
    for name in recipe_names("distil"):
        assert recipe(name, "distil").published == []  # the example prints no scores
        values = settings(recipe(name, "distil"))
        assert values["options.teachers"][0]["model"] == "sentence-transformers/stsb-roberta-base"
        expected = {
            "training.batch_size": 64, "training.learning_rate": 1e-4, "training.epsilon": 1e-6, "training.warmup": 1000,
            "training.adam": "uncorrected", "training.weight_decay": 0.01, "training.epochs": 1, "precision": "fp16",
            "selection.by": "held-out", "selection.every": 5000, "data.held_out": 10_000, "backbone.pooler": "mean",
        }
        assert {key: values[key] for key in expected} == expected
    assert settings(recipe("layers-4", "distil"))["backbone.layers"] == (1, 4, 7, 10)
    tiny = settings(recipe("tinybert", "distil"))
    assert (tiny["options.projection"], tiny["options.pca_texts"], tiny["options.center"]) == ("pca", 40_000, False)
