"""The plane of uniformity and alignment, one point a run, coloured by STS average (SimCSE, Gao et al. 2021, figure 3)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stsbench.display.style import COLOURS, COLUMN, new_figure
from stsbench.plots.runs import drawn, mark_sample, sts_average

ARRAYS = ("uniformity",)
# Where a label may stand, best first: (horizontal, vertical, alignment of the text), in points from the marker.
_OFFSETS = [
    (reach * x, reach * y + drop, side, level)
    for reach in (5, 11, 18, 26)
    for x, y, drop, side, level in (
        (1, 0, 0, "left", "center"), (-1, 0, 0, "right", "center"), (0, 1, 0, "center", "bottom"),
        (0, -1, 0, "center", "top"), (0.8, 0.8, 0, "left", "bottom"), (-0.8, 0.8, 0, "right", "bottom"),
        (0.8, -0.8, 0, "left", "top"), (-0.8, -0.8, 0, "right", "top"),
    )
]


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
    _place_labels(drawing, axes, points, [run.label for run in runs])
    return drawing


def _place_labels(drawing: Any, axes: Any, points: Sequence[tuple[float, float]], labels: Sequence[str]) -> None:
    """Write each label where it covers no point, no other label and stays in the axes; else where it covers least."""
    from matplotlib.transforms import Bbox

    drawing.draw_without_rendering()  # fixes the layout, so that positions in pixels are known
    drawing.set_layout_engine("none")
    renderer = drawing.canvas.get_renderer()
    size = 4.0 * drawing.dpi / 72
    taken = [Bbox.from_bounds(x - size, y - size, 2 * size, 2 * size) for x, y in axes.transData.transform(points)]
    inside = axes.get_window_extent(renderer)
    for point, label in zip(points, labels, strict=True):
        best: tuple[float, Any, Any] | None = None
        for x, y, side, level in _OFFSETS:
            note = axes.annotate(
                label, point, xytext=(x, y), textcoords="offset points", ha=side, va=level, fontsize=7,
                annotation_clip=False,
            )
            box = note.get_window_extent(renderer)
            covered = sum(_overlap(box, other) for other in taken)
            outside = box.width * box.height - _overlap(box, inside)
            cost = covered + outside
            if best is None or cost < best[0] - 1e-9:
                if best is not None:
                    best[1].remove()
                best = (cost, note, box)
            else:
                note.remove()
            if best[0] <= 1e-9:
                break
        assert best is not None
        taken.append(best[2])


def _overlap(first: Any, second: Any) -> float:
    """Shared area of two boxes, square pixels."""
    width = min(first.x1, second.x1) - max(first.x0, second.x0)
    height = min(first.y1, second.y1) - max(first.y0, second.y0)
    return float(max(width, 0) * max(height, 0))
