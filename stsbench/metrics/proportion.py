"""The interval of a share, such as an accuracy."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from stsbench.metrics.bootstrap import Ints


def wilson(hits: float, n: float) -> tuple[float, float]:
    """The 95 % score interval of a share of `hits` among n > 0 (Wilson 1927, JASA 22:209-212), within 0 and 1."""
    z, share = 1.959963984540054, hits / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    spread = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    # The ends are exact where all or none hit, up to rounding.
    return min(share, max(0.0, middle - spread)), max(share, min(1.0, middle + spread))


def share_interval(hits: NDArray[np.bool_], item: Ints) -> tuple[float, float]:
    """Return the 95 % score interval of the share of (n,) `hits`, n > 0, rows of equal numbers in `item` being one item."""
    effective = effective_rows(item)
    return wilson(int(hits.sum()) * effective / len(hits), effective)


def effective_rows(item: Ints) -> float:
    """Return how many independent rows make a share as noisy as these (Kish 1965, Survey Sampling, section 11.7): the number
    of items where all have as many rows, and fewer elsewhere."""
    sizes = np.unique(item, return_counts=True)[1]
    return len(item) ** 2 / int((sizes**2).sum())
