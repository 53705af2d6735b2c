"""DropHead (Zhou et al. 2020, "Scheduled DropHead"): whole attention heads dropped in training, as Mirror-BERT has it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from stsbench.encoders.forward.padded import check_family
from stsbench.errors import EncoderError


def head_factors(kept: Tensor, dtype: torch.dtype) -> Tensor:
    """What the output of each head is multiplied by: H / k where it is kept, k of H heads being kept, and 0 where not.

    kept: (n, layers, H) bool, for each row and layer; so are the factors. A layer of a row that keeps no head has 0
    everywhere.
    """
    count = kept.sum(-1, keepdim=True).clamp(min=1)
    return kept * (kept.shape[-1] / count.to(dtype))


def check_factors(factors: Tensor, rows: int, model: Any) -> None:
    """ValueError unless the factors are (n, layers, H) of this batch of n rows and this model."""
    shape = (rows, model.config.num_hidden_layers, model.config.num_attention_heads)
    if factors.shape != shape:
        raise ValueError(f"factors {tuple(factors.shape)} of heads for rows, layers and heads {shape}")


@contextmanager
def scaled_heads(model: Any, factors: Tensor | None) -> Iterator[None]:
    """Within, transformers' own pass of a BERT or RoBERTa multiplies each head's output, before the dense layer behind it,
    by `factors` (n, layers, H). EncoderError for other models, and under gradient checkpointing, which would not see it."""
    if factors is None:
        yield
        return
    check_family(model)
    if any(getattr(part, "gradient_checkpointing", False) for part in model.modules()):
        raise EncoderError("gradient checkpointing computes layers again without the dropped heads: switch it off")
    with ExitStack() as stack:
        for layer, factor in zip(model.encoder.layer, factors.unbind(1), strict=True):
            hook = layer.attention.self.register_forward_hook(partial(_scale, factor))
            stack.callback(hook.remove)
        yield


def _scale(factors: Tensor, module: nn.Module, inputs: Any, output: Any) -> Any:
    """The output of one layer's attention, (n, L, d) with heads side by side in d, scaled; factors: (n, H)."""
    context, *rest = output
    scaled = context.unflatten(2, (factors.shape[1], -1)) * factors.to(context.dtype)[:, None, :, None]
    return (torch.flatten(scaled, 2), *rest)
