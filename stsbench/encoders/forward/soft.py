"""What a packed batch reads beside its token ids in a test: positions, learned words, keys and values before every text.

In training, rows are padded and each may see other keys and values: stsbench/training/modules/soft_prompt.py. Both reach
transformers' own models through encoders/forward/padded.py, soft_inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class KeyValues:
    """A prefix without what it was computed by: (layers, P, d) each, heads side by side in d."""

    keys: Tensor
    values: Tensor


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
