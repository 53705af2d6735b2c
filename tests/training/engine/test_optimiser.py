"""AdamW with either epsilon and without bias correction, against plain transcriptions in float64."""

import math

import numpy as np
import pytest
import torch

from stsbench.training.engine.optimiser import make_optimiser, set_step, steps_taken
from stsbench.training.recipes.sections import TrainingSettings

SHAPE = (3, 4)
RNG = np.random.default_rng(5)
# from 1e-9 to 1: beside small gradients epsilon is large
GRADIENTS = RNG.standard_normal((50, *SHAPE)) * 10.0 ** RNG.integers(-9, 1, SHAPE)


def transformers_4(weight, gradients, rates, settings):
    """transformers 4.2.1, optimization.py, AdamW.step with correct_bias."""
    (beta1, beta2), mean, square = settings.betas, np.zeros(SHAPE), np.zeros(SHAPE)
    for number, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        mean = mean * beta1 + (1 - beta1) * gradient
        square = square * beta2 + (1 - beta2) * gradient**2
        denominator = np.sqrt(square) + settings.epsilon
        step_size = rate * math.sqrt(1 - beta2**number) / (1 - beta1**number)
        weight = weight - step_size * mean / denominator
    return weight


def kingma_and_ba(weight, gradients, rates, settings):
    """Algorithm 1: epsilon is added to the root of the corrected second moment."""
    (beta1, beta2), mean, square = settings.betas, np.zeros(SHAPE), np.zeros(SHAPE)
    for number, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        mean = mean * beta1 + (1 - beta1) * gradient
        square = square * beta2 + (1 - beta2) * gradient**2
        corrected = np.sqrt(square / (1 - beta2**number)) + settings.epsilon
        weight = weight - rate * mean / (1 - beta1**number) / corrected
    return weight


def first_bert(weight, gradients, rates, settings):
    """google-research/bert, optimization.py, AdamWeightDecayOptimizer; its decay moved before the step, as torch's is."""
    (beta1, beta2), mean, square = settings.betas, np.zeros(SHAPE), np.zeros(SHAPE)
    for gradient, rate in zip(gradients, rates, strict=True):
        weight = weight - rate * settings.weight_decay * weight
        mean = mean * beta1 + (1 - beta1) * gradient
        square = square * beta2 + (1 - beta2) * gradient**2
        weight = weight - rate * mean / (np.sqrt(square) + settings.epsilon)
    return weight


def stepped(module, optimiser, settings, gradients, rates):
    for gradient, rate in zip(gradients, rates, strict=True):
        set_step(optimiser, rate, steps_taken(optimiser), settings)
        module.weight.grad = torch.from_numpy(gradient)
        optimiser.step()
    return module.weight.detach().numpy()


def made(settings):
    torch.manual_seed(1)
    module = torch.nn.Linear(SHAPE[1], SHAPE[0], bias=False).double()
    return module, make_optimiser(module, settings)


RATES = np.linspace(1e-2, 1e-4, 50)


@pytest.mark.parametrize(("adam", "oracle"), [("transformers", transformers_4), ("torch", kingma_and_ba)])
def test_fifty_steps(adam, oracle):
    settings = TrainingSettings(adam=adam, learning_rate=1e-2)
    module, optimiser = made(settings)
    want = oracle(module.weight.detach().numpy().copy(), GRADIENTS, RATES, settings)
    got = stepped(module, optimiser, settings, GRADIENTS, RATES)
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-14)
    other = {transformers_4: kingma_and_ba, kingma_and_ba: transformers_4}[oracle]
    module, _ = made(settings)
    assert np.abs(other(module.weight.detach().numpy(), GRADIENTS, RATES, settings) - want).max() > 1e-3


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_fifty_steps_without_bias_correction(decay):
    settings = TrainingSettings(adam="uncorrected", epsilon=1e-6, weight_decay=decay, learning_rate=1e-2)
    module, optimiser = made(settings)
    want = first_bert(module.weight.detach().numpy().copy(), GRADIENTS, RATES, settings)
    np.testing.assert_allclose(stepped(module, optimiser, settings, GRADIENTS, RATES), want, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("adam", ["transformers", "uncorrected"])
def test_a_resumed_optimiser_counts_on(adam):
    settings = TrainingSettings(adam=adam, weight_decay=0.1, learning_rate=1e-2)
    module, optimiser = made(settings)
    assert steps_taken(optimiser) == 0
    whole = stepped(module, optimiser, settings, GRADIENTS, RATES).copy()
    module, optimiser = made(settings)
    stepped(module, optimiser, settings, GRADIENTS[:20], RATES[:20])
    again, resumed = made(settings)
    again.load_state_dict(module.state_dict())
    resumed.load_state_dict(optimiser.state_dict())
    assert steps_taken(resumed) == 20
    assert (stepped(again, resumed, settings, GRADIENTS[20:], RATES[20:]) == whole).all()


def test_recipes_of_papers_and_new_ones():
    assert TrainingSettings().adam == "torch"


def test_which_weights_decay():
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.LayerNorm(2))
    decays = {}
    for which in ("matrices", "all"):
        optimiser = make_optimiser(module, TrainingSettings(weight_decay=0.1, weight_decay_on=which))
        of = {id(weight): group["weight_decay"] for group in optimiser.param_groups for weight in group["params"]}
        decays[which] = [of[id(weight)] for weight in module.parameters()]
    assert decays == {"matrices": [0.1, 0, 0, 0], "all": [0.1] * 4}
