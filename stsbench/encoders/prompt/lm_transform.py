"""The first half of a masked-LM head: what BERT makes of a hidden state before it is compared with words."""

from __future__ import annotations

from torch import Tensor, nn


class LMTransform(nn.Module):
    """LayerNorm(activation(W x + b)), W of (d, d): BERT's cls.predictions.transform, RoBERTa's lm_head up to its decoder."""

    def __init__(self, width: int, activation: str, eps: float) -> None:
        """activation: by its name in transformers, e.g. "gelu"; eps: LayerNorm's."""
        super().__init__()
        from transformers.activations import get_activation

        self.width, self.activation, self.eps = width, activation, eps
        self.dense = nn.Linear(width, width)
        self.act = get_activation(activation)
        self.norm = nn.LayerNorm(width, eps=eps)

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., d) -> (..., d)."""
        transformed: Tensor = self.norm(self.act(self.dense(hidden)))
        return transformed
