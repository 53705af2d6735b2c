"""DiffAug's prefixes: keys and values of every layer, computed by a small network that is dropped after training."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from stsbench.encoders.forward.soft import KeyValues
from stsbench.training.modules.soft_prompt import Prefix


class PrefixEncoder(nn.Module):
    """Embedding(P, d) -> Linear(d, d) -> tanh -> Linear(d, 2 * layers * d), cut into a key and a value a layer and slot.

    Li and Liang (2021), Prefix-Tuning, section 4.3, as DiffAug's code has it: layer m reads block 2m as keys and block
    2m + 1 as values. Weights from N(0, std^2), biases 0.
    """

    def __init__(self, length: int, width: int, layers: int, dropout: float, std: float = 0.02) -> None:
        """length: P, slots of all prefixes together; dropout: on keys and values, anew for each row of a batch."""
        super().__init__()
        self.length, self.layers = length, layers
        self.embedding = nn.Embedding(length, width)
        self.inner = nn.Linear(width, width)
        self.outer = nn.Linear(width, 2 * layers * width)
        self.dropout = nn.Dropout(dropout)
        for module in (self.embedding, self.inner, self.outer):
            nn.init.normal_(module.weight, std=std)
        nn.init.zeros_(self.inner.bias)
        nn.init.zeros_(self.outer.bias)

    @property
    def effective(self) -> int:
        """Numbers that a test needs: 2 * layers * P * d."""
        return self.length * int(self.outer.out_features)

    def slots(self) -> Tensor:
        """(2 * layers, P, d) keys and values by turns, without dropout."""
        blocks: Tensor = self.outer(torch.tanh(self.inner(self.embedding.weight))).unflatten(1, (2 * self.layers, -1))
        return blocks.transpose(0, 1)

    def forward(self, visible: Tensor) -> Prefix:
        """The prefix of n rows, of which each sees some slots. visible: (n, P) bool."""
        slots = self.dropout(self.slots().unsqueeze(1).expand(-1, len(visible), -1, -1))
        return Prefix(slots[0::2], slots[1::2], visible)

    def plain(self) -> KeyValues:
        """All slots as they are tested: (layers, P, d) keys and values, without gradient."""
        slots = self.slots().detach()
        return KeyValues(slots[0::2].contiguous(), slots[1::2].contiguous())
