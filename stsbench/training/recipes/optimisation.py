"""Which settings of an optimiser and its schedule go together: what would have no effect is refused. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from stsbench.errors import StsbenchError
from stsbench.rules import recipe_value
from stsbench.training.recipes.sections import TrainingSettings


def check_optimisation(settings: TrainingSettings, where: str, section: str) -> None:
    """Raises StsbenchError, one line beginning with `where`, for the first setting of a stage that does not fit the rest.

    section: the dotted key that the settings stand below, e.g. "training". They are those of the whole stage: what it takes
    over from the recipe's `training` counts, too.
    """
    try:
        _check_optimizer(settings)
        _check_schedule(settings)
    except StsbenchError as error:
        raise StsbenchError(f"{where}: {section}.{error}") from error


def _check_optimizer(settings: TrainingSettings) -> None:
    if not settings.weight_decay:
        _refuse(settings, ("weight_decay_on",), "weight_decay is 0")
    if settings.optimizer == "rmsprop":
        _refuse(settings, ("betas", "adam"), "optimizer rmsprop has neither")
        if settings.rho is None:
            raise StsbenchError(
                "optimizer rmsprop needs rho: torch's default is 0.99 (epsilon 1e-8), TensorFlow's 0.9 (1e-7)"
            )
    else:
        _refuse(settings, ("rho",), f"it is of optimizer rmsprop, not of {settings.optimizer}")


def _check_schedule(settings: TrainingSettings) -> None:
    steps, rates = settings.milestones, settings.rates
    if settings.schedule != "piecewise":
        _refuse(settings, ("milestones", "rates"), f"it is of schedule piecewise, not of {settings.schedule}")
        return
    if not steps or len(steps) != len(rates):
        raise StsbenchError(
            f"schedule piecewise needs as many milestones as rates, one at least: there are {len(steps)} and {len(rates)}"
        )
    if steps[0] < 1 or any(later <= step for step, later in pairwise(steps)):
        raise StsbenchError(f"milestones {recipe_value(steps)} must be rising numbers of steps, from 1")
    if min(rates) < 0:
        raise StsbenchError(f"rates {recipe_value(rates)} must be 0 or above")
    if 0 < settings.warmup < 1:
        raise StsbenchError(f"warmup {settings.warmup:g} is a share of all steps, and milestones are steps: give steps")
    if steps[0] < settings.warmup:
        raise StsbenchError(f"milestones {recipe_value(steps)} begin within the warmup of {settings.warmup:g} steps")
    _refuse(settings, ("schedule_of",), "the milestones of schedule piecewise are steps, whatever their number")


def _refuse(settings: TrainingSettings, names: Sequence[str], why: str) -> None:
    for name in names:
        value, default = getattr(settings, name), TrainingSettings.model_fields[name].default
        if value != default:
            raise StsbenchError(f"{name} {recipe_value(value)} has no effect: {why}; leave it at {recipe_value(default)}")
