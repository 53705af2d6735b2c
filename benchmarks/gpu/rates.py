"""How fast the device multiplies, and how many multiply-adds a BERT takes for some texts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any


def product_rate(device: str, dtype: Any) -> float:
    """Multiply-adds a second of one large square matrix product, the best of five: 100 % of the shares."""
    import torch

    size = 8192 if device == "cuda" else 512
    one, other = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    best = 0.0
    for _ in range(6):
        settle(device)
        began = time.perf_counter()
        for _ in range(4):
            one @ other
        settle(device)
        best = max(best, 4 * size**3 / (time.perf_counter() - began))
    return best


def work_of(config: Any, lengths: Sequence[int]) -> float:
    """Multiply-adds of one pass over texts of so many real tokens, by a transformers config of BERT's kind."""
    width, layers = config.hidden_size, config.num_hidden_layers
    linear = layers * (4 * width**2 + 2 * width * config.intermediate_size)
    return float(sum(n * linear + 2 * layers * width * n * n for n in lengths))


def settle(device: str) -> None:
    """Wait until the device has done all that it was asked."""
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


def torch_type(precision: str) -> Any:
    """bf16 -> torch.bfloat16 and so on."""
    import torch

    return {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
