"""What transformers' own pass is called with in training: token ids and a mask, and what a soft prompt adds to them."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from stsbench.encoders.padded import check_family, soft_inputs
from stsbench.modules.soft_prompt import SoftPrompt


def padded_inputs(model: Any, ids: Tensor, mask: Tensor, soft: SoftPrompt | None) -> dict[str, Any]:
    """The arguments of one forward pass of `model`. ids, mask: (n, L); soft: of this batch.

    Raises EncoderError for a model that takes no soft prompt or has no such positions, ValueError for other shapes.
    """
    if soft is None:
        return {"input_ids": ids, "attention_mask": mask}
    check_family(model)
    soft.check(ids, model.config.num_hidden_layers)
    return soft_inputs(
        model, ids, mask, positions=soft.positions, rows=soft.rows, vectors=soft.vectors,
        slots=[] if soft.prefix is None else soft.prefix.seen(), shift=soft.shift,
    )  # fmt: skip
