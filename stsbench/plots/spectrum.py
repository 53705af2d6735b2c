"""Singular values of the sentence matrix, the largest being 1, one line per run (SimCSE, Gao et al. 2021, figure F.1)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stsbench.display.style import COLOURS, COLUMN, DASHES, new_figure
from stsbench.metrics.geometry import relative
from stsbench.plots.runs import drawn, mark_sample

ARRAYS = ("spectrum",)
_FLOOR = 1e-3  # smaller values are left out: rounding noise of a matrix of lower rank would fill the picture


def figure(folders: Sequence[Path]) -> Any:
    """A matplotlib figure. Raises StsbenchError where a run has no geometry record."""
    runs = drawn(folders, ARRAYS)
    drawing = new_figure(COLUMN, 2.4)
    axes = drawing.subplots()
    for number, run in enumerate(runs):
        values = relative(run.observations.arrays["spectrum"])
        values = values[values >= _FLOOR]
        axes.plot(
            np.arange(1, len(values) + 1), values, label=run.label, color=COLOURS[number % len(COLOURS)],
            linestyle=DASHES[number % len(DASHES)],
        )
    axes.set_yscale("log")
    axes.set_xlabel("index of the singular value")
    axes.set_ylabel("singular value (largest = 1)")
    axes.set_xlim(left=0)
    axes.set_ylim(top=1.15)
    if len(runs) > 1:
        axes.legend(loc="best", handlelength=2.4)
    mark_sample(drawing, runs)
    return drawing
