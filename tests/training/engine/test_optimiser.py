"""The optimisers against plain transcriptions in float64, and the learning rate of each step against the libraries'.
Steps that float16 overflows in are counted, and not taken, whether the optimiser is fused or not. The mean of weights over
steps: a loop in float64, what is scored, kept, exported and gone on from."""

import copy
import json
import math

import numpy as np
import pytest
import torch
from method_runs import cached_place, recipe_of, train
from torch import nn
from transformers import get_constant_schedule_with_warmup, get_linear_schedule_with_warmup

from stsbench.encoders.load import load_encoder
from stsbench.errors import StsbenchError
from stsbench.training.engine import loop
from stsbench.training.engine.optimiser import Average, learning_rate, make_optimiser, set_step, shortened_warmup
from stsbench.training.engine.selection import Selection, live_encoder
from stsbench.training.recipes.sections import AverageSettings, TrainingSettings
from stsbench.training.runs import run
from stsbench.training.runs.finish import load_trained

SHAPE, STEPS = (3, 4), 50
RNG = np.random.default_rng(5)
# from 1e-9 to 1: beside small gradients epsilon is large
GRADIENTS = RNG.standard_normal((STEPS, *SHAPE)) * 10.0 ** RNG.integers(-9, 1, SHAPE)
RATES = np.linspace(1e-2, 1e-4, STEPS)


def adam(direction):
    """The weights after all steps, decayed before each step, as torch does."""

    def after(weight, settings):
        (beta1, beta2), mean, square = settings.betas, np.zeros(SHAPE), np.zeros(SHAPE)
        for number, (gradient, rate) in enumerate(zip(GRADIENTS, RATES, strict=True), start=1):
            weight = weight - rate * settings.weight_decay * weight
            mean = mean * beta1 + (1 - beta1) * gradient
            square = square * beta2 + (1 - beta2) * gradient**2
            weight = weight - rate * direction(mean, square, number, beta1, beta2, settings.epsilon)
        return weight

    return after


@adam
def kingma_and_ba(mean, square, number, beta1, beta2, epsilon):
    """Algorithm 1: epsilon is added to the root of the corrected second moment."""
    return mean / (1 - beta1**number) / (np.sqrt(square / (1 - beta2**number)) + epsilon)


@adam
def transformers_4(mean, square, number, beta1, beta2, epsilon):
    """transformers 4.2.1, optimization.py, AdamW.step with correct_bias."""
    return math.sqrt(1 - beta2**number) / (1 - beta1**number) * mean / (np.sqrt(square) + epsilon)


@adam
def first_bert(mean, square, number, beta1, beta2, epsilon):
    """google-research/bert, optimization.py, AdamWeightDecayOptimizer."""
    return mean / (np.sqrt(square) + epsilon)


def rmsprop(weight, settings):
    """torch/optim/rmsprop.py and keras/optimizer_v2/rmsprop.py without momentum; torch adds the decay to the gradient."""
    square = np.zeros(SHAPE)
    for gradient, rate in zip(GRADIENTS, RATES, strict=True):
        gradient = gradient + settings.weight_decay * weight
        square = settings.rho * square + (1 - settings.rho) * gradient * gradient
        weight = weight - rate * gradient / (np.sqrt(square) + settings.epsilon)
    return weight


@pytest.mark.parametrize(("values", "oracle"), [
    ({"adam": "torch"}, kingma_and_ba), ({"adam": "transformers"}, transformers_4),
    ({"adam": "uncorrected", "epsilon": 1e-6, "weight_decay": 0.1}, first_bert),
    ({"optimizer": "rmsprop", "rho": 0.99, "epsilon": 1e-8, "weight_decay": 0.3}, rmsprop),
    ({"optimizer": "rmsprop", "rho": 0.9, "epsilon": 1e-7}, rmsprop),  # TensorFlow's defaults
])
def test_fifty_steps_are_those_of_the_transcription_and_of_no_other(values, oracle):
    settings = TrainingSettings(learning_rate=1e-2, **values)
    torch.manual_seed(1)
    module = nn.Linear(SHAPE[1], SHAPE[0], bias=False).double()
    start, optimiser = module.weight.detach().numpy().copy(), make_optimiser(module, settings)
    for gradient, rate in zip(GRADIENTS, RATES, strict=True):
        set_step(optimiser, rate, loop.steps_taken(optimiser), settings)
        module.weight.grad = torch.from_numpy(gradient)
        optimiser.step()
    expected = oracle(start, settings)
    np.testing.assert_allclose(module.weight.detach().numpy(), expected, rtol=1e-12, atol=1e-12)
    for different in {kingma_and_ba, transformers_4, first_bert} - {oracle}:
        assert np.abs(different(start, settings) - expected).max() > 1e-3


