"""What a method makes of an option: loss and gradients of the first batch of each stage, and the encoder that is tested."""

import shutil
from contextlib import ExitStack
from typing import Literal, get_args, get_origin
from unittest import mock

import numpy as np
import torch
from method_runs import recipe_of

from stsbench.errors import StsbenchError
from stsbench.training.engine.loop import Loop
from stsbench.training.engine.selection import live_encoder
from stsbench.training.modules.backbone import set_chunk
from stsbench.training.recipes.methods import options_class
from stsbench.training.runs import prepare, run
from stsbench.training.runs.options import TrainOptions

TEXTS = ["cat", "the man runs .", "blue dog"]


class _Seen(Exception):  # noqa: N818
    """The training is not begun."""


def others(method, chosen):
    """option -> values that it may have besides that of `chosen`, by the kinds of its annotation."""
    values = {}
    for name, field in options_class(method).model_fields.items():
        value, kind = chosen[name], field.annotation
        kinds = [kind, *get_args(kind)] if get_origin(kind) is not Literal else [kind]
        values[name] = [each for kind in kinds if get_origin(kind) is Literal for each in get_args(kind)]
        if bool in kinds:
            values[name] += [True, False]
        elif int in kinds:
            values[name] += [value + 1, max(value - 1, 1)] if value is not None else [3]
        elif float in kinds:
            values[name] += [value / 2, value + 0.3, value * 3] if value else [0.3]
        values[name] = [each for each in values[name] if each != value or type(each) is not type(value)]
    return values


def effect(place, folder, name, changes, tested=True):
    """What a run of `name` in method_runs with these changes begins with; an error where it is refused. tested: with the
    vectors of the encoders that are tested and selected by, which take as long as all else."""
    seen = []

    def look(prepared, callback):
        seen.append(repr([*_first_steps(prepared), *(_tested(prepared.method) if tested else ())]))
        raise _Seen

    shutil.rmtree(folder, ignore_errors=True)
    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(run, "_train_stages", look))
        for name_of_check in ("try_export", "_check_first_state"):
            patches.enter_context(mock.patch.object(prepare, name_of_check, lambda *given: None))
        try:
            recipe = recipe_of(place, name, **changes)
            run.train(TrainOptions(recipe=recipe, output=folder, device="cpu", data_dir=place / "data"), lambda line: None)
        except _Seen:
            return seen[0]
        except StsbenchError as error:
            return error


def _first_steps(prepared):
    method, steps = prepared.method, []
    for stage in prepared.stages:
        method.gather_mode = stage.settings.gather
        set_chunk(method, stage.settings.chunk)
        prepared.objective.start_stage(stage.name)
        loop = Loop.__new__(Loop)
        loop.stage, loop.recipe, loop.accelerator = stage, prepared.recipe, prepared.accelerator
        loop.method, loop.objective = method, prepared.objective
        torch.manual_seed(3)
        prepared.objective.train()
        terms = prepared.objective(loop._batch(stage.batches.step(0)[0], 0, 0))
        prepared.objective.zero_grad()
        sum(term.weight * term.value for term in terms.values()).backward()
        steps.append((stage.name, stage.labelled_only))
        steps.append({name: (term.weight, term.value.item(), term.count) for name, term in terms.items()})
        steps.append([(name, None if weight.grad is None else float(weight.grad.norm()))
                      for name, weight in method.named_parameters() if weight.requires_grad])
        steps.append((method.rates(), sorted(method.candidates())))
    return steps


def _tested(method):
    method.eval()
    with torch.no_grad():
        vectors = [np.round(live_encoder(each, "live").encode(TEXTS), 6).tolist()
                   for each in (method.inference(), method.dev_inference())]
        return vectors, sorted(method.diagnose())
