"""Sharded training with FSDP2, by accelerate's own configuration: a sharded copy of the objective is trained, and the method
gets its whole weights back where they are read outside of a training pass."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.utils._pytree import register_pytree_node, tree_map

from stsbench.encoders.forward.model import list_of_layers
from stsbench.errors import StsbenchError
from stsbench.training.api.batch import Term
from stsbench.training.api.contrasting import NegativeQueue
from stsbench.training.api.method import Method
from stsbench.training.engine.objective import Around, Objective
from stsbench.training.modules.backbone import method_backbones

# Older versions of torch find tensors in a sharded pass's outputs by this; else they would not reduce the gradients.
register_pytree_node(Term, lambda term: ([term.value], (term.count, term.weight)), lambda values, rest: Term(*values, *rest))


def sharding() -> FullyShardedDataParallelPlugin | None:
    """Return accelerate's settings of FSDP, from `accelerate launch` or its file; None without FSDP.

    Two settings are replaced: every process reads the whole model first, and bf16 is by autocast, so that results are those
    without FSDP. Raises StsbenchError, one line, for settings that are not supported.
    """
    if os.environ.get("ACCELERATE_USE_FSDP", "false").lower() != "true":
        return None
    if os.environ.get("FSDP_VERSION", "1") != "2":
        raise StsbenchError("FSDP 1 is not supported: set fsdp_version to 2 (accelerate launch --fsdp_version 2)")
    try:
        plugin = FullyShardedDataParallelPlugin(
            cpu_ram_efficient_loading=False, mixed_precision_policy=MixedPrecisionPolicy()
        )
    except ValueError as error:
        raise StsbenchError(f"accelerate's settings of FSDP: {' '.join(str(error).split())}") from error
    if plugin.activation_checkpointing:
        raise StsbenchError("FSDP: its activation checkpointing draws other dropout masks where it computes a layer again: "
                            "leave it out, and set backbone.gradient_checkpointing to layers")
    return plugin


def set_sharding(accelerator: Accelerator, plugin: FullyShardedDataParallelPlugin) -> None:
    """Set up FSDP if there are several processes. By itself accelerate does so only for the first training of a process, and
    on a CPU never, without an error."""
    if accelerator.distributed_type != DistributedType.NO:
        accelerator.state.fsdp_plugin = plugin
        # accelerate copies the process's state into the accelerator's repeatedly: both have to be set
        accelerator.state.distributed_type = PartialState().distributed_type = DistributedType.FSDP


def sharded_copy(objective: Objective, accelerator: Accelerator) -> Objective:
    """Return a copy of the objective, with the same weights and buffers, for accelerate to shard; without FSDP the objective
    itself. Raises StsbenchError, one line, for a method whose training FSDP would change."""
    if not accelerator.is_fsdp2:
        return objective
    method, plugin = inner_method(objective), accelerator.state.fsdp_plugin
    if any(isinstance(part, NegativeQueue) for part in method.modules()):
        raise StsbenchError(f"FSDP: the momentum encoder of {method.name}'s queue follows the weights within a pass, where "
                            "what it writes is lost: set options.queue to null, or train without FSDP")
    if single := next((name for name, weight in method.named_parameters() if weight.numel() == 1), None):
        raise StsbenchError(f"FSDP: {single} of {method.name} is one number, and most processes would have no part of it: "
                            "train without FSDP")
    if plugin.auto_wrap_policy is transformer_auto_wrap_policy:
        model = method.backbone.model
        holder, key = list_of_layers(model, method.backbone.name, "FSDP shards one by one")
        layers = getattr(holder, key)
        if plugin.transformer_cls_names_to_wrap is None:
            plugin.transformer_cls_names_to_wrap = [type(layers[0]).__name__]
        _check_shared(method, plugin.transformer_cls_names_to_wrap)
    for backbone in method_backbones(method) if plugin.auto_wrap_policy is not None else ():
        backbone.engine, backbone.sharded = "padded", True  # a packed pass reads weights without calling their layers
    tensors = {id(tensor): tensor for tensor in (*objective.parameters(), *objective.buffers())}
    return copy.deepcopy(objective, tensors)


def inner_method(objective: Objective) -> Method:
    """Return the method inside an objective."""
    return objective.method if isinstance(objective, Around) else objective


class Whole:
    """Access to a method with its whole weights. Under FSDP it has them only within `weights` or after `take`."""

    def __init__(self, objective: Objective, trained: Objective, accelerator: Accelerator) -> None:
        """Free the method's weights under FSDP. trained: the objective, or its `sharded_copy` after `prepare`."""
        self.method, self.objective, self.trained, self.main = (
            inner_method(objective), objective, trained, accelerator.is_main_process
        )
        self._leave()

    @contextmanager
    def weights(self, everywhere: bool = False) -> Iterator[Method]:
        """Yield the method with its current weights, in the main process or `everywhere`. Every process must call this."""
        self.take(everywhere)
        try:
            yield self.method
        finally:
            self._leave()

    @torch.no_grad()
    def take(self, everywhere: bool = True) -> None:
        """Give the method its current weights, `everywhere` or in the main process only. Every process must call this."""
        if self.trained is self.objective:
            return
        for whole, part in zip(self.objective.parameters(), self.trained.parameters(), strict=True):
            weight = full(part)
            if whole is not part and (everywhere or self.main):
                whole.data = weight
        self._share_buffers(self.trained, self.objective)

    def _leave(self) -> None:
        """Free the method's weights, and hand its buffers, which `Method.choose` may have changed, to the trained copy."""
        if self.trained is self.objective:
            return
        self._share_buffers(self.objective, self.trained)
        for whole, part in zip(self.objective.parameters(), self.trained.parameters(), strict=True):
            if whole is not part:  # weights that accelerate was told not to shard are the same in both
                whole.data = whole.data.new_empty(0)

    @staticmethod
    def _share_buffers(source: nn.Module, target: nn.Module) -> None:
        for one, other in zip(source.modules(), target.modules(), strict=True):
            other._buffers.update(one._buffers)


