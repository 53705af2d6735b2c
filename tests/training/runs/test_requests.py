"""What a training that is asked for becomes: recipe, options and folder, the digest of its settings, and how long the seeds
that are left will take."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from stsbench.errors import UsageError
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.runs import seed_runs
from stsbench.training.runs.finish import trained_as
from stsbench.training.runs.options import TrainOptions, TrainRequest, resolve

STAGES = """
extends: bert-base-semi
stages: {prefix: {training: {max_steps: 50}}, joint: {training: {max_steps: 40}}}
"""


def test_a_request_becomes_a_recipe_and_its_options(monkeypatch):
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
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError):  # several processes need one folder
        resolve(TrainRequest("simcse"), print)


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


# --- what a record says of the settings ---


@pytest.mark.parametrize(("method", "name", "digest"), [  # computed when every training was by torch's AdamW
    ("simcse", "unsup-bert-base", "317e58652b303810"), ("diffaug", "bert-base-semi", "9f988b483ec470b6"),
    ("mlm", "bert", "78d0587b6246f579"),
])
def test_torchs_adam_is_what_had_no_name(method, name, digest):
    recipe, torchs = load_recipe(method, name), load_recipe(method, name, ["training.adam=torch"])
    assert trained_as(torchs)["settings"] == digest
    assert (trained_as(recipe)["settings"] == digest) == (recipe.training.adam == "torch") == (method == "mlm")


@pytest.mark.parametrize(("method", "name", "digest"), [  # of the rows minilm-mlm32-sg-opt and -is-bert
    ("sg-opt", "bert-base", "9b6c5eae246ca1a8"), ("is-bert", "bert-base-nli", "e4403c75922511f6"),
])
def test_the_boards_rows_are_of_the_recipes_as_they_are(method, name, digest):
    """They set the length, which the recipes have changed since; settings that came later are as nothing was."""
    adam = {"training.adam": "torch"} if method == "is-bert" else {}
    sets = {"selection.every": 25, "selection.at_end": True, "precision": "bf16", "backbone.model": "runs/mlm32",
            "data.file": "wiki_sentences.txt", "training.max_steps": 100, "training.batch_size": 64,
            "training.learning_rate": 3e-5, "backbone.max_length": 32, **adam}
    assert trained_as(load_recipe(method, name, (), sets))["settings"] == digest


def test_settings_without_an_effect_on_the_weights_are_no_part_of_it():
    plain = trained_as(load_recipe("simcse"))["settings"]
    for setting, same in (("backbone.layers=null", 1), ("backbone.layers=[0, 3]", 0), ("checkpoint_minutes=1.5", 1)):
        assert (trained_as(load_recipe("simcse", None, [setting]))["settings"] == plain) == same


# --- between the runs of several seeds ---


def test_the_mean_of_the_seeds_before_says_how_long_the_others_take(monkeypatch, tmp_path):
    """A training takes a minute more each time: 1, 2, 3, 4, 5; seeds that were there before do not count."""
    now = [0.0]

    def train(options, log, callback):
        if not options.resume:
            now[0] += 60.0 * (options.recipe.seed - 41)
        return {}

    monkeypatch.setattr(seed_runs, "train", train)
    monkeypatch.setattr(seed_runs, "summarise_seeds", lambda runs: {"seeds": len(runs)})
    monkeypatch.setattr(seed_runs, "as_started", lambda options: options)
    monkeypatch.setattr(seed_runs.time, "monotonic", lambda: now[0])
    for done, expected in ((0, [4, 4.5, 4, 2.5]), (2, [6, 3.5])):
        output, lines = tmp_path / str(done), []
        for seed in range(42, 42 + done):
            (output / f"seed-{seed}").mkdir(parents=True)
            (output / f"seed-{seed}/recipe.yaml").touch()
        options = TrainOptions(recipe=load_recipe("simcse"), output=output, resume=bool(done))
        seed_runs.train_seeds(options, 5, lines.append, None)
        more = [*(f" and {count} more" for count in range(len(expected) - 1, 0, -1)), ""]
        said = [f"about {timedelta(minutes=minutes)} for this{of}, by the seeds before"
                for minutes, of in zip(expected, more, strict=True)]
        assert [line.partition("; ")[2] for line in lines] == [""] * (5 - len(expected)) + said
