"""The plane of uniformity and alignment, one point a run, coloured by STS average (SimCSE, Gao et al. 2021, figure 3)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stsbench.display.style import COLOURS, COLUMN, new_figure
from stsbench.plots.labels import place_labels
from stsbench.plots.runs import drawn, mark_sample, sts_average

ARRAYS = ("uniformity",)


def figure(folders: Sequence[Path]) -> Any:
    """A matplotlib figure. Raises StsbenchError where a run has no geometry record."""
    runs = drawn(folders, ARRAYS)
    points = [(run.value("uniformity"), run.value("alignment")) for run in runs]
    averages = [sts_average(run.folder) for run in runs]
    drawing = new_figure(COLUMN, 2.6)
    axes = drawing.subplots()
    axes.margins(0.2)
    if len({average for average in averages if average is not None}) < 2:
        averages = [None] * len(runs)  # one average makes no colour scale: all points look alike
    known = [(point, average) for point, average in zip(points, averages, strict=True) if average is not None]
    unknown = [point for point, average in zip(points, averages, strict=True) if average is None]
    if known:
        dots = axes.scatter(
            *zip(*(point for point, _ in known), strict=True), c=[average for _, average in known], cmap="viridis", s=26,
            edgecolors="black", linewidths=0.5, zorder=3,
        )
        bar = drawing.colorbar(dots, ax=axes, pad=0.02, aspect=25)
        bar.set_label("STS average (Spearman × 100)")
        bar.outline.set_linewidth(0.5)
    if unknown:
        # No average, no colour: hollow beside coloured ones; filled where none is coloured.
        face = "white" if known else COLOURS[0]
        axes.scatter(*zip(*unknown, strict=True), s=26, facecolors=face, edgecolors="black", linewidths=0.5, zorder=3)
    axes.set_xlabel("uniformity (lower: more uniform)")
    axes.set_ylabel("alignment (lower: closer pairs)")
    mark_sample(drawing, runs)
    place_labels(drawing, axes, points, [run.label for run in runs])
    return drawing
