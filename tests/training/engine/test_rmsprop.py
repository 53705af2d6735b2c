"""RMSprop as torch and as TensorFlow have it, against plain transcriptions in float64; step schedules; resuming."""

import numpy as np
import pytest
import tiny_models
import torch
import training_runs
from training_runs import log_of, one_thread, train, weights_of

from stsbench.training.engine.optimiser import learning_rate, make_optimiser, set_step, steps_taken
from stsbench.training.recipes.sections import TrainingSettings

__all__ = ["one_thread"]
SHAPE = (3, 4)
STEPS = 30
RNG = np.random.default_rng(7)
GRADIENTS = RNG.standard_normal((STEPS, *SHAPE)) * 10.0 ** RNG.integers(-8, 1, SHAPE)  # beside small ones epsilon is large
RATES = np.linspace(1e-2, 1e-4, STEPS)
TORCH = {"optimizer": "rmsprop", "rho": 0.99, "epsilon": 1e-8}
TENSORFLOW = {"optimizer": "rmsprop", "rho": 0.9, "epsilon": 1e-7}


def torchs(weight, gradients, rates, decay=0.0):
    """torch/optim/rmsprop.py, _single_tensor_rmsprop, with its defaults."""
    alpha, eps = 0.99, 1e-8
    square_avg = np.zeros(SHAPE)
    for gradient, rate in zip(gradients, rates, strict=True):
        gradient = gradient + decay * weight
        square_avg = alpha * square_avg + (1 - alpha) * gradient * gradient
        average = np.sqrt(square_avg) + eps
        weight = weight - rate * gradient / average
    return weight


def tensorflows(weight, gradients, rates):
    """keras/optimizer_v2/rmsprop.py, _resource_apply_dense without momentum, with the defaults of tf.optimizers.RMSprop."""
    rho, epsilon = 0.9, 1e-7
    rms = np.zeros(SHAPE)
    for gradient, rate in zip(gradients, rates, strict=True):
        rms = rho * rms + (1 - rho) * gradient * gradient
        weight = weight - rate * gradient / (np.sqrt(rms) + epsilon)
    return weight


def made(settings):
    torch.manual_seed(1)
    module = torch.nn.Linear(SHAPE[1], SHAPE[0], bias=False).double()
    return module, make_optimiser(module, settings)


def stepped(module, optimiser, settings, gradients=GRADIENTS, rates=RATES):
    for gradient, rate in zip(gradients, rates, strict=True):
        set_step(optimiser, rate, steps_taken(optimiser), settings)
        module.weight.grad = torch.from_numpy(gradient)
        optimiser.step()
    return module.weight.detach().numpy()


@pytest.mark.parametrize(("values", "oracle"), [(TORCH, torchs), (TENSORFLOW, tensorflows)])
def test_many_steps(values, oracle):
    settings = TrainingSettings(**values)
    module, optimiser = made(settings)
    start = module.weight.detach().numpy().copy()
    got = stepped(module, optimiser, settings)
    assert np.abs(got - oracle(start, GRADIENTS, RATES)).max() < 1e-12
    other = {torchs: tensorflows, tensorflows: torchs}[oracle]
    assert np.abs(got - other(start, GRADIENTS, RATES)).max() > 1e-2


def test_the_first_step_of_torchs_is_three_times_as_long():
    """1 / sqrt(1 - rho): 10 rates, where TensorFlow's is 3.16."""
    lengths = []
    for values in (TORCH, TENSORFLOW):
        settings = TrainingSettings(**values)
        module, optimiser = made(settings)
        start = module.weight.detach().numpy().copy()
        lengths.append(np.abs(stepped(module, optimiser, settings, np.ones((1, *SHAPE)), [1e-3]) - start).mean())
    assert lengths == pytest.approx([1e-2, 1e-3 / np.sqrt(0.1)], rel=1e-5)


def test_weight_decay_is_added_to_the_gradient():
    settings = TrainingSettings(**TORCH, weight_decay=0.3)
    module, optimiser = made(settings)
    want = torchs(module.weight.detach().numpy().copy(), GRADIENTS, RATES, decay=0.3)
    assert np.abs(stepped(module, optimiser, settings) - want).max() < 1e-12


def test_steps_of_a_piecewise_schedule():
    """Contrastive Tension's: TensorFlow's PiecewiseConstantDecay holds a value up to and with its boundary, from 0."""
    settings = TrainingSettings(
        learning_rate=1e-5, schedule="piecewise", milestones=(501, 1001, 1501, 2001), rates=(8e-6, 6e-6, 4e-6, 2e-6)
    )

    def tensorflow(step):
        for boundary, value in zip((500, 1000, 1500, 2000), (1e-5, 8e-6, 6e-6, 4e-6), strict=True):
            if step <= boundary:
                return value
        return 2e-6

    assert [learning_rate(step, 5000, settings) for step in range(5000)] == [tensorflow(step) for step in range(5000)]
    assert learning_rate(700, 10, settings) == 8e-6  # steps are absolute


def test_warm_up_before_a_constant_rate_and_before_milestones():
    constant = TrainingSettings(learning_rate=8.0, schedule="constant", warmup=4)
    assert [learning_rate(step, 9, constant) for step in range(6)] == [0, 2, 4, 6, 8, 8]
    steps = TrainingSettings(learning_rate=8.0, schedule="piecewise", warmup=4, milestones=(5,), rates=(1.0,))
    assert [learning_rate(step, 9, steps) for step in range(7)] == [0, 2, 4, 6, 8, 1, 1]


def test_killed_and_resumed_is_the_same_run(tmp_path):
    """Beyond a milestone, with a mean square from before the kill."""
    values = training_runs.settings(
        tiny_models.build(tmp_path / "tiny", pooler=False), training_runs.make_text(tmp_path),
        **{"training.optimizer": "rmsprop", "training.rho": 0.9, "training.epsilon": 1e-7, "training.adam": "torch",
           "training.learning_rate": 1e-4, "training.schedule": "piecewise", "training.milestones": [4, 8],
           "training.rates": [5e-5, 2e-5], "selection.by": "none"},
    )
    assert train(tmp_path / "whole", values) == (0, None)
    assert train(tmp_path / "run", values, kill=("step", 6)) == (-9, None)
    assert train(tmp_path / "run", values, resume=True) == (0, None)
    assert weights_of(tmp_path / "run") == weights_of(tmp_path / "whole")
    assert log_of(tmp_path / "run") == log_of(tmp_path / "whole")
    rates = {line["step"]: line["learning_rate"] for line in log_of(tmp_path / "run") if line["kind"] == "train"}
    assert (rates[3], rates[6], rates[12]) == (1e-4, 5e-5, 2e-5)
