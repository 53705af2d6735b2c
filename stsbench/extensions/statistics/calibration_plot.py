"""Can a probability of a match be trusted, and how similar are pairs of either kind?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.display.style import COLOURS, GREY, PAGE, new_figure, style
from stsbench.metrics.calibration import Bin, Curve

Floats = NDArray[np.float64]
BARS = 40  # of a histogram


def figure(bins: Sequence[Bin], similarity: Floats, label: NDArray[np.int64], curve: Curve, title: str) -> Any:
    """A matplotlib figure of two panels. Left: `bins` of held-out pairs, how often they match against their probability.
    Right: how many pairs of each kind are how similar, and the curve.

    similarity: float (n,); label: (n,), 1 for a match.
    """
    with style():
        drawing = new_figure(PAGE, 2.9)
        left, right = drawing.subplots(1, 2)
        left.plot([0, 1], [0, 1], "--", color=GREY, linewidth=0.8)
        for one in bins:
            left.plot([one.probability] * 2, [one.low, one.high], "-", color=COLOURS[0], linewidth=1)
        left.plot([one.probability for one in bins], [one.share for one in bins], "o", color=COLOURS[0], markersize=4)
        left.set_xlabel("probability of a match, by the other folds")
        left.set_ylabel("share that matches, 95 %")
        left.set_title(title, loc="left", wrap=True)
        edges = np.linspace(float(similarity.min()), float(similarity.max()), BARS + 1)
        for kind, name, colour in ((1, "match", COLOURS[0]), (0, "no match", COLOURS[1])):
            right.hist(similarity[label == kind], edges, color=colour, alpha=0.55, label=name)
        right.set_xlabel("similarity")
        right.set_ylabel("pairs")
        drawing.legend(loc="outside lower right", ncols=3)
        probability = right.twinx()
        probability.spines["right"].set_visible(True)
        probability.plot(edges, curve(edges), color="black", linewidth=1)
        probability.set_ylim(0, 1)
        probability.set_ylabel("probability of a match")
    return drawing
