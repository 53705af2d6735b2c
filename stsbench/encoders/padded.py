"""Any transformers encoder through its own forward pass: padded to a sorted batch's longest, with an attention mask."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from stsbench.encoders.batching import Groups


class PaddedForward:
    """The same call as PackedForward for models that it does not know."""

    def __init__(self, model: Any, pad: int) -> None:
        self.model = model
        self.pad = pad

    def __call__(self, ids: Tensor, groups: Groups, wanted: tuple[int, ...]) -> list[Tensor]:
        """The hidden states `wanted` (0 embeddings ... -1 last layer), each packed to (tokens, d).

        ids: (tokens,) of a batch, text after text; groups: its runs of equal length. Padding stands right, where no
        model's positions or causal mask can see it.
        """
        width = max(length for _, length in groups)
        lengths = torch.tensor([length for texts, length in groups for _ in range(texts)])
        mask = torch.arange(width) < lengths[:, None]
        rows = mask.flatten().nonzero().squeeze(1)
        if ids.is_cuda:
            mask, rows = (part.pin_memory().to(ids.device, non_blocking=True) for part in (mask, rows))
        padded = ids.new_full((len(lengths) * width,), self.pad)
        padded[rows] = ids
        more = {"output_hidden_states": True} if any(index != -1 for index in wanted) else {}
        output = self.model(input_ids=padded.view(-1, width), attention_mask=mask.long(), **more)
        states = [output.last_hidden_state if index == -1 else output.hidden_states[index] for index in wanted]
        return [state.flatten(0, 1).index_select(0, rows) for state in states]
