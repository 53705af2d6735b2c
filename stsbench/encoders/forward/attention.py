"""Attention without padding: a batch is one row of tokens, text after text, and each text attends only to itself.

It is registered with transformers under NAME, so that any model that takes its attention from transformers can use it, with
its own windows and direction, which are read off the mask that the model asks for. Outside such a pass NAME means sdpa.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, cached_property
from inspect import signature
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from stsbench.encoders.forward.batching import Groups, Slots

NAME = "stsbench"
_SAMPLED = 17  # queries of the longest text by which a mask is tested
_ELSEWHERE = {  # arguments that models pass on and that do not concern attention, or that the mask implies
    "cache_position", "deterministic", "is_causal", "output_attentions", "output_hidden_states", "output_router_logits",
    "position_embeddings", "position_ids", "sliding_window", "use_cache",
}
Draw = Callable[[tuple[int, ...], float, torch.dtype], Tensor]
# Queries and keys (texts, heads, length, width) -> what distances add to the scores (texts or none, heads, length, length)
Bias = Callable[[Tensor, Tensor], Tensor]
_lock = threading.Lock()
_borrowed: dict[int, tuple[int, str]] = {}  # id of a config -> passes that run on it, and the name of its own attention


class UnknownAttentionError(Exception):
    """Raised where a model's attention cannot be computed over a row of texts; its text ends a sentence with the reason."""


@dataclass(frozen=True)
class Window:
    """An attention window: how many tokens before and after itself a token attends to; -1: all."""

    before: int
    behind: int


@dataclass
class Row:
    """One pass over a batch. groups: its runs of equal length, n texts; prefix: keys and values that texts attend to before
    their own; heads: factors (n, H) of the heads' outputs for each layer; draw: returns dropout's factors of a shape, at a
    rate; last: the number of the last layer, and (n,) the only token of each text that is computed there."""

    groups: Groups
    device: torch.device
    prefix: Slots | None = None
    heads: Sequence[Tensor] | None = None
    draw: Draw | None = None
    last: tuple[int, Tensor] | None = None
    bidirectional: bool = False  # every token attends to its whole text, whatever mask the model asks for
    calls: int = 0  # attention's calls so far: the number of the next layer

    @property
    def longest(self) -> int:
        """Return the number of tokens of the longest text."""
        return max(length for _, length in self.groups)

    @cached_property
    def bounds(self) -> Tensor:
        """Return int32 (texts + 1,): the index of each text's first token, and the row's end."""
        lengths = [length for texts, length in self.groups for _ in range(texts)]
        return to_device(torch.tensor([0, *accumulate(lengths)], dtype=torch.int32), self.device)


_row: ContextVar[Row | None] = ContextVar("row", default=None)
this_row = _row.get  # the row of this thread's pass, None outside one


@contextmanager
def one_row(configs: Sequence[Any], row: Row) -> Iterator[None]:
    """Let the models of these configs use the attention of `row` in this thread and block, their own again afterwards."""
    with _lock:
        for config in configs:
            passes, name = _borrowed.get(id(config), (0, config._attn_implementation))
            _borrowed[id(config)] = passes + 1, name
            config._attn_implementation_internal = NAME  # the setter would warn of a name that is not transformers' own
    token = _row.set(row)
    try:
        yield
    finally:
        _row.reset(token)
        with _lock:
            for config in configs:
                passes, name = _borrowed.pop(id(config))
                if passes > 1:
                    _borrowed[id(config)] = passes - 1, name
                else:
                    config._attn_implementation_internal = name


def transformers_models(model: Any) -> list[PreTrainedModel]:
    """Return `model` and the transformers models within it."""
    return [part for part in model.modules() if isinstance(part, PreTrainedModel)]


def attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, scaling: float | None = None,
    dropout: float = 0.0, *, position_bias: Any = None, **more: Any,
) -> tuple[Tensor, None]:
    """Return (1, tokens, heads, width) of query, key and value (1, heads, tokens, width), as transformers' attention
    functions. position_bias: a Bias in a pass over a row."""
    row = this_row()
    if row is None:
        more |= {} if position_bias is None else {"position_bias": position_bias}
        attended: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, dropout=dropout, **more
        )
        return attended
    if isinstance(position_bias, Tensor):
        raise UnknownAttentionError("its attention takes position_bias")
    if new := sorted(name for name, setting in more.items() if setting is not None and name not in _ELSEWHERE):
        raise UnknownAttentionError(f"its attention takes {', '.join(new)}")
    if not isinstance(attention_mask, Window) or len(query) != 1 or query.shape[2] != key.shape[2]:
        raise UnknownAttentionError("its attention has a mask of its own")
    packed = [states[0].transpose(0, 1) for states in (query, key, value)]
    if position_bias is None and _has_kernel(packed, row, dropout):
        context = _by_kernel(packed, row, attention_mask, scaling)
    else:
        context = _by_groups(packed, row, attention_mask, scaling, dropout, position_bias)
    row.calls += 1
    return context[None], None


def _window(*, mask_function: Callable[..., Any], **more: Any) -> Any:
    """Return the Window of a mask; called as transformers' mask functions. It is read off some queries of the longest text,
    since a shorter text has the same window or a smaller one."""
    row = this_row()
    if row is None:
        return sdpa_mask(mask_function=mask_function, **more)
    if row.bidirectional:
        return Window(-1, -1)
    length = row.longest
    queries, keys = torch.linspace(0, length - 1, min(length, _SAMPLED)).long()[:, None], torch.arange(length)
    visible = mask_function(0, 0, queries, keys).expand(len(queries), length)
    before, behind = int(visible[-1].sum()) - 1, int(visible[0].sum()) - 1
    far = queries - keys
    if not torch.equal(visible, (far <= before) & (far >= -behind)):
        raise UnknownAttentionError("its attention mask is no window around each token")
    return Window(*(-1 if reach >= length - 1 else reach for reach in (before, behind)))


def _by_groups(
    packed: Sequence[Tensor], row: Row, window: Window, scale: float | None, dropout: float, bias: Bias | None
) -> Tensor:
    """Return (tokens, heads, width) attention outputs, with one call for each run of texts of equal length."""
    parts, groups, counts = [], row.groups, [texts for texts, _ in row.groups]
    slots = None if row.prefix is None else [
        part.split(counts) if part.ndim == 3 else [part] * len(counts) for part in row.prefix[row.calls]
    ]
    heads = None if row.heads is None else row.heads[row.calls].split(counts)
    asking = row.last[1] if row.last is not None and row.last[0] == row.calls and bias is None else None
    if asking is not None:  # the model has no windows
        packed, groups = [packed[0][asking], *packed[1:]], [(texts, 1) for texts, _ in groups]
    split = zip(_split(packed[0], groups), *(_split(states, row.groups) for states in packed[1:]), strict=True)
    for number, group in enumerate(split):
        query, key, value = (states.transpose(1, 2) for states in group)  # (texts, heads, length, width)
        if slots is not None:
            key, value = _before(slots[0][number], key), _before(slots[1][number], value)
        added = None if bias is None else bias(query, key).to(query.dtype)
        context = _attended(query, key, value, window, scale, dropout, row.draw, added)
        if heads is not None:
            context = context * heads[number][:, :, None, None].to(context)
        parts.append(context.transpose(1, 2).flatten(0, 1))
    whole = parts[0] if len(parts) == 1 else torch.cat(parts)
    return whole if asking is None else torch.zeros_like(packed[2]).index_copy(0, asking, whole)


def _split(states: Tensor, groups: Groups) -> Iterator[Tensor]:
    """Return the (texts, length, ...) parts of packed rows. They are split, not sliced, as the gradient of a slice has the
    size of the whole."""
    parts = states.split([texts * length for texts, length in groups])
    return (part.unflatten(0, group) for part, group in zip(parts, groups, strict=True))


