"""Relative positions without padding: families whose scores depend on the distance between two tokens.

transformers computes these parts of the scores inside the families' own layers, from a token's place in the batch. `adapt`
makes the layers call `attention.attend` in a pass over a row of texts, with distances within each text; outside such a pass
they compute what they did. T5's and MPNet's distances add a number for each head. Those of DeBERTa (He et al. 2021,
equation 4) add the products of a token with vectors of the distances.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from stsbench.encoders.forward.attention import UnknownAttentionError, Window, attend, this_row

_T5 = {"t5": "T5Attention", "mt5": "MT5Attention", "umt5": "UMT5Attention"}


def adapt(model: Any) -> bool:
    """Make the layers of an MPNet, T5 or DeBERTa (version 2 or 3) call `attend` in a pass over a row of texts. Return
    whether they know a token's place by its distances alone, without position_ids."""
    family = getattr(getattr(model, "config", None), "model_type", None)
    if family == "mpnet":
        _adapt_mpnet()
    elif family == "deberta-v2":
        _adapt_deberta()
    elif family in _T5:
        _adapt_t5(family)
    return family in _T5


def _in_rows(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a decorator of a method: within a pass over a row it runs as it stands, outside one `function` runs instead."""

    def decorate(other: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def method(self: Any, *arguments: Any, **more: Any) -> Any:
            return function(self, *arguments, **more) if this_row() is None else other(self, *arguments, **more)

        return method

    return decorate


class _Table:
    """A bias that is a number for each distance and head, computed once for each length in a pass."""

    def __init__(self, compute: Callable[[int], Tensor]) -> None:
        """compute: returns (1, heads, length, length) for a length."""
        self._compute, self._known = compute, dict[int, Tensor]()

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        length = query.shape[2]
        if length not in self._known:
            self._known[length] = self._compute(length)
        return self._known[length]


@cache
def _adapt_t5(family: str) -> None:
    attention = getattr(import_module(f"transformers.models.{family}.modeling_{family}"), _T5[family])
    compute = attention.compute_bias

    @_in_rows(compute)
    def compute_bias(self: Any, query_length: int, key_length: int, device: Any = None, **more: Any) -> _Table:
        return _Table(lambda length: compute(self, length, length, device, **more))

    attention.compute_bias = compute_bias


@cache
def _adapt_mpnet() -> None:
    from transformers.models.mpnet.modeling_mpnet import MPNetEncoder, MPNetSelfAttention

    compute = MPNetEncoder.compute_position_bias

    @_in_rows(compute)
    def compute_position_bias(self: Any, x: Tensor, *settings: Any, **more: Any) -> _Table:
        return _Table(lambda length: compute(self, x.new_empty(1, length, 0), *settings, **more))

    @_in_rows(MPNetSelfAttention.forward)
    def forward(
        self: Any, hidden_states: Tensor, attention_mask: Any = None, position_bias: Any = None, *settings: Any, **more: Any,
    ) -> Any:
        width = self.attention_head_size
        query, key, value = (layer(hidden_states).unflatten(-1, (-1, width)).transpose(1, 2)
                             for layer in (self.q, self.k, self.v))
        dropout = self.dropout.p if self.training else 0.0
        context, _ = attend(self, query, key, value, attention_mask, width**-0.5, dropout, position_bias=position_bias)
        return (self.o(context.flatten(2)),)

    MPNetEncoder.compute_position_bias = compute_position_bias
    MPNetSelfAttention.forward = forward


@cache
def _adapt_deberta() -> None:
    from transformers.models.deberta_v2.modeling_deberta_v2 import (
        ConvLayer,
        DebertaV2Encoder,
        DisentangledSelfAttention,
        make_log_bucket_position,
    )

    @_in_rows(DebertaV2Encoder.get_attention_mask)
    def get_attention_mask(self: Any, attention_mask: Tensor) -> Window:
        return Window(-1, -1)

    @_in_rows(DebertaV2Encoder.get_rel_pos)
    def get_rel_pos(self: Any, hidden_states: Tensor, *more: Any) -> Tensor | None:
        """Return int64 (2 L - 1,): rows of the table of distances, from key - query = -(L - 1) to L - 1, L the longest
        text's length."""
        row = this_row()
        if not self.relative_attention or row is None:
            return None
        span = self.position_buckets if self.position_buckets > 0 else self.max_relative_positions
        before = torch.arange(row.longest - 1, -row.longest, -1, device=hidden_states.device)
        if self.position_buckets > 0:
            before = make_log_bucket_position(before, self.position_buckets, self.max_relative_positions).long()
        rows: Tensor = (before + span).clamp(0, 2 * span - 1)
        return rows

    @_in_rows(ConvLayer.forward)
    def convolve(self: Any, *arguments: Any) -> None:
        raise UnknownAttentionError("its convolution mixes a text with its neighbours")

    @_in_rows(DisentangledSelfAttention.forward)
    def forward(
        self: Any, hidden_states: Tensor, attention_mask: Any, output_attentions: bool = False, query_states: Any = None,
        relative_pos: Tensor | None = None, rel_embeddings: Tensor | None = None,
    ) -> tuple[Tensor, None]:
        def by_heads(states: Tensor) -> Tensor:
            parts: Tensor = states.unflatten(-1, (self.num_attention_heads, -1))
            return parts.transpose(-3, -2)

        query, key, value = (by_heads(layer(hidden_states)) for layer in (self.query_proj, self.key_proj, self.value_proj))
        kinds = {"c2p", "p2c"} & set(self.pos_att_type)
        scale: float = (query.shape[-1] * (1 + len(kinds))) ** -0.5
        bias = None
        if relative_pos is not None and rel_embeddings is not None and kinds:
            distances = self.pos_dropout(rel_embeddings)[relative_pos]
            to_keys = self.key_proj if self.share_att_key else getattr(self, "pos_key_proj", None)
            to_queries = self.query_proj if self.share_att_key else getattr(self, "pos_query_proj", None)
            bias = _Products(
                by_heads(to_keys(distances)) if to_keys is not None and "c2p" in kinds else None,
                by_heads(to_queries(distances)).flip(1) if to_queries is not None and "p2c" in kinds else None, scale,
            )
        dropout = self.dropout.p if self.training else 0.0
        context, _ = attend(self, query, key, value, attention_mask, scale, dropout, position_bias=bias)
        return context.flatten(2), None

    DebertaV2Encoder.get_attention_mask = get_attention_mask
    DebertaV2Encoder.get_rel_pos = get_rel_pos
    ConvLayer.forward = convolve
    DisentangledSelfAttention.forward = forward


class _Products:
    """DeBERTa's bias: scale * (query . vector of the distance + key . vector of the distance)."""

    def __init__(self, keys: Tensor | None, queries: Tensor | None, scale: float) -> None:
        """keys: (heads, 2 L - 1, width), by which queries are multiplied, in the order of key - query; queries: as many,
        by which keys are multiplied, in the order of query - key; None for neither."""
        self._keys, self._queries, self._scale = keys, queries, scale

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        parts = []
        if self._keys is not None:
            parts.append(_by_distance(query, self._keys))
        if self._queries is not None:
            parts.append(_by_distance(key, self._queries).transpose(2, 3))
        return sum(parts[1:], parts[0]) * self._scale


def _by_distance(states: Tensor, distances: Tensor) -> Tensor:
    """Return (n, heads, L, L), whose element (i, j) is states[i] . the vector of the distance j - i.

    states: (n, heads, L, width); distances: (heads, 2 M - 1, width), M >= L, from -(M - 1) to M - 1.
    """
    length, around = states.shape[2], distances.shape[1] // 2
    products = (states @ distances[:, around + 1 - length : around + length].transpose(1, 2)).contiguous()
    # Element (i, j) is in column j - i + L - 1: each row starts one column before the row above it.
    texts, heads, lines, columns = products.stride()
    return products.as_strided((*states.shape[:3], length), (texts, heads, lines - columns, columns), length - 1)
