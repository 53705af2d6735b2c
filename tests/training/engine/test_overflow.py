"""Steps that float16 overflows in are counted, and not taken, whether the optimiser is fused or not."""

from __future__ import annotations

import json

import pytest
import torch
from method_runs import make_place, recipe_of, train

from stsbench.errors import StsbenchError
from stsbench.training.engine import loop
from stsbench.training.runs import run


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return make_place(tmp_path_factory.mktemp("overflow"))


class Scaled:
    """A run with torch's own scaler, which acts on a CPU as it does on a GPU; the gradient of some steps is infinite."""

    def __init__(self, place, monkeypatch, infinite):
        self.place, self.steps, self.loops = place, 0, []
        monkeypatch.setenv("STSBENCH_CACHE", str(place / "cache"))
        make, check, begin = run.make_accelerator, loop.check_terms, loop.Loop.__init__

        def made(*arguments):
            accelerator = make(*arguments)
            accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
            return accelerator

        def terms(method, values):
            check(method, values)
            if self.loops[-1]._done + 1 in infinite:  # the loss is finite, and its gradient is not
                weight = self.loops[-1].weights[0]
                term = next(iter(values.values()))
                term.value = term.value + (weight.sum() - weight.sum().detach()) * 1e38
            return values

        def noted(this, *arguments, **named):
            begin(this, *arguments, **named)
            self.loops.append(this)

        monkeypatch.setattr(run, "make_accelerator", made)
        monkeypatch.setattr(loop, "check_terms", terms)
        monkeypatch.setattr(loop.Loop, "__init__", noted)

    def __call__(self, folder, steps, **more):
        recipe = recipe_of(self.place, "sbert-triplet")
        training = recipe.training.model_copy(update={"max_steps": steps, "epochs": 9.0, **more})
        recipe = recipe.model_copy(update={"training": training, "checkpoint_every": steps,
                                           "selection": recipe.selection.model_copy(update={"by": "none", "every": 99})})
        return train(recipe, folder, self.place, device="cpu")


@pytest.mark.parametrize("optimiser", [{"adam": "transformers"}, {"optimizer": "rmsprop", "rho": 0.9, "adam": "torch"}])
def test_they_are_counted_and_not_taken(place, tmp_path, monkeypatch, optimiser):
    scaled = Scaled(place, monkeypatch, infinite={2, 3})
    _, log = scaled(tmp_path / "run", 5, **optimiser)
    (line,) = [line for line in log if line["kind"] == "train"]
    assert line["skipped_steps"] == 2
    (only,) = scaled.loops
    assert loop.steps_taken(only.optimiser) == 3
    assert only.settings.adam == "torch" or only._taken + only._done - int(only._all_skipped) == 3


def test_ten_in_a_row_end_the_run(place, tmp_path, monkeypatch):
    scaled = Scaled(place, monkeypatch, infinite=set(range(1, 11)))
    with pytest.raises(StsbenchError, match="float16 overflowed in each of the 10 steps"):
        scaled(tmp_path / "run", 11)
    assert [json.loads(line)["kind"] for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()] == ["start"]