def test_decay_spares_biases_and_norms_and_rates_are_multiples_by_name():
    module = nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2), nn.Linear(2, 2).requires_grad_(False))
    decays = {}
    for which in ("matrices", "all"):
        settings = TrainingSettings(weight_decay=0.1, weight_decay_on=which)
        optimiser = make_optimiser(module, settings, {"0.": 0.5})
        set_step(optimiser, 2.0, 0, settings)
        groups = {id(weight): group for group in optimiser.param_groups for weight in group["params"]}
        decays[which] = [groups[id(weight)]["weight_decay"] for weight in module[:2].parameters()]
        assert [groups[id(weight)]["lr"] for weight in module[:2].parameters()] == [1.0, 1.0, 2.0, 2.0]
        assert len(groups) == 4  # nothing that is frozen
    assert decays == {"matrices": [0.1, 0, 0, 0], "all": [0.1] * 4}


@pytest.mark.parametrize(("schedule", "warmup"), [("linear", 0), ("linear", 0.25), ("constant", 7)])
def test_linear_and_constant_rates_are_those_of_transformers(schedule, warmup):
    steps, weight = 40, torch.nn.Parameter(torch.zeros(1))
    optimiser = torch.optim.SGD([weight], lr=3e-5)
    theirs = (get_linear_schedule_with_warmup(optimiser, int(warmup * steps), steps) if schedule == "linear"
              else get_constant_schedule_with_warmup(optimiser, warmup))
    chosen = TrainingSettings(schedule=schedule, warmup=warmup, learning_rate=3e-5)
    for step in range(steps):
        assert learning_rate(step, steps, chosen) == pytest.approx(theirs.get_last_lr()[0], abs=1e-15)
        optimiser.step()
        theirs.step()


def test_piecewise_rates_are_those_of_tensorflow():
    """Contrastive Tension's: PiecewiseConstantDecay holds a value up to and with its boundary, counted from 0."""
    boundaries, values = (500, 1000, 1500, 2000), (1e-5, 8e-6, 6e-6, 4e-6, 2e-6)
    settings = TrainingSettings(learning_rate=values[0], schedule="piecewise", rates=values[1:],
                                milestones=[each + 1 for each in boundaries])
    for step in range(5000):
        expected = next((rate for end, rate in zip(boundaries, values, strict=False) if step <= end), values[-1])
        assert learning_rate(step, 10, settings) == expected  # steps are absolute
    warmed = TrainingSettings(learning_rate=8.0, schedule="piecewise", warmup=4, milestones=(5,), rates=(1.0,))
    assert [learning_rate(step, 9, warmed) for step in range(7)] == [0, 2, 4, 6, 8, 1, 1]


@pytest.mark.parametrize(("steps", "share"), [(1, 0.1), (7, 0.25), (99, 0)])
def test_slanted_rates_are_those_of_ulmfit(steps, share):
    """Eq. 3: cut = floor(T share), p = t / cut, then 1 - (t - cut) / (T - cut); rate (1 + p 31) / 32; t from 1, as AllenNLP
    counts."""
    cut, settings = int(steps * share), TrainingSettings(learning_rate=5e-5, schedule="slanted", warmup=share)
    for step in range(steps):
        t = step + 1
        p = t / cut if t < cut else 1 - (t - cut) / (steps - cut)
        assert learning_rate(step, steps, settings) == pytest.approx(5e-5 * (1 + p * 31) / 32, rel=1e-12)
    assert learning_rate(cut, steps, settings.model_copy(update={"warmup": cut})) == learning_rate(cut, steps, settings)


@pytest.mark.parametrize(("warmup", "meant", "steps", "epochs", "expected"), [
    (1000, "epochs", 4, 10_000, 1), (1000, "epochs", 2000, 10_000, 200), (1000, 5000, 500, 10_000, 100),
    (1000, 5000, 500, 2500, 200),  # the epochs ended before the recipe's max_steps
    (1000, None, 500, 10_000, 1000), (1000, "epochs", 10_000, 10_000, 1000), (0.1, "epochs", 40, 400, 0.1),
    (0, "epochs", 40, 400, 0)])
def test_a_warm_up_is_shortened_by_the_same_proportion_as_the_run(warmup, meant, steps, epochs, expected):
    settings = TrainingSettings(warmup=warmup, learning_rate=5e-5).model_copy(update={"warmup_of": meant})
    effective = shortened_warmup(settings, steps, epochs)
    assert effective == expected
    if expected < steps:
        shortened = settings.model_copy(update={"warmup": effective})
        rates = [learning_rate(step, steps, shortened) for step in range(steps)]
        assert rates.index(max(rates)) == int(effective if effective >= 1 else effective * steps)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    yield from cached_place(tmp_path_factory.mktemp("place"))