def whole_state(optimiser: Any) -> dict[str, Any]:
    """Return the state of an optimiser with whole tensors, as in a single process. Every process must call this."""
    state: dict[str, Any] = tree_map(lambda value: full(value).cpu() if isinstance(value, DTensor) else value,
                                     optimiser.state_dict())
    return state


def load_state(optimiser: Any, state: dict[str, Any]) -> None:
    """Load a state from `whole_state`, sharded as the weights are."""
    weights = [weight for group in optimiser.param_groups for weight in group["params"]]
    for number, values in state["state"].items():
        weight = weights[number]
        if isinstance(weight, DTensor):
            values.update({
                name: distribute_tensor(value.to(weight.device), weight.device_mesh, weight.placements, src_data_rank=None)
                for name, value in values.items() if value.shape == weight.shape
            })
    optimiser.load_state_dict(state)


def local(value: torch.Tensor) -> torch.Tensor:
    """Return this process's part of a tensor, all of it if it is not sharded."""
    return value.to_local() if isinstance(value, DTensor) else value


def full(value: torch.Tensor) -> torch.Tensor:
    """Return a whole tensor from the parts of all processes, each of which must call this."""
    # a clone, as full_tensor() may return a view of a padded tensor, which safetensors refuses
    return value.full_tensor().clone() if isinstance(value, DTensor) else value


def _check_shared(method: Method, layers: list[str]) -> None:
    """Raise StsbenchError for weights shared by two layers that are sharded separately."""
    owners: dict[int, nn.Module] = {}
    for layer in [part for part in method.modules() if type(part).__name__ in layers]:
        for weight in layer.parameters():
            if owners.setdefault(id(weight), layer) is not layer:
                raise StsbenchError(f"FSDP: {method.name} has weights that two layers share: set fsdp_auto_wrap_policy to "
                                    "NO_WRAP")
