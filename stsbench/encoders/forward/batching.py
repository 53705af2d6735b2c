"""Which texts share a batch: sorted by length, packed to a token budget, and the order restored afterwards.

A batch holds texts of nearly equal length, so little or nothing is padded; the budget bounds memory where a fixed
number of texts would not. Longest first: what does not fit into memory fails on the first batch, not after an hour.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Groups = list[tuple[int, int]]  # (texts, tokens of each), in the order of a batch


def longest_first(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions (n,) of the texts in the order they are encoded; equal lengths keep their order."""
    return np.argsort(-lengths, kind="stable")


def batch_end(lengths: NDArray[np.int64], start: int, budget: int) -> int:
    """Where the batch that begins at `start` ends: its padded size (texts x longest) stays within `budget`.

    lengths: (n,), descending. One text at least, whatever the budget.
    """
    return min(len(lengths), start + max(1, budget // max(1, int(lengths[start]))))


def groups(lengths: NDArray[np.int64]) -> Groups:
    """Runs of equal length in a sorted batch: [(texts, tokens of each), ...]."""
    edges = np.flatnonzero(np.diff(lengths)) + 1
    bounds = [0, *edges.tolist(), len(lengths)]
    return [(stop - start, int(lengths[start])) for start, stop in pairwise(bounds) if stop > start]


def flatten(ids: Sequence[Sequence[int]], order: NDArray[np.int64]) -> NDArray[np.int64]:
    """All token ids, text after text in `order`: (tokens,)."""
    total = sum(len(row) for row in ids)
    return np.fromiter((token for i in order.tolist() for token in ids[i]), dtype=np.int64, count=total)
