"""What a protocol's results are: its metrics, each with the direction that is better, unit, decimals and range."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isnan
from typing import Literal, get_args

Better = Literal["higher", "lower", "neither"]
Range = tuple[float, float]
TOLERANCE = 1e-6  # of a score at an end of its range: rounding


@dataclass(frozen=True)
class Metric:
    """One metric of a protocol, as its rows hold it.

    better: which of two scores wins; neither: the metric describes, and ranks nothing. scale: what the rows are multiplied
    by, 100 as papers print correlations and shares, or 1. digits: decimals that are shown. range: both ends included, in the
    unit of the rows; a score beyond them is an error.
    """

    better: Better = "higher"
    scale: Literal[1, 100] = 100
    digits: int = 2
    range: Range = (-inf, inf)

    def __post_init__(self) -> None:
        if self.better not in get_args(Better):
            raise ValueError(f"better must be 'higher', 'lower' or 'neither', not {self.better!r}")
        if self.scale not in (1, 100):
            raise ValueError(f"scale must be 1 or 100, not {self.scale!r}")
        if not isinstance(self.digits, int) or not 0 <= self.digits <= 9:
            raise ValueError(f"digits must be 0 to 9, not {self.digits!r}")
        if len(self.range) != 2 or any(map(isnan, self.range)) or not self.range[0] < self.range[1]:
            raise ValueError(f"range must be two numbers, the lower one first, not {self.range!r}")

    @property
    def lower(self) -> bool:
        """Whether a smaller score is a better one."""
        return self.better == "lower"

    @property
    def sign(self) -> int:
        """sign * score: sorted by it, the best score comes first; the smallest where neither end is better."""
        return -1 if self.better == "higher" else 1

    def holds(self, value: float) -> bool:
        """Whether a score can have this value."""
        low, high = self.range
        return low - TOLERANCE <= value <= high + TOLERANCE


CORRELATION = Metric(range=(-100.0, 100.0))
SHARE = Metric(range=(0.0, 100.0))  # an accuracy, a recall: x 100
UNDECLARED = Metric("neither")  # of a protocol that is not installed: nothing is known of its scores


def find_metric(metrics: Mapping[str, Metric], name: str) -> Metric | None:
    """The metric called `name`, that of its family ("recall" of "recall@10"), or "*", what is said of all others."""
    return metrics.get(name) or metrics.get(name.partition("@")[0]) or metrics.get("*")
