"""The mean of weights over steps: a loop in float64, what is scored, kept, exported and gone on from."""

import copy

import numpy as np
import pytest
import torch
from method_runs import cached_place, recipe_of, train
from safetensors.torch import load_file
from torch import nn

import stsbench
from stsbench.encoders.load import load_encoder
from stsbench.training.engine.optimiser import Average
from stsbench.training.engine.selection import Selection, live_encoder
from stsbench.training.recipes.sections import AverageSettings
from stsbench.training.runs.finish import load_trained

TEXTS = ["the man sits", "a dog runs in the park"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    yield from cached_place(tmp_path_factory.mktemp("averaging"))


def by_hand(weights, settings, steps):
    """weights: name -> tensor, after each step."""
    after = int(settings.after * steps) if settings.after < 1 else settings.after
    taken = [each for step, each in enumerate(weights, start=1) if step > after and step % settings.every == 0]
    mean = {name: value.double().clone() for name, value in taken[0].items()}
    for later in taken[1:]:
        for name, value in later.items():
            if settings.decay is not None:
                mean[name] = settings.decay * mean[name] + (1 - settings.decay) * value.double()
    if settings.decay is None:
        mean = {name: sum(each[name].double() for each in taken) / len(taken) for name in mean}
    return mean, len(taken)


@pytest.mark.parametrize("settings", [
    {}, {"decay": 0.6, "after": 2}, {"decay": None}, {"decay": None, "after": 0.5, "every": 3}, {"decay": 0.9, "every": 2},
])
def test_the_mean_is_that_of_a_loop_and_goes_on_after_it_was_stored(settings):
    settings, steps = AverageSettings(**settings), 12
    module = nn.Sequential(nn.Linear(5, 3), nn.Linear(3, 2)).double()
    module[1].bias.requires_grad_(False)
    average, history = Average(module, settings, steps), []
    for step in range(1, steps + 1):
        with torch.no_grad():
            for weight in module.parameters():
                weight.add_(torch.randn_like(weight))
        average.update(step)
        history.append({name: weight.detach().clone() for name, weight in module.named_parameters()})
        if step == 7:  # a checkpoint
            stored = copy.deepcopy(average.state())
            average = Average(module, settings, steps)
            average.load(stored)
    mean, count = by_hand(history, settings, steps)
    assert average.count == count
    with average.swapped():
        for name, weight in module.named_parameters():
            torch.testing.assert_close(weight, mean[name] if name != "1.bias" else history[-1][name], atol=1e-12, rtol=0)
    for name, weight in module.named_parameters():
        assert torch.equal(weight, history[-1][name])


@pytest.fixture
def watched(monkeypatch):
    """The trained weights after each step, and the vectors of each scored encoder."""
    history, scored, update, score = [], [], Average.update, Selection.__call__

    def updated(self, step):
        history.append({name: weight.detach().clone() for name, weight in zip(self._names, self._weights, strict=True)})
        update(self, step)

    def scoring(self, method, trained=False):
        scored.append(live_encoder(method.inference(), "scored").encode(TEXTS))
        return score(self, method, trained)

    monkeypatch.setattr(Average, "update", updated)
    monkeypatch.setattr(Selection, "__call__", scoring)
    return history, scored


CASES = {
    "simcse-lora": {"training.average.decay": 0.5},
    "tsdae": {"training.average.decay": None, "training.average.after": 2, "selection.by": "sts-b dev"},
    "simcse": {"training.average.decay": 0.7, "selection.by": "none", "data.held_out": 0},
    "sarcse": {"training.average.decay": None, "training.average.every": 2},  # a pooler that is learnt
}


@pytest.mark.parametrize("name", CASES)
def test_the_mean_is_scored_kept_and_exported(place, tmp_path, watched, name):
    recipe = recipe_of(place, name, **{"training.max_steps": 6, "training.epochs": 9, "selection.every": 1, **CASES[name]})
    summary, log = train(recipe, tmp_path / "run", place)
    history, scored = watched
    devs, best = [line for line in log if line["kind"] == "dev"], summary["best"]
    last = best["step"] if best else 6
    mean, count = by_hand(history[:last], recipe.training.average, 6)
    assert summary["averaged"] == count and summary["exported"].endswith(f", the mean of {count} steps' weights")
    trained = load_trained(tmp_path / "run", "cpu")
    for key, weight in trained.named_parameters():
        if key in mean:
            torch.testing.assert_close(weight.double(), mean[key], atol=1e-6, rtol=1e-5)
    vectors = load_encoder(str(tmp_path / "run"), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(live_encoder(trained.inference(), "live").encode(TEXTS), vectors, atol=1e-6)
    if best:
        np.testing.assert_allclose(scored[last], vectors, atol=1e-5)
        assert [line["averaged"] for line in devs] == [0, *(
            sum(1 for step in range(1, done + 1) if step in Average(trained, recipe.training.average, 6)._steps)
            for done in range(1, 7))]
        assert not any(line["best"] for line in devs if not line["averaged"])
    assert log[-1]["averaged"] == by_hand(history, recipe.training.average, 6)[1]


def test_a_static_table_is_averaged(place, tmp_path, watched):
    from model_folder_kinds import declare, normalize, static
    declare(tmp_path / "static", static(6), normalize(), first=None)
    stsbench.train("distil", recipe="static", output=tmp_path / "run", device="cpu", settings={
        "backbone.model": str(tmp_path / "static"), "data.file": str(place / "text.txt"), "selection.by": "none",
        "options.teachers": [{"model": str(tmp_path / "static")}], "options.projection": "none", "data.held_out": 0,
        "options.center": False, "options.pca_texts": 40_000, "training.max_steps": 5, "training.learning_rate": 0.1,
        "training.batch_size": 8, "training.average.decay": 0.5,
    })
    mean, _ = by_hand(watched[0], AverageSettings(decay=0.5), 5)
    (table,) = mean.values()
    stored = load_file(tmp_path / "run" / "best" / "model.safetensors")["embeddings"]
    torch.testing.assert_close(stored.double(), table, atol=1e-6, rtol=1e-6)
    assert not torch.equal(stored, watched[0][-1]["backbone.model.embeddings.weight"])
