"""Independent random streams of one run: a generator for each use, epoch and step, whatever was drawn before."""

from __future__ import annotations

from typing import Literal

import numpy as np

# numpy takes a short key for the same as one with zeros behind it: every key here has the same length.
_USES = {
    "order": 1, "views": 2, "held-out rows": 3, "sample": 4, "held-out views": 5, "labelled order": 6, "labelled views": 7,
    "share": 8,
}
Use = Literal[
    "order", "views", "held-out rows", "sample", "held-out views", "labelled order", "labelled views", "share"
]


def stream(seed: int, use: Use, stage: int = 0, first: int = 0, second: int = 0) -> np.random.Generator:
    """The generator of one use; first, second: epoch, or step and forward pass, or the place of a batch."""
    return np.random.default_rng((seed, _USES[use], stage, first, second))
