"""Which stages of a method run, and the steps that their learning-rate schedules count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stsbench.errors import StsbenchError
from stsbench.registry import did_you_mean
from stsbench.training.engine.stage import Stage
from stsbench.training.recipes.method_plan import MethodPlan
from stsbench.training.recipes.recipe import Recipe


def stage_name(plan: MethodPlan, stage: str | int | None) -> str | None:
    """The name of a stage given as a number from 1 or by name; None, all stages, for None. Raises StsbenchError."""
    stages = plan.stages
    if stage is None or stage in stages:
        return None if stage is None else str(stage)
    if str(stage).isdecimal():
        if 1 <= int(stage) <= len(stages):
            return stages[int(stage) - 1]
        raise StsbenchError(f"--stage {stage}: {plan.name} has {len(stages)} of them: {', '.join(stages)}")
    raise StsbenchError(f"--stage {stage}: {plan.name} has no such stage{did_you_mean(str(stage), stages)}")


def counted_stages(recipe: Recipe, plan: MethodPlan, running: Sequence[str]) -> list[str]:
    """The stages whose steps the schedules of the running ones count (training.schedule_of). StsbenchError for others."""
    for name in plan.stages:
        other = recipe.stage_training(name).schedule_of
        if other is not None and other not in plan.stages:
            hint = did_you_mean(other, plan.stages)
            raise StsbenchError(f"training.schedule_of {other} of stage {name}: {plan.name} has no such stage{hint}")
    return [other for name in running if (other := recipe.stage_training(name).schedule_of) is not None]


def set_schedules(stages: Mapping[str, Stage], running: Sequence[str]) -> None:
    """Let the running stages' schedules count the steps of the stages they name. Raises StsbenchError where a stage would
    be trained on at a rate of 0."""
    for name in running:
        stage = stages[name]
        other = stage.settings.schedule_of
        if other is None:
            continue
        steps, stage.schedule = stage.batches.steps, stages[other].batches.steps
        if stage.settings.schedule == "linear" and steps > stage.schedule:
            raise StsbenchError(
                f"training.schedule_of {other}: the learning rate of stage {name} is 0 after the {stage.schedule} steps of "
                f"stage {other}, and it has {steps}: set stages.{name}.training.max_steps={stage.schedule}, or less"
            )
