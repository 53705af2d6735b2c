"""MPNet's attention over a row of texts: its scores have a bias for each distance between two tokens.

transformers computes it inside MPNet's layers, whatever attention is asked for. Here a layer asks as those of other models
do, and the distances are those within a text. Outside a pass over a row the layers are transformers' own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from torch import Tensor

from stsbench.encoders.forward.attention import Bias, attend, in_row


def adapt(model: Any) -> None:
    """Let the layers of MPNet, if `model` is one, ask for their attention in a pass over a row of texts."""
    if getattr(getattr(model, "config", None), "model_type", None) == "mpnet":
        _adapt_mpnet()


@cache
def _adapt_mpnet() -> None:
    from transformers.models.mpnet.modeling_mpnet import MPNetEncoder, MPNetSelfAttention

    MPNetEncoder.compute_position_bias = _biases(MPNetEncoder.compute_position_bias)
    MPNetSelfAttention.forward = _asking(MPNetSelfAttention.forward)


class _Biases:
    """The biases of one pass, each computed once for all layers: a call with a length gives (heads, length, length)."""

    def __init__(self, compute: Callable[[Tensor], Tensor], states: Tensor) -> None:
        self._compute, self._states, self._known = compute, states, dict[int, Tensor]()

    def __call__(self, length: int) -> Tensor:
        if length not in self._known:
            self._known[length] = self._compute(self._states.new_empty(1, length, 0))[0]
        return self._known[length]


def _biases(compute: Callable[..., Tensor]) -> Callable[..., Tensor | Bias]:
    def compute_position_bias(self: Any, x: Tensor, *settings: Any, **more: Any) -> Tensor | Bias:
        if not in_row():
            return compute(self, x, *settings, **more)
        return _Biases(lambda states: compute(self, states, *settings, **more), x)

    return compute_position_bias


def _asking(forward: Callable[..., Any]) -> Callable[..., Any]:
    def ask(
        self: Any, hidden_states: Tensor, attention_mask: Any = None, position_bias: Any = None, *settings: Any, **more: Any,
    ) -> Any:
        if not isinstance(position_bias, _Biases):
            return forward(self, hidden_states, attention_mask, position_bias, *settings, **more)
        width = self.attention_head_size
        query, key, value = (layer(hidden_states).unflatten(-1, (-1, width)).transpose(1, 2)
                             for layer in (self.q, self.k, self.v))
        dropout = self.dropout.p if self.training else 0.0
        context, _ = attend(self, query, key, value, attention_mask, width**-0.5, dropout, bias=position_bias)
        return (self.o(context.flatten(2)),)

    return ask
