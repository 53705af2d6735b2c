"""Which of AnglE's options go together: whatever would have no effect is refused."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stsbench.errors import StsbenchError
from stsbench.training.api.labelled import unordered
from stsbench.training.api.options import refuse_idle

from .options import AnglEOptions

_RANKED = ("cosine_weight", "angle_weight", "cosine_scale", "angle_scale")


def check_options(options: AnglEOptions) -> None:
    """Raises StsbenchError, one line, for an option without an effect, no loss at all, or scores that ibn cannot use."""
    o, which = options, f"options.format is {options.format}"
    if o.format != "labelled":
        refuse_idle(o, ("label_scores",), which)
    if o.format != "triplets":
        refuse_idle(o, ("cln_weight",), which)
    if o.format == "positives":
        refuse_idle(o, ("ibn_weight", *_RANKED), f"{which}, whose one term has the weight 1")
        return
    contrasted = o.ibn_weight > 0 or (o.format == "triplets" and o.cln_weight > 0)
    if not (contrasted or o.cosine_weight or o.angle_weight):
        raise StsbenchError("options: all weights are 0, and there is no loss: set options.angle_weight")
    if not contrasted:
        refuse_idle(o, ("ibn_scale",), "no in-batch term has a weight")
    for name in ("cosine", "angle"):
        if not getattr(o, f"{name}_weight"):
            refuse_idle(o, (f"{name}_scale",), f"options.{name}_weight is 0")
    scores = set(o.label_scores.values())
    if len(scores) < 2:
        raise StsbenchError("options.label_scores needs two classes with different scores: the loss learns their order")
    if o.format == "labelled" and o.ibn_weight and scores != {0.0, 1.0}:
        raise StsbenchError(f"options.label_scores: {_graded(max(scores - {0.0, 1.0}))}")


def check_scores(options: AnglEOptions, scores: NDArray[np.float64]) -> tuple[int, str] | None:
    """For `Needs.wrong_score`: scores without an order, or graded ones beside in-batch negatives."""
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
