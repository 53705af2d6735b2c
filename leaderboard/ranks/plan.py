"""A table of the board before its rows are ranked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stsbench.evaluation.schema import Metric

from .significance import Placed

MOST_UNSCORED = 0.05  # of the resamples, as for an interval


@dataclass(frozen=True)
class Plan:
    """A tab before its rows are ranked. number: among tabs of one title; reasons: why each member has no rank, or "";
    able: those that have one."""

    name: str
    number: int
    members: Sequence[Placed]
    columns: tuple[str, ...]
    lead: str
    ranked_by: Metric
    reasons: Sequence[str]
    able: Sequence[int]


def rounded(values: Sequence[float]) -> NDArray[np.float64]:
    """To ten digits: two means of the same seeds in another order are one score, however small the metric's numbers are."""
    return np.array([float(f"{value:.10g}") for value in values])
