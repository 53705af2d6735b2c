"""What a padded batch in training reads beside its token ids: positions, learned words, a prefix of keys and values, and
what is done to its embeddings.

Here a prefix has a row for each text, because dropout and roles differ from row to row, and gradients flow through it. At
test time one prefix serves all texts of a packed batch: stsbench/encoders/forward/soft.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from stsbench.encoders.forward.padded import attention_mask, check_family, soft_inputs
from stsbench.training.modules.embedding_change import EmbeddingChange


@dataclass(frozen=True)
class Prefix:
    """Keys and values that the tokens of each row attend to before its own (Li and Liang 2021; DiffAug, section 3.1).

    keys, values: (layers, n, P, d), heads side by side in d, row by row (each row may have dropped others); visible: (n, P)
    bool, the slots that a row's tokens may attend to. All rows see equally many. Real tokens' positions start P later,
    however many are seen.
    """

    keys: Tensor
    values: Tensor
    visible: Tensor

    def part(self, rows: slice) -> Prefix:
        """That of some rows."""
        return Prefix(self.keys[:, rows], self.values[:, rows], self.visible[rows])

    def by_layer(self, order: Tensor | None = None) -> list[tuple[Tensor, Tensor]]:
        """Of each layer the keys and values (n, p, d) of the p slots that each row sees; empty where p is 0.

        order: (n,) the rows in the order in which they are wanted. ValueError where rows see unequally many.
        """
        rows, slots = self.visible.shape
        if self.keys.shape != self.values.shape or self.keys.shape[1:3] != (rows, slots):
            raise ValueError(
                f"keys {tuple(self.keys.shape)} and values {tuple(self.values.shape)} of a prefix do not go with "
                f"visible {(rows, slots)}"
            )
        low, high = torch.stack(self.visible.long().sum(1).aminmax()).tolist()
        if low != high:
            raise ValueError(f"one row sees {low} slots of the prefix and another {high}: all must see equally many")
        if high == 0:
            return []
        indices = self.visible.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :high]
        indices = indices + torch.arange(rows, device=indices.device).unsqueeze(1) * slots
        flat = (indices if order is None else indices[order]).flatten()
        whole = high == slots and order is None
        return [
            (keys, values) if whole else
            (keys.flatten(0, 1).index_select(0, flat).view(rows, high, -1),
             values.flatten(0, 1).index_select(0, flat).view(rows, high, -1))
            for keys, values in zip(self.keys.unbind(), self.values.unbind(), strict=True)
        ]


@dataclass(frozen=True)
class SoftPrompt:
    """For one padded batch of n rows of L tokens.

    positions: (n, L) position ids, None: the model's own, plus P with a prefix; rows: (n, L) row of `vectors` (m, d) that
    stands for the word embedding, -1 for the token's own; change: of what the first layer reads.
    """

    positions: Tensor | None = None
    rows: Tensor | None = None
    vectors: Tensor | None = None
    prefix: Prefix | None = None
    change: EmbeddingChange | None = None

    @property
    def shift(self) -> int:
        """P, the positions that stand before a text where `positions` is None."""
        return 0 if self.prefix is None else self.prefix.visible.shape[1]

    def part(self, rows: slice) -> SoftPrompt:
        """That of some rows of the batch."""
        positions, words = (None if part is None else part[rows] for part in (self.positions, self.rows))
        prefix = None if self.prefix is None else self.prefix.part(rows)
        return SoftPrompt(positions, words, self.vectors, prefix, None if self.change is None else self.change.part(rows))

    def check(self, ids: Tensor, layers: int) -> None:
        """ValueError unless all parts go with this batch (n, L) and a model of so many layers."""
        for name, part in (("positions", self.positions), ("rows", self.rows)):
            if part is not None and part.shape != ids.shape:
                raise ValueError(f"{name} {tuple(part.shape)} of a soft prompt for a batch {tuple(ids.shape)}")
        if (self.rows is None) != (self.vectors is None):
            raise ValueError("the rows and the vectors of a soft prompt go together")
        if self.change is not None:
            self.change.check(ids)
        if self.prefix is not None and (len(self.prefix.keys), len(self.prefix.visible)) != (layers, len(ids)):
            raise ValueError(
                f"a prefix of {len(self.prefix.keys)} layers and {len(self.prefix.visible)} rows for a model of {layers} "
                f"layers and a batch of {len(ids)} rows"
            )


def padded_inputs(model: Any, ids: Tensor, mask: Tensor, soft: SoftPrompt | None) -> dict[str, Any]:
    """The arguments of one forward pass of `model`. ids, mask: (n, L); soft: of this batch.

    Raises EncoderError for a model that takes no soft prompt or has no such positions, ValueError for other shapes.
    """
    if soft is None:
        return {"input_ids": ids, "attention_mask": attention_mask(model, mask)}
    check_family(model)
    soft.check(ids, model.config.num_hidden_layers)
    return soft_inputs(
        model, ids, mask, positions=soft.positions, rows=soft.rows, vectors=soft.vectors,
        slots=[] if soft.prefix is None else soft.prefix.by_layer(), shift=soft.shift,
    )
