"""Before the first step: whether the two views of a row are two vectors. Without dropout they often are one."""

from __future__ import annotations

import torch
from accelerate import Accelerator

from stsbench.encoders.forward.dropout import dropout_rates
from stsbench.errors import StsbenchError
from stsbench.registry import calling
from stsbench.torch_random import forked
from stsbench.training.api.batch import Batch
from stsbench.training.api.method import Method
from stsbench.training.modules.backbone import Backbone
from stsbench.training.recipes.recipe import Recipe

_SAME = 1e-5  # of a vector's length: rounding, where one row stands elsewhere in the batch


def check_two_views(method: Method, recipe: Recipe, batch: Batch, accelerator: Accelerator, stage: str) -> None:
    """Raises StsbenchError, with the reason, where the first two views of every row are one vector.

    A recipe that says backbone.dropout 0 wants it so (SimCSE's ablation of dropout). Nothing of the method is changed, and
    no random number is drawn.
    """
    if batch.views < 2 or batch.labelled_only or recipe.backbone.dropout == 0:
        return
    n = len(batch)
    equal = torch.equal(batch.ids[:n], batch.ids[n : 2 * n]) and torch.equal(batch.mask[:n], batch.mask[n : 2 * n])
    if not _everywhere(equal, accelerator):  # texts that differ; what follows may need every process
        return
    if _everywhere(_one_vector(method, batch), accelerator):
        reason = why(recipe, method.backbone)
        raise StsbenchError(f"the two views of a sentence are one vector at step 1 of stage {stage}: {reason}")


def why(recipe: Recipe, backbone: Backbone) -> str:
    """What of dropout a backbone lacks, and what to do."""
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
        # float32: rounding to 16 bits may differ from row to row by as much as a little dropout
        with forked(), torch.no_grad(), torch.autocast(batch.ids.device.type, enabled=False):
            views = calling(type(method), "view_vectors", lambda: method.view_vectors(batch))
    finally:
        for name, buffer in method.named_buffers():
            buffer.copy_(buffers[name])
    if views is None:
        return False
    first, second = views
    return bool(((first - second).norm(dim=1) <= _SAME * first.norm(dim=1)).all())


def _everywhere(here: bool, accelerator: Accelerator) -> bool:
    """Whether it is so in every process."""
    if accelerator.num_processes == 1:
        return here
    vote = torch.tensor(float(here), device=accelerator.device)
    return bool(accelerator.reduce(vote, "sum") == accelerator.num_processes)
