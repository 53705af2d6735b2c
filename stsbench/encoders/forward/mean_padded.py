"""The pooler mean_padded:N: every text padded to N positions, and the mean over all of them, padding included.

Padding attends to the text like any token and is attended to by none, so its last states are numbers that depend on the
text: the mean moves with N. Source: Mirror-BERT's released code (Liu et al. 2021), agg_mode "mean", N 50 in training and
`encode`, 64 in its evaluation.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from stsbench.encoders.forward.batch_effects import restore
from stsbench.encoders.forward.batching import Groups


class MeanPaddedForward:
    """From packed tokens to vectors, through the transformers module's own pass: no packed one knows padding."""

    def __init__(self, model: Any, pad: int, length: int) -> None:
        """pad: the padding token; length: N."""
        self.model, self.pad, self.length = model, pad, length

    def __call__(self, ids: Tensor, groups: Groups) -> Tensor:
        """float32 (n, d) vectors. ids: (tokens,) of a batch, text after text; groups: its runs of equal length, up to N."""
        lengths = torch.tensor([length for texts, length in groups for _ in range(texts)])
        mask = (torch.arange(self.length) < lengths[:, None]).to(ids.device)
        padded = ids.new_full(mask.shape, self.pad).masked_scatter(mask, ids)
        restore(self.model)
        states: Tensor = self.model(input_ids=padded, attention_mask=mask.long()).last_hidden_state
        return states.float().mean(1)


def padded_to(ids: Tensor, mask: Tensor, length: int, pad: int) -> tuple[Tensor, Tensor]:
    """ids, mask (n, L) as (n, length), padded right; ValueError where L is greater."""
    more = length - ids.shape[1]
    if more < 0:
        raise ValueError(f"texts of {ids.shape[1]} tokens for a mean over {length} positions")
    grow = torch.nn.functional.pad
    return grow(ids, (0, more), value=pad), grow(mask, (0, more))
