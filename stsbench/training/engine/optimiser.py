"""Optimisers: AdamW (Loshchilov and Hutter 2019) in the forms of torch, transformers' trainer and the first BERT, and
RMSprop (Hinton 2012); learning-rate schedules; and weight averaging (training.average), by torch.optim.swa_utils."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, get_swa_avg_fn

from stsbench.errors import StsbenchError
from stsbench.training.recipes.sections import AverageSettings, TrainingSettings

_RATIO = 32  # of the highest rate to the lowest in the slanted schedule


def make_optimiser(
    module: nn.Module, settings: TrainingSettings, rates: Mapping[str, float] | None = None
) -> torch.optim.Optimizer:
    """Return the optimiser training.optimizer of the trainable weights, without weight decay on biases and normalisation
    weights, unless training.weight_decay_on is "all". AdamW is fused where torch supports it.

    RMSprop: v = rho v + (1 - rho) g^2, and w = w - rate g / (sqrt(v) + epsilon), without momentum, v starting at 0. torch
    and TensorFlow 2 (tf.optimizers.RMSprop) both compute this, with other defaults of rho (0.99, 0.9) and epsilon (1e-8,
    1e-7). Weight decay, which TensorFlow lacks, is added to the gradient.
    rates: prefix of parameter names -> multiple of the learning rate, which `set_step` applies.
    """
    groups: dict[tuple[float, bool], list[nn.Parameter]] = {}
    for name, weight in module.named_parameters():
        if weight.requires_grad:
            plain = weight.ndim < 2 or name.endswith("bias") or "LayerNorm" in name
            plain &= settings.weight_decay_on == "matrices"
            factor = next((value for prefix, value in (rates or {}).items() if name.startswith(prefix)), 1.0)
            groups.setdefault((factor, plain), []).append(weight)
    parameters = [
        {"params": group, "weight_decay": 0.0 if plain else settings.weight_decay, "factor": factor}
        for (factor, plain), group in sorted(groups.items(), key=lambda item: item[0])
    ]
    if settings.optimizer == "rmsprop":
        assert settings.rho is not None  # a rule of recipes/sections.py
        return torch.optim.RMSprop(parameters, lr=settings.learning_rate, alpha=settings.rho, eps=settings.epsilon)
    weights = [weight for group in groups.values() for weight in group]
    fused = bool(weights) and all(weight.device.type in ("cpu", "cuda") for weight in weights)
    return torch.optim.AdamW(parameters, lr=settings.learning_rate, betas=settings.betas, eps=settings.epsilon, fused=fused)


def set_step(optimiser: torch.optim.Optimizer, rate: float, taken: int, settings: TrainingSettings) -> None:
    """Set each parameter group's learning rate, its multiple of `rate`, and training.adam's constants, before a step.

    taken: steps taken before, t - 1. torch divides by sqrt(v / (1 - beta2^t)) + eps. The AdamW that transformers had, and
    the papers' trainers used, divides by (sqrt(v) + eps) / sqrt(1 - beta2^t), which is torch's with eps / sqrt(1 -
    beta2^t): 32 times as large at the first step (beta2 .999), the same after some thousands. "uncorrected" is m / (sqrt(v)
    + eps) without any bias correction (transformers' correct_bias false): by the same epsilon, and a rate times
    (1 - beta1^t) / sqrt(1 - beta2^t), which weight decay is divided by. Two things stay torch's: weight decay comes before
    the step, not after it; and weights that have no gradient in some steps share the t of the others.
    """
    first, second = (1 - beta ** (taken + 1) for beta in settings.betas)
    epsilon = settings.epsilon if settings.adam == "torch" else settings.epsilon / math.sqrt(second)
    scale = first / math.sqrt(second) if settings.adam == "uncorrected" else 1.0
    for group in optimiser.param_groups:
        group["lr"], group["eps"] = rate * group.get("factor", 1.0) * scale, epsilon
        if group["weight_decay"]:
            group["weight_decay"] = settings.weight_decay / scale


class Overflow:
    """Detection of steps that are skipped because float16 overflowed.

    For such a step torch's GradScaler does not call `step` of most optimisers, which accelerate notices. A fused optimiser
    is called, with a tensor `found_inf` by which its kernel leaves the weights unchanged, and accelerate counts the step.
    """

    def __init__(self, optimiser: torch.optim.Optimizer) -> None:
        self._found_inf: torch.Tensor | None = None
        optimiser.register_step_pre_hook(self._note)

    def left_out(self, skipped: bool) -> int | torch.Tensor:
        """Return 1 if the last step was skipped, else 0; for a fused optimiser as a tensor, so as not to wait for the
        device.

        skipped: accelerate's `step_was_skipped`.
        """
        found_inf, self._found_inf = self._found_inf, None
        return int(skipped) if found_inf is None else found_inf.gt(0).int()

    def _note(self, optimiser: torch.optim.Optimizer, *_: object) -> None:
        self._found_inf = getattr(optimiser, "found_inf", None)


def steps_taken(optimiser: torch.optim.Optimizer) -> int:
    """Return how many steps an optimiser has taken, without those in which float16 overflowed."""
    return max((int(state["step"]) for state in optimiser.state.values() if "step" in state), default=0)


def learning_rate(step: int, steps: int, settings: TrainingSettings) -> float:
    """Return the learning rate of step `step` (from 0) of `steps`: a linear warm-up from 0, then linear decay to 0, a
    constant rate, or milestones.

    piecewise: rates[i] from step milestones[i] on, learning_rate before the first. slanted: the triangle of Howard and Ruder
    (2018), ULMFiT, Eq. 3, with ratio 32: from 1/32 of the rate up to it at the cut, and down to 1/32 at the last step; steps
    count from 1 and the cut, `warmup`, is rounded down, as in AllenNLP.
    """
    warmup = warmup_steps(steps, settings)
    if settings.schedule == "slanted":
        past = step + 1 - warmup
        height = 1 - past / max(1, steps - warmup) if past >= 0 else (step + 1) / warmup
        return settings.learning_rate * (1 + height * (_RATIO - 1)) / _RATIO
    if step < warmup:
        return settings.learning_rate * step / warmup
    if settings.schedule == "constant":
        return settings.learning_rate
    if settings.schedule == "piecewise":
        return (settings.learning_rate, *settings.rates)[bisect_right(settings.milestones, step)]
    return settings.learning_rate * (steps - step) / max(1, steps - warmup)


def warmup_steps(steps: int, settings: TrainingSettings) -> float:
    """Return how many of `steps` are the warm-up, of which training.warmup is the number or, below 1, the share."""
    share = 0 < settings.warmup < 1
    if settings.schedule == "slanted":
        return int(settings.warmup * steps if share else settings.warmup)
    return math.ceil(settings.warmup * steps) if share else settings.warmup


def shortened_warmup(settings: TrainingSettings, steps: int, steps_of_epochs: int) -> float:
    """Return training.warmup of a stage of `steps`: a number of steps is scaled down if max_steps shortened the recipe."""
    meant = settings.warmup_of
    if meant is None or settings.warmup < 1:
        return settings.warmup
    whole = steps_of_epochs if meant == "epochs" else min(meant, steps_of_epochs)
    return math.ceil(settings.warmup * steps / whole) if steps < whole else settings.warmup


_COUNT = "n_averaged"  # torch's name of the count, under which it is stored with the weights


class Average:
    """The mean of a method's trainable weights after the steps of a stage that `settings` select.

    Buffers and frozen weights are not averaged; with backbone.lora the low-rank factors are.
    """

    def __init__(self, method: nn.Module, settings: AverageSettings, steps: int) -> None:
        self._steps = averaged_steps(settings, steps)
        weights = {name: weight for name, weight in method.named_parameters() if weight.requires_grad}
        self._names, self._weights = list(weights), nn.ParameterList(weights.values())
        # torch's function of many weights at once rounds the uniform mean's 1 / n to float32
        self._mean = AveragedModel(self._weights, avg_fn=get_swa_avg_fn()) if settings.decay is None else AveragedModel(
            self._weights, multi_avg_fn=get_ema_multi_avg_fn(settings.decay)
        )

    @property
    def count(self) -> int:
        """Return how many steps the mean is over, 0 before the first."""
        return int(self._mean.n_averaged)

    def update(self, step: int) -> None:
        """Add the current weights to the mean, if `step` is one of the averaged steps."""
        if step in self._steps:
            self._mean.update_parameters(self._weights)

    def swap(self) -> None:
        """Exchange the method's weights and the mean. Does nothing before the first averaged step."""
        if self.count:
            for weight, mean in zip(self._weights, self._mean.parameters(), strict=True):
                weight.data, mean.data = mean.data, weight.data

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """Give the method the mean as its weights within the block."""
        self.swap()
        try:
            yield
        finally:
            self.swap()

    def state(self) -> dict[str, torch.Tensor]:
        """Return the mean by the names of the method's weights, and the number of steps it is over."""
        means = dict(zip(self._names, self._mean.parameters(), strict=True))
        return {_COUNT: self._mean.n_averaged, **{name: mean.detach() for name, mean in means.items()}}

    def load(self, state: dict[str, torch.Tensor]) -> None:
        """Restore a state that `state` returned."""
        self._mean.n_averaged.copy_(state[_COUNT])
        with torch.no_grad():
            for name, mean in zip(self._names, self._mean.parameters(), strict=True):
                mean.copy_(state[name])


def averaged_steps(settings: AverageSettings, steps: int) -> range:
    """Return the steps of a stage, from 1, whose weights are averaged. Raises StsbenchError for fewer than two."""
    after = int(settings.after * steps if settings.after < 1 else settings.after)
    averaged = range(after - after % settings.every + settings.every, steps + 1, settings.every)
    if len(averaged) < 2:
        raise StsbenchError(
            f"training.average takes {len(averaged)} of the {steps} steps, and a mean needs two: lower after or every, or "
            "train longer"
        )
    return averaged
