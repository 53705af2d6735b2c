"""Settings of optimiser and schedule that do not go together are one line; those of a stage are checked as a whole."""

import pytest
from shipped_recipes import one_line

from stsbench.training.recipes.recipe import resolved_yaml
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.recipes.sections import TrainingSettings

RMSPROP = ("training.optimizer=rmsprop", "training.rho=0.9", "training.adam=torch")
PIECEWISE = ("training.schedule=piecewise", "training.milestones=[5, 9]", "training.rates=[2e-5, 0]")


@pytest.mark.parametrize(("sets", "parts"), [
    ((*RMSPROP, "training.betas=[0.9, 0.98]"), ["training.betas [0.9, 0.98] has no effect", "leave it at [0.9, 0.999]"]),
    ((*RMSPROP, "training.adam=transformers"), ["training.adam transformers has no effect", "leave it at torch"]),
    (RMSPROP[::2], ["training.optimizer rmsprop needs rho: torch's", "TensorFlow's 0.9"]),
    (("training.rho=0.9",),
     ["training.rho 0.9 has no effect with optimizer adamw: it goes with optimizer rmsprop; leave it at null"]),
    ((*RMSPROP, "training.rho=1"), ["training.rho must be below 1"]),
    (("training.optimizer=rmsporp",), ["training.optimizer", "did you mean rmsprop?"]),
    (("training.milestones=[5]",), ["training.milestones [5] has no effect with schedule linear", "leave it at []"]),
    (("training.schedule=constant", "training.rates=[0.1]"), ["training.rates [0.1] has no effect with schedule constant"]),
    (("training.schedule=piecewise",), ["training.schedule piecewise needs milestones"]),
    ((*PIECEWISE, "training.rates=[1e-5]"), ["training.milestones must be as many as rates: there are 2 and 1"]),
    ((*PIECEWISE, "training.milestones=[9, 9]"), ["training.milestones [9, 9] must be rising"]),
    ((*PIECEWISE, "training.milestones=[0, 9]"), ["must be rising numbers of steps, from 1"]),
    ((*PIECEWISE, "training.rates=[1e-5, -1e-5]"), ["training.rates [1e-05, -1e-05] must be 0 or above"]),
    ((*PIECEWISE, "training.warmup=6"), ["training.milestones [5, 9] begin within the warmup of 6 steps"]),
    ((*PIECEWISE, "training.warmup=0.1"), ["training.warmup 0.1 is a share of all steps, and milestones are steps"]),
    ((*PIECEWISE, "training.schedule_of=main"), ["training.schedule_of main has no effect"]),
    (("training.weight_decay_on=all",), ["training.weight_decay_on all has no effect with weight_decay 0"]),
    (("stages.main.training.warmup=-1",), ["stages.main.training.warmup must be at least 0, not -1"]),
    (("stages.main.training.schedule=piecewise",), ["stages.main.training.schedule piecewise needs milestones"]),
    (("stages.main.training.rho=0.9",), ["stages.main.training.rho 0.9 has no effect"]),
    (("stages.main.training.optimizer=rmsprop", "stages.main.training.rho=0.9"),
     ["stages.main.training.adam transformers has no effect"]),  # what the stage takes over counts
])
def test_what_does_not_go_together_is_one_line(sets, parts):
    one_line(lambda: load_recipe("simcse", None, sets), "--set: ", *parts)


def test_a_stage_may_have_an_optimiser_of_its_own(tmp_path):
    mine = ("stages.main.training.optimizer=rmsprop", "stages.main.training.rho=0.9", "stages.main.training.adam=torch")
    recipe = load_recipe("simcse", None, [*mine, *PIECEWISE])
    assert recipe.stage_training("main").rho == 0.9 and recipe.training.optimizer == "adamw"
    assert recipe.stage_training("main").milestones == recipe.training.milestones == (5, 9)
    path = tmp_path / "mine.yaml"
    path.write_text(resolved_yaml(recipe), "utf-8")
    assert load_recipe("simcse", str(path)) == recipe


def test_defaults_are_what_there_was_before():
    assert TrainingSettings().optimizer == "adamw" and TrainingSettings().schedule == "linear"
