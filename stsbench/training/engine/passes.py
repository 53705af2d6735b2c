"""The forward passes of a step: a check that the two views of a row differ, as they do not without dropout; weights of
passes under training.accumulate, by which they have the gradient of a single pass; and gradient checkpointing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from accelerate import Accelerator
from torch import nn

from stsbench.encoders.forward.model import dropout_rates
from stsbench.errors import EncoderError, StsbenchError
from stsbench.registry import calling, where
from stsbench.torch_random import checkpointed, forked
from stsbench.training.api.batch import Batch, Term
from stsbench.training.api.method import Method
from stsbench.training.modules.backbone import Backbone
from stsbench.training.recipes.recipe import Recipe

_SAME = 1e-5  # vectors nearer than this share of their length are equal: rounding depends on the place in the batch
ROWS = ""  # the key of the number of rows, which is the count of most terms


def check_two_views(method: Method, recipe: Recipe, batch: Batch, accelerator: Accelerator, stage: str) -> None:
    """Raise StsbenchError, with the reason, if the first two views of every row have equal vectors.

    A recipe with backbone.dropout 0 is not checked: equal vectors are intended (SimCSE's ablation of dropout). The method
    and the random states are left unchanged.
    """
    if batch.views < 2 or batch.labelled_only or recipe.backbone.dropout == 0:
        return
    n = len(batch)
    equal = torch.equal(batch.ids[:n], batch.ids[n : 2 * n]) and torch.equal(batch.mask[:n], batch.mask[n : 2 * n])
    if not everywhere(equal, accelerator):  # all processes have to agree, as `view_vectors` may need every one of them
        return
    if everywhere(_one_vector(method, batch), accelerator):
        reason = why(recipe, method.backbone)
        raise StsbenchError(f"the two views of a sentence are one vector at step 1 of stage {stage}: {reason}")


def why(recipe: Recipe, backbone: Backbone) -> str:
    """Return why a backbone has no dropout, and what to change, for an error."""
    model, rate, config = recipe.backbone.model, recipe.backbone.dropout, backbone.model.config
    rates = dropout_rates(config)
    if not rates:
        return f"no dropout setting of {model} ({config.model_type}) is known: choose another backbone"
    if rate is None and not any(rates.values()):
        return f"{model} has no dropout ({', '.join(rates)} 0): set backbone.dropout, e.g. --set backbone.dropout=0.1"
    settings = ", ".join(f"{key} {value:g}" for key, value in rates.items())
    return f"the dropout of {model} ({settings}) has no effect: choose another backbone"


def _one_vector(method: Method, batch: Batch) -> bool:
    buffers = {name: buffer.clone() for name, buffer in method.named_buffers()}
    try:
        # float32, as rounding to 16 bits may change rows by as much as a low dropout rate
        with forked(), torch.no_grad(), torch.autocast(batch.ids.device.type, enabled=False):
            views = calling(type(method), "view_vectors", lambda: method.view_vectors(batch))
    finally:
        for name, buffer in method.named_buffers():
            buffer.copy_(buffers[name])
    if views is None:
        return False
    first, second = views
    return bool(((first - second).norm(dim=1) <= _SAME * first.norm(dim=1)).all())


def everywhere(value: bool, accelerator: Accelerator) -> bool:
    """Return whether `value` is true in every process."""
    if accelerator.num_processes == 1:
        return value
    vote = torch.tensor(float(value), device=accelerator.device)
    return bool(accelerator.reduce(vote, "sum") == accelerator.num_processes)


def part_shares(
    counts: Sequence[Mapping[str, int]], reduce: Callable[[torch.Tensor], torch.Tensor] | None = None
) -> list[dict[str, float]]:
    """Return weights of terms for each forward pass: a term's count over its mean count in the passes that have it. counts:
    for each pass, in this process, what `Method.counts` returned by the terms' names, and the number of rows under ROWS.

    The mean of a term's values times these weights is its mean over all items of a step. Equal counts give exactly 1.
    reduce: sums a tensor over the processes, if there are several.
    """
    names = sorted({name for counted in counts for name in counted})
    table = torch.tensor([[float(counted.get(name, 0)) for name in names] for counted in counts])
    totals = (table if reduce is None else reduce(table)).tolist()
    shares: list[dict[str, float]] = [{} for _ in counts]
    for column, name in enumerate(names):
        passes = [number for number, counted in enumerate(counts) if name in counted]
        total = sum(totals[number][column] for number in passes)
        for number in passes:
            shares[number][name] = len(passes) * totals[number][column] / total if total else 1.0
    return shares


class CountCheck:
    """A check that counts of terms are proportional to those known before the passes, by which terms are weighted."""

    def __init__(self, method: Method) -> None:
        self.method = method
        self._first: dict[str, tuple[int, tuple[int, ...]]] = {}  # term -> its count in a first pass, and the known counts

    def __call__(self, terms: Mapping[str, Term], counts: Mapping[str, int], batch: Batch) -> None:
        """Check the terms of a pass. Raises StsbenchError for a term whose count is not proportional to the known count."""
        for name, term in terms.items():
            # with training.gather simcse a process has the loss of all rows
            known = (counts[name],) if name in counts else (len(batch), batch.shares.total)
            first, first_known = self._first.setdefault(name, (term.count, known))
            if not any(term.count * before == first * now for before, now in zip(first_known, known, strict=False)):
                known_as = f"and counts(batch), or the rows, {first_known[0]} and {known[0]}"
                raise StsbenchError(
                    f"{where(type(self.method), 'counts')}: in two forward passes the term '{name}' counts {first} and "
                    f"{term.count} items, {known_as}: correct it, or set training.accumulate to 1"
                )


def checkpoint_layers(model: Any, name: str) -> None:
    """Switch on transformers' gradient checkpointing in `model`: layers are computed again in the backward pass instead of
    keeping their activations. Raises EncoderError, one line, if the model does not support it."""
    if not getattr(model, "supports_gradient_checkpointing", False):
        what = f"the layers of {name}, a {type(model).__name__}, cannot be computed again"
        raise EncoderError(f"backbone.gradient_checkpointing: {what}: set it to none")
    model.gradient_checkpointing_enable()


def draw_repeatedly(method: nn.Module, offload: bool = False) -> None:
    """Make transformers' gradient checkpointing draw the same dropout masks when it computes a layer again. offload: whether
    the states between layers are kept in the CPU's memory."""
    for part in method.modules():
        if getattr(part, "gradient_checkpointing", False):
            again = _offloaded if offload else checkpointed
            part._gradient_checkpointing_func = again  # type: ignore[assignment]  # no weight, and no module


def _offloaded(run: Callable[..., Any], *inputs: Any, **named: Any) -> Any:
    with torch.autograd.graph.save_on_cpu(pin_memory=torch.cuda.is_available()):
        return checkpointed(run, *inputs, **named)
