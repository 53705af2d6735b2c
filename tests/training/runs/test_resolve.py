"""What a training that is asked for becomes: recipe, options and folder, without a command line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stsbench.errors import StsbenchError, UsageError
from stsbench.training.runs.request import TrainRequest, resolve

STAGES = """
extends: bert-base-semi
stages: {prefix: {training: {max_steps: 50}}, joint: {training: {max_steps: 40}}}
"""


def test_a_request_becomes_a_recipe_and_its_options(tmp_path):
    lines = []
    request = TrainRequest(
        "simcse", settings={"backbone.model": "minilm", "training.max_steps": 3}, sets=["training.learning_rate=1e-4"],
        device="cpu", evaluate=["sts"], stage=1,
    )
    options, on_sample = resolve(request, lines.append)
    recipe = options.recipe
    assert (recipe.method, recipe.backbone.model, recipe.training.max_steps) == ("simcse", "minilm", 3)
    assert recipe.training.learning_rate == 1e-4 and recipe.precision == "float32" and not on_sample
    assert (options.device, options.evaluate, options.stage, options.resume) == ("cpu", ["sts"], 1, False)
    assert options.output.parent == Path("runs") and options.output.name.endswith(f"-simcse-{recipe.name}")
    assert [line for line in lines if "float32 here" in line]


def test_the_sample_takes_the_place_of_texts_that_nobody_named(tmp_path):
    options, on_sample = resolve(TrainRequest("simcse", output=tmp_path / "out", sample=True, device="cpu"), print)
    assert on_sample and options.recipe.backbone.model == "minilm" and options.sample
    (tmp_path / "text.txt").write_text("a cat\na dog\n", "utf-8")
    settings = {"data.file": str(tmp_path / "text.txt"), "backbone.model": "minilm"}
    options, on_sample = resolve(TrainRequest("simcse", sample=True, settings=settings, device="cpu"), print)
    assert not on_sample and options.recipe.data.file == settings["data.file"]


@pytest.mark.parametrize("sets", [[], ["precision=float32"]])
def test_steps_are_of_every_stage_that_has_more(tmp_path, sets):
    """Also where the precision is set, and the recipe is not changed for the device."""
    (tmp_path / "stages.yaml").write_text(STAGES, "utf-8")
    request = TrainRequest(
        "diffaug", recipe=str(tmp_path / "stages.yaml"), settings={"training.max_steps": 45, "backbone.model": "minilm"},
        sets=sets, device="cpu",
    )
    recipe = resolve(request, print)[0].recipe
    assert [recipe.stage_training(stage).max_steps for stage in ("prefix", "joint")] == [45, 40]
    request = replace(request, sets=[*sets, "stages.prefix.training.max_steps=60"])
    assert resolve(request, print)[0].recipe.stage_training("prefix").max_steps == 60


@pytest.mark.parametrize(("asked", "message"), [
    ({"resume": True}, "--resume needs --output"),
    ({"start_from": Path("run")}, "--from needs --stage N"),
    ({"sample": True, "data_dir": Path("data")}, "--sample and --data-dir exclude each other"),
    ({"settings": {"seed": 1}, "sets": ["seed=2"]}, "--set seed=2: seed is set twice"),
    ({"sets": ["seed=2", "seed=3"]}, "--set seed=3: seed is set twice"),
])
def test_options_that_exclude_or_need_one_another(asked, message):
    with pytest.raises(UsageError, match=f"^{message}"):
        resolve(TrainRequest("simcse", **asked), print)


def test_several_processes_need_one_folder(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match=r"^several processes need --output"):
        resolve(TrainRequest("simcse"), print)


def test_a_setting_that_every_stage_has_is_refused():
    request = TrainRequest("diffaug", settings={"backbone.model": "minilm"}, sets=["training.batch_size=8"])
    with pytest.raises(StsbenchError, match=r"^--set training\.batch_size has no effect: each stage sets it itself"):
        resolve(request, print)