def _attended(
    query: Tensor, key: Tensor, value: Tensor, window: Window, scale: float | None, dropout: float, draw: Draw | None,
    bias: Tensor | None,
) -> Tensor:
    """Return (texts, heads, length, width) for texts of one length, which may attend to more keys than they have tokens.
    bias: (texts or none, heads, length, length) to add to the scores, of a model without windows."""
    length = query.shape[2]
    before, behind = (reach if reach < length - 1 else -1 for reach in (window.before, window.behind))
    mask = bias if before == behind == -1 else _band(before, behind, length, query.device)
    if dropout and draw is not None:
        return _dropping(query, key, value, mask, scale, dropout, draw)
    causal = before == -1 and behind == 0
    return scaled_dot_product_attention(
        query, key, value, attn_mask=None if causal else mask, is_causal=causal, scale=scale, dropout_p=dropout,
        enable_gqa=query.shape[1] != key.shape[1],
    )


def _dropping(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float | None, rate: float, draw: Draw
) -> Tensor:
    """Return `_attended` with dropout of the attention weights, by the factors of `draw`."""
    if query.shape[1] != key.shape[1]:
        key, value = (states.repeat_interleave(query.shape[1] // states.shape[1], 1) for states in (key, value))
    scores = query @ key.transpose(2, 3) * (query.shape[3] ** -0.5 if scale is None else scale)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    shares = scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))
    return (shares * draw(shares.shape, rate, shares.dtype)).to(value.dtype) @ value


def _band(before: int, after: int, length: int, device: torch.device) -> Tensor:
    """Return (length, length) bool: which keys a query attends to."""
    index = torch.arange(length, device=device)
    far = index[:, None] - index
    return (far <= (length if before == -1 else before)) & (far >= -(length if after == -1 else after))


def _before(slots: Tensor, states: Tensor) -> Tensor:
    """Return (n, heads, P + length, width): the slots, (P, d) or (n, P, d), before the keys or values `states` of n
    texts."""
    slots = slots.to(states).unflatten(-1, (states.shape[1], -1)).transpose(-3, -2)  # (..., heads, P, width)
    return torch.cat([slots.expand(len(states), -1, -1, -1), states], 2)


@cache
def _kernel() -> Callable[..., Any] | None:
    """Return torch's attention over texts of any lengths (2.10), None where it lacks windows and shared heads, which came
    later."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    return varlen_attn if {"window_size", "scale", "enable_gqa"} <= set(signature(varlen_attn).parameters) else None


def _has_kernel(packed: Sequence[Tensor], row: Row, dropout: float) -> bool:
    """Return whether one call suffices for all texts: flash attention takes half precision, widths up to 256, no dropout."""
    query, _, value = packed
    plain = not dropout and row.prefix is None and row.heads is None and row.last is None
    fits = query.shape[-1] == value.shape[-1] <= 256 and query.shape[-1] % 8 == 0
    return plain and fits and query.is_cuda and query.dtype in (torch.float16, torch.bfloat16) and _kernel() is not None


def _by_kernel(packed: Sequence[Tensor], row: Row, window: Window, scale: float | None) -> Tensor:
    """Return (tokens, heads, width) attention outputs, with one call for the whole row."""
    query, key, value = packed
    kernel = _kernel()
    assert kernel is not None
    bounds = row.bounds.to(query.device)  # a model may be spread over several devices
    context: Tensor = kernel(
        query, key, value, bounds, bounds, row.longest, row.longest, scale=scale,
        window_size=(window.before, window.behind), enable_gqa=query.shape[1] != key.shape[1],
    )
    return context


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """Return `values` on `device`, without waiting for a copy to a GPU."""
    if device.type != "cuda":
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)


def from_device(values: Tensor) -> Callable[[], Tensor]:
    """Return a function that returns `values` on the CPU. A GPU starts to copy them now, so that the function does not wait
    for later work of the GPU."""
    if values.device.type != "cuda":
        return values.cpu
    here = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    here.copy_(values, non_blocking=True)
    copied = torch.cuda.Event()
    copied.record(torch.cuda.current_stream(values.device))

    def wait() -> Tensor:
        copied.synchronize()
        return here

    return wait


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, _window)
