"""Which scores AnglE's options can use."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stsbench.training.api.labelled import unordered

from .options import AnglEOptions


def check_scores(options: AnglEOptions, scores: NDArray[np.float64]) -> tuple[int, str] | None:
    """Return what `Needs.wrong_score` returns of scores without an order, or graded ones beside in-batch negatives."""
    if options.ibn_weight:
        graded = np.flatnonzero((scores != 0) & (scores != 1))
        if len(graded):
            return int(graded[0]), _graded(float(scores[graded[0]]))
        if options.cosine_weight == options.angle_weight == 0:
            return None  # nothing is ranked
    return unordered(scores)


def _graded(score: float) -> str:
    return (
        f"the score {score:g}, and in-batch negatives (options.ibn_weight) take 0 and 1 alone: set options.ibn_weight 0, or "
        "make the scores 0 and 1"
    )
