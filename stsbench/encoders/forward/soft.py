"""What a packed batch reads beside its token ids: positions, learned words, keys and values before every text.

In training, rows come padded and each may see other keys and values: stsbench/training/modules/soft_prompt.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

Slots = Sequence[tuple["Tensor", "Tensor"]]  # of each layer keys and values: (P, d) for all texts, or (n, P, d)


@dataclass(frozen=True)
class KeyValues:
    """A prefix without what it was computed by: (layers, P, d) each, heads side by side in d."""

    keys: Tensor
    values: Tensor

    def by_layer(self) -> Slots:
        """Those of each layer."""
        return list(zip(self.keys, self.values, strict=True))


@dataclass(frozen=True)
class Soft:
    """For one packed batch of `tokens` tokens, text after text (see encoders/forward/packed.py).

    positions: (tokens,) position ids, None: the model's own, plus `shift`; rows: (tokens,) row of `vectors` (m, d) that
    stands for the word embedding, -1 for the token's own, None: no learned words; prefix: what every token of every text
    attends to, too.
    """

    positions: Tensor | None = None
    rows: Tensor | None = None
    vectors: Tensor | None = None
    prefix: KeyValues | None = None
    shift: int = 0