def scaled(place, monkeypatch, folder, steps, infinite, **more):
    """(loops, log) of a run with torch's own scaler, which acts on a CPU as it does on a GPU; the gradient of some steps is
    infinite."""
    loops, make, check, begin = [], run.make_accelerator, loop.check_terms, loop.Loop.__init__

    def made(*arguments):
        accelerator = make(*arguments)
        accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
        return accelerator

    def terms(method, values):
        check(method, values)
        if loops[-1]._done + 1 in infinite:  # the loss is finite, and its gradient is not
            weight = loops[-1].weights[0]
            term = next(iter(values.values()))
            term.value = term.value + (weight.sum() - weight.sum().detach()) * 1e38
        return values

    def noted(this, *arguments, **named):
        begin(this, *arguments, **named)
        loops.append(this)

    monkeypatch.setattr(run, "make_accelerator", made)
    monkeypatch.setattr(loop, "check_terms", terms)
    monkeypatch.setattr(loop.Loop, "__init__", noted)
    recipe = recipe_of(place, "sbert-triplet", **{
        "training.max_steps": steps, "training.epochs": 9.0, "checkpoint_every": steps, "selection.by": "none",
        "selection.every": 99, **more})
    return loops, train(recipe, folder, place, device="cpu")[1]


@pytest.mark.parametrize("optimiser", [
    {"training.adam": "transformers"}, {"training.optimizer": "rmsprop", "training.rho": 0.9, "training.adam": "torch"}])
def test_they_are_counted_and_not_taken(place, tmp_path, monkeypatch, optimiser):
    (only,), log = scaled(place, monkeypatch, tmp_path / "run", 5, {2, 3}, **optimiser)
    assert [line["skipped_steps"] for line in log if line["kind"] == "train"] == [2]
    assert loop.steps_taken(only.optimiser) == 3
    assert only.settings.adam == "torch" or only._taken + only._done - int(only._all_skipped) == 3


def test_ten_in_a_row_end_the_run(place, tmp_path, monkeypatch):
    with pytest.raises(StsbenchError, match="float16 overflowed in each of the 10 steps"):
        scaled(place, monkeypatch, tmp_path / "run", 11, set(range(1, 11)))
    assert [json.loads(line)["kind"] for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()] == ["start"]


# --- the mean of weights over steps ---
TEXTS = ["the man sits", "a dog runs in the park"]


def by_hand(weights, settings, steps):
    """weights: name -> tensor, after each step."""
    after = int(settings.after * steps) if settings.after < 1 else settings.after
    taken = [each for step, each in enumerate(weights, start=1) if step > after and step % settings.every == 0]
    mean = {name: value.double().clone() for name, value in taken[0].items()}
    for later in taken[1:] if settings.decay is not None else ():
        for name, value in later.items():
            mean[name] = settings.decay * mean[name] + (1 - settings.decay) * value.double()
    if settings.decay is None:
        mean = {name: sum(each[name].double() for each in taken) / len(taken) for name in mean}
    return mean, len(taken)


@pytest.mark.parametrize("settings", [
    {}, {"decay": 0.6, "after": 2}, {"decay": None}, {"decay": None, "after": 0.5, "every": 3}, {"decay": 0.9, "every": 2}])
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


@pytest.mark.parametrize(("name", "more"), [
    ("simcse-lora", {"training.average.decay": 0.5, "selection.by": "none"}),
    ("sarcse", {"training.average.decay": None, "training.average.every": 2})])  # a pooler that is learnt
def test_the_mean_is_scored_kept_and_exported(place, tmp_path, monkeypatch, name, more):
    """Beside the trained weights after each step and the vectors of each scored encoder."""
    history, scored, update, score = [], [], Average.update, Selection.__call__

    def updated(self, step):
        history.append({name: weight.detach().clone() for name, weight in zip(self._names, self._weights, strict=True)})
        update(self, step)

    def scoring(self, method, trained=False):
        scored.append(live_encoder(method.inference(), "scored").encode(TEXTS))
        return score(self, method, trained)

    monkeypatch.setattr(Average, "update", updated)
    monkeypatch.setattr(Selection, "__call__", scoring)
    recipe = recipe_of(place, name, **{"training.max_steps": 4, "training.epochs": 9, "selection.every": 1, **more})
    summary, log = train(recipe, tmp_path / "run", place)
    devs, best = [line for line in log if line["kind"] == "dev"], summary["best"]
    last = best["step"] if best else 4
    mean, count = by_hand(history[:last], recipe.training.average, 4)
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
            sum(1 for step in range(1, done + 1) if step in Average(trained, recipe.training.average, 4)._steps)
            for done in range(1, 5))]
        assert not any(line["best"] for line in devs if not line["averaged"])
    assert log[-1]["averaged"] == by_hand(history, recipe.training.average, 4)[1]
