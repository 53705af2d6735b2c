"""Names beside points: where they cover no point, no other name and nothing else that is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

REACHES = (5, 11, 18, 26)
FAR = (*REACHES, 36, 48, 62, 78, 96)  # of a crowd
_LEAD = 11  # from this reach on, a line leads from the name to its point
_MARKER = 4.0  # points from a marker's middle to its edge, and a little air


def _offsets(reaches: Sequence[int]) -> list[tuple[float, float, str, str]]:
    """Where a name may stand, best first: (horizontal, vertical, alignment of the text), in points from the marker."""
    return [
        (reach * x, reach * y, side, level)
        for reach in reaches
        for x, y, side, level in (
            (1, 0, "left", "center"), (-1, 0, "right", "center"), (0, 1, "center", "bottom"), (0, -1, "center", "top"),
            (0.8, 0.8, "left", "bottom"), (-0.8, 0.8, "right", "bottom"), (0.8, -0.8, "left", "top"),
            (-0.8, -0.8, "right", "top"),
        )
    ]


def place_labels(
    drawing: Any, axes: Any, points: Sequence[tuple[float, float]], labels: Sequence[str], *,
    reaches: Sequence[int] = REACHES, lines: Sequence[Sequence[tuple[float, float]]] = (), lead: bool = False,
) -> None:
    """Write each label where it covers no point, no other label and stays in the axes; else where it covers least.

    lines: chains of points in the axes' coordinates, of horizontal and vertical strokes, that no label may cover either.
    lead: draw a thin line from a label that stands far off to its point. Fixes the layout: draw everything else before.
    """
    from matplotlib.transforms import Bbox

    drawing.draw_without_rendering()  # fixes the layout, so that positions in pixels are known
    drawing.set_layout_engine("none")
    renderer, unit = drawing.canvas.get_renderer(), drawing.dpi / 72
    spots, size = axes.transData.transform(points), _MARKER * unit
    taken = [Bbox.from_bounds(x - size, y - size, 2 * size, 2 * size) for x, y in spots]
    for line in lines:
        ends = axes.transData.transform(line)
        taken += [Bbox([start - unit, end + unit]) if (start <= end).all() else Bbox([end - unit, start + unit])
                  for start, end in pairwise(ends)]
    inside = axes.get_window_extent(renderer)
    for point, spot, label in zip(points, spots, labels, strict=True):
        note = axes.annotate(label, point, xytext=(0, 0), textcoords="offset points", fontsize=7, annotation_clip=False)
        bounds = note.get_window_extent(renderer)
        best: tuple[float, Any, Any] | None = None
        for offset in _offsets(reaches):
            box = _box(spot, offset, bounds.width, bounds.height, unit)
            cost = sum(overlap(box, other) for other in taken) + bounds.width * bounds.height - overlap(box, inside)
            if best is None or cost < best[0] - 1e-6:
                best = cost, offset, box
            if best[0] <= 1e-6:
                break
        assert best is not None
        x, y, side, level = best[1]
        note.set(position=(x, y), ha=side, va=level)
        taken.append(best[2])
        if lead and max(abs(x), abs(y)) >= 0.8 * _LEAD:
            axes.annotate("", point, xytext=(x, y), textcoords="offset points", annotation_clip=False, zorder=1,
                          arrowprops={"arrowstyle": "-", "color": "#999999", "linewidth": 0.5, "shrinkA": 0, "shrinkB": 2})


def _box(spot: Any, offset: tuple[float, float, str, str], width: float, height: float, unit: float) -> Any:
    """Where a text of this size stands, in pixels."""
    from matplotlib.transforms import Bbox

    x, y, side, level = offset
    left = {"left": 0.0, "center": 0.5, "right": 1.0}[side]
    below = {"bottom": 0.0, "center": 0.5, "top": 1.0}[level]
    return Bbox.from_bounds(spot[0] + x * unit - left * width, spot[1] + y * unit - below * height, width, height)


def overlap(first: Any, second: Any) -> float:
    """Shared area of two boxes, square pixels."""
    width = min(first.x1, second.x1) - max(first.x0, second.x0)
    height = min(first.y1, second.y1) - max(first.y0, second.y0)
    return float(max(width, 0) * max(height, 0))
