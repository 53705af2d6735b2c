"""The interval of a share, such as an accuracy."""

from __future__ import annotations

import math


def wilson(hits: int, n: int) -> tuple[float, float]:
    """The 95 % score interval of a share of `hits` among n > 0 (Wilson 1927, JASA 22:209-212), within 0 and 1."""
    z, share = 1.959963984540054, hits / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    spread = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    # The ends are exact where all or none hit, up to rounding.
    return min(share, max(0.0, middle - spread)), max(share, min(1.0, middle + spread))
