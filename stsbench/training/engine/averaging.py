"""The mean of a stage's weights over its steps (training.average), which torch.optim.swa_utils computes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, get_swa_avg_fn

from stsbench.errors import StsbenchError
from stsbench.training.recipes.sections import AverageSettings

_COUNT = "n_averaged"  # as torch calls it; stored beside the weights


class Average:
    """The mean of a method's trainable weights after those steps of a stage that `settings` name.

    Buffers and weights that are not trained are those of the moment; of backbone.lora the factors are averaged.
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
        """Return of how many steps' weights this is the mean, 0 before the first."""
        return int(self._mean.n_averaged)

    def update(self, step: int) -> None:
        """Take in the weights after a step, if it is one of those that are averaged."""
        if step in self._steps:
            self._mean.update_parameters(self._weights)

    def swap(self) -> None:
        """Exchange the method's weights for the mean, or back. Nothing before the first step that is averaged."""
        if self.count:
            for weight, mean in zip(self._weights, self._mean.parameters(), strict=True):
                weight.data, mean.data = mean.data, weight.data

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """Within, the method's weights are the mean."""
        self.swap()
        try:
            yield
        finally:
            self.swap()

    def state(self) -> dict[str, torch.Tensor]:
        """Return the mean by the names of the method's weights, and how many steps it is of."""
        means = dict(zip(self._names, self._mean.parameters(), strict=True))
        return {_COUNT: self._mean.n_averaged, **{name: mean.detach() for name, mean in means.items()}}

    def load(self, state: dict[str, torch.Tensor]) -> None:
        """Go on from what `state` returned."""
        self._mean.n_averaged.copy_(state[_COUNT])
        with torch.no_grad():
            for name, mean in zip(self._names, self._mean.parameters(), strict=True):
                mean.copy_(state[name])


def averaged_steps(settings: AverageSettings, steps: int) -> range:
    """Return those of a stage's steps, from 1, after which the weights are averaged. StsbenchError for fewer than two."""
    after = int(settings.after * steps if settings.after < 1 else settings.after)
    averaged = range(after - after % settings.every + settings.every, steps + 1, settings.every)
    if len(averaged) < 2:
        raise StsbenchError(
            f"training.average takes {len(averaged)} of the {steps} steps, and a mean needs two: lower after or every, or "
            "train longer"
        )
    return averaged
