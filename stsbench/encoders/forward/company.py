"""Does a text's vector depend on the texts that share its batch? Some models do not honour the attention mask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

# Both begin alike: a causal model's first state is then the same in both.
SHORT = "A cat sleeps."
LONG = "A cat " + "that the old man from the small town saw in the green garden near the river " * 3 + "sleeps."
# Largest difference that rounding explains, of vectors whose largest number is 1: kernels differ with a batch's shape.
_ROUNDING = {"float32": 1e-5, "bfloat16": 5e-2}


def depends_on_company(encode: Callable[[list[str]], Any], dtype: str) -> bool:
    """Whether SHORT has another vector beside LONG than alone.

    encode: texts, all in one batch, to (n, d) vectors.
    """
    alone, together = np.asarray(encode([SHORT]))[0], np.asarray(encode([SHORT, LONG]))[0]
    size = max(1.0, float(np.abs(alone).max(initial=0)))
    return not float(np.abs(alone - together).max(initial=0)) <= _ROUNDING[dtype] * size
