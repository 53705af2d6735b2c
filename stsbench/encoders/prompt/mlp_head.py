"""The dense layer after the first token's vector."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from stsbench.errors import StsbenchError


class MLPHead(nn.Module):
    """tanh(W x + b), W of (d, d) from N(0, std^2), b = 0; never a checkpoint's own pooler.

    Gao, Yao and Chen (2021), SimCSE, footnote 9. std: the backbone's `initializer_range`, 0.02 for BERT and RoBERTa. The
    random numbers come from torch's global generator.
    """

    def __init__(self, width: int, std: float = 0.02) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        nn.init.normal_(self.dense.weight, std=std)
        nn.init.zeros_(self.dense.bias)

    def forward(self, vectors: Tensor) -> Tensor:
        """(..., d) -> (..., d)."""
        return torch.tanh(self.dense(vectors))


def check_head(head: str, pooler: str) -> None:
    """Raise StsbenchError for an MLP, a method's options.head, on another vector than the first token's."""
    if head != "none" and pooler != "cls":
        raise StsbenchError(f"options.head {head} stands on the pooler cls, not on {pooler}: set options.head none")
