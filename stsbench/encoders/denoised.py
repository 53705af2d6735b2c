"""Where a template stands when there is no sentence in it: position ids of PromptBERT's template denoising."""

from __future__ import annotations

from typing import Any, Literal

Positions = Literal["matched", "empty"]
Start = Literal["own", "zero"]


def first_position(model: Any) -> int:
    """The position id of a text's first token: 0, for RoBERTa's kin the padding index + 1."""
    table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    padding = getattr(table, "padding_idx", None)
    return 0 if padding is None else int(padding) + 1


def template_positions(counts: Any, split: int, length: int, base: int, positions: Positions) -> Any:
    """int64 (m, length) position ids of a template alone (Jiang et al. 2022, PromptBERT, section 3.3).

    counts: (m,) int64 tensor, how many tokens the sentence would have that stands before token `split`; positions "matched":
    what follows stands as behind them, "empty": as behind none. base: the first token's position.
    """
    import torch

    places = torch.arange(length, device=counts.device)
    found = (places + base).expand(len(counts), -1)
    if positions == "empty":
        return found.contiguous()
    return found + (places >= split) * counts.unsqueeze(1)
