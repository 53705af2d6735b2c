"""A run that is shorter than its recipe: a warm-up in steps shrinks with it, and what else is in steps and not reached is
said."""

from __future__ import annotations

import math

import pytest
import tiny_models
from clirun import cli, place
from training_runs import one_thread

from stsbench.training.engine.optimiser import learning_rate, shortened_warmup
from stsbench.training.recipes.recipe import resolved_yaml
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.recipes.sections import TrainingSettings
from stsbench.training.runs.finish import trained_as

__all__ = ["cli", "one_thread", "place"]
CT = ("ct", "bert-base-in-batch")  # one epoch, 1,000 steps of warm-up


def of(recipe, stage="main"):
    return recipe.stage_training(stage).warmup_of


@pytest.fixture
def longer(tmp_path):
    """A recipe with a length in steps of its own."""
    path = tmp_path / "longer.yaml"
    path.write_text("extends: bert-base-in-batch\ntraining: {max_steps: 5000, epochs: 1000}\n"
                    "stages: {main: {training: {max_steps: 4000}}}\n", "utf-8")
    return "ct", str(path)


@pytest.mark.parametrize(("sets", "overrides", "expected"), [
    ([], {}, None), (["seed=3"], {}, None), (["training.max_steps=40"], {}, "epochs"),
    ([], {"training.max_steps": 40}, "epochs"),
    (["stages.main.training.max_steps=40"], {}, "epochs"), (["training.max_steps=40", "training.warmup=7"], {}, None),
    (["training.max_steps=40", "training.warmup=0.1"], {}, None),
    (["training.max_steps=40", "stages.main.training.warmup=0.5"], {}, None),
])
def test_what_the_warm_up_was_meant_for(sets, overrides, expected):
    assert of(load_recipe(*CT, sets, overrides)) == expected


@pytest.mark.parametrize(("sets", "expected"), [
    ([], None), (["stages.main.training.max_steps=9000"], None), (["stages.main.training.max_steps=400"], 4000),
    (["training.max_steps=400"], None),  # the stage's own number holds
])
def test_a_recipe_with_a_length_of_its_own(longer, sets, expected):
    assert of(load_recipe(*longer, sets)) == expected


def test_it_is_kept_with_the_recipe_and_is_no_setting_of_its_own(tmp_path):
    recipe = load_recipe(*CT, ["training.max_steps=40"])
    assert "max_steps" in recipe.description and "warmup_of" not in recipe.description
    path = tmp_path / "recipe.yaml"
    path.write_text(resolved_yaml(recipe), "utf-8")
    assert load_recipe("ct", str(path)) == recipe == load_recipe("ct", str(path), ["training.max_steps=40"])
    assert of(load_recipe("ct", str(path), ["training.max_steps=20"])) == "epochs"
    plain = load_recipe(*CT)
    assert trained_as(plain) == trained_as(plain.model_copy(update={"training": plain.training.model_copy()}))


@pytest.mark.parametrize("schedule", ["linear", "constant", "slanted", "piecewise"])
@pytest.mark.parametrize(("warmup", "of", "steps", "epochs", "expected"), [
    (1000, "epochs", 4, 10_000, 1), (1000, "epochs", 2000, 10_000, 200), (1000, 5000, 500, 10_000, 100),
    (1000, 5000, 500, 2500, 200),  # the epochs ended before the recipe's max_steps
    (1000, None, 500, 10_000, 1000), (1000, "epochs", 10_000, 10_000, 1000), (0.1, "epochs", 40, 400, 0.1),
    (0, "epochs", 40, 400, 0),
])
def test_the_same_proportion_as_the_run(schedule, warmup, of, steps, epochs, expected):
    more = {"milestones": (20_000,), "rates": (1e-6,)} if schedule == "piecewise" else {}
    more |= {"warmup": warmup, "warmup_of": of, "schedule": schedule, "learning_rate": 5e-5}
    settings = TrainingSettings().model_copy(update=more)  # piecewise, too, where a share is refused
    effective = shortened_warmup(settings, steps, epochs)
    assert effective == expected
    if expected < steps:
        rates = [learning_rate(step, steps, settings.model_copy(update={"warmup": effective})) for step in range(steps)]
        assert max(rates) == pytest.approx(5e-5, rel=0.05)
        assert math.isclose(rates.index(max(rates)), effective if effective >= 1 else effective * steps, abs_tol=1)


def test_the_lines(cli, tmp_path):
    model = tiny_models.build(tmp_path / "model", pooler=False)
    quick = ("--sample", "--backbone", str(model), "--set", "backbone.max_length=16", "--device", "cpu",
             "--dtype", "float32", "--set", "selection.by=none")

    def lines(*words):
        code, _, err = cli("train", *words, *quick)
        assert code == 0, err
        return err

    shortened = lines("ct", "--recipe", CT[1], "--max-steps", "4", "--output", "a")
    assert "the warm-up of 1000 steps is shortened as the run is: 1 of 4 steps" in shortened
    longer = lines("simcse", "--max-steps", "4", "--set", "training.warmup=9", "--output", "b")
    assert "its warm-up is 9 steps, and it has 4" in longer
    unreached = lines("ct", "--max-steps", "2", "--set", "options.keep=model1", "--output", "c")
    assert "training.milestones 501, 1001, 1501, 2001 are not reached: stage main has 2 steps" in unreached
    assert "warm-up" not in unreached
