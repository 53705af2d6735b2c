"""Densities of the cosines of STS-B's pairs, by human rating, one panel per run (SimCSE, Gao et al. 2021, figure G.1)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.display.style import COLUMN, GREY, PAGE, new_figure
from stsbench.metrics.geometry import RATINGS, by_rating
from stsbench.plots.runs import Drawn, drawn, mark_sample

Floats = NDArray[np.float64]
ARRAYS = ("cosine", "similarity")
_HEIGHT = 0.92  # how far a density reaches, in steps from group to group: none hides another
_TAIL = 0.01  # share of its peak below which a density's tail is left out


def figure(folders: Sequence[Path]) -> Any:
    """A matplotlib figure. Raises StsbenchError where a run has no cosines of STS-B."""
    runs = drawn(folders, ARRAYS)
    groups = [by_rating(_cosine(run), run.observations.arrays["gold"]) for run in runs]
    columns = {1: 1, 2: 2, 4: 2}.get(len(runs), 3)
    rows = -(-len(runs) // columns)
    drawing = new_figure(COLUMN if columns == 1 else PAGE, 2.3 * rows + 0.2)
    panels = drawing.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    grid = np.linspace(left_edge([cosine for group in groups for cosine in group.values()]), 1.0, 400)
    for panel, run, cosines in zip(panels, runs, groups, strict=False):
        _ridges(panel, cosines, grid)
        panel.tick_params(labelbottom=True)
        if len(runs) > 1:
            panel.set_title(run.label)
    for panel in panels[len(runs) :]:
        panel.remove()
    for panel in panels[max(0, len(runs) - columns) : len(runs)]:
        panel.set_xlabel("cosine similarity")
    for panel in panels[: len(runs) : columns]:
        panel.set_ylabel("human rating")
    mark_sample(drawing, runs)
    return drawing


def left_edge(groups: Sequence[Floats]) -> float:
    """Where the axis begins, a multiple of 0.1: left of every cosine, and of every density from _TAIL of its peak on."""
    grid = np.linspace(-1.0, 1.0, 2001)
    lowest = min(float(cosine.min()) for cosine in groups)
    for cosine in groups:
        curve = density(cosine, grid)
        if curve.any():
            lowest = min(lowest, float(grid[np.argmax(curve >= _TAIL * curve.max())]))
    return max(-1.0, float(np.floor(10 * lowest)) / 10)


def density(values: Floats, grid: Floats) -> Floats:
    """Gaussian kernel density (Scott's bandwidth) of (n,) cosines at (g,) points; mass outside [-1, 1] is reflected.

    Zero throughout when fewer than two values differ: one value has no density.
    """
    from scipy.stats import gaussian_kde

    if len(values) < 2 or np.ptp(values) < 1e-9:
        return np.zeros_like(grid)
    kernel = gaussian_kde(values)
    return np.asarray(kernel(grid) + kernel(2 - grid) + kernel(-2 - grid))


def _ridges(panel: Any, groups: dict[str, Floats], grid: Floats) -> None:
    """One ridge per rating group, low ratings at the bottom, each as high as the others; a tick at each mean."""
    shades = _shades(len(RATINGS))
    for level, name in enumerate(RATINGS):
        panel.axhline(level, color=GREY, linewidth=0.4, zorder=1)
        if name in groups:
            # By its own peak: on one scale, a narrow group at the top flattens all others.
            curve = density(groups[name], grid)
            ridge = level + _HEIGHT * curve / (curve.max() or 1.0)
            panel.fill_between(grid, level, ridge, color=shades[level], linewidth=0, zorder=2)
            mean = float(groups[name].mean())
            for colour, width in (("white", 2.2), ("black", 1.0)):  # to be seen on dark and on light
                panel.vlines(mean, level, level + 0.3, color=colour, linewidth=width, zorder=3)
    panel.set_yticks(range(len(RATINGS)), [name.replace("-", "–") for name in RATINGS])
    panel.tick_params(axis="y", length=0)
    panel.spines["left"].set_visible(False)
    panel.set_xlim(grid[0], grid[-1])
    panel.set_ylim(-0.08, len(RATINGS) - 1 + _HEIGHT + 0.05)


def _shades(count: int) -> list[Any]:
    from matplotlib import colormaps

    return [colormaps["cividis"](0.1 + 0.75 * i / (count - 1)) for i in range(count)]


def _cosine(run: Drawn) -> Floats:
    arrays = run.observations.arrays
    return np.asarray(arrays["cosine"] if "cosine" in arrays else arrays["similarity"], dtype=np.float64)
