"""Plots of score against cost: the Pareto front, drawn with intervals and as steps; and placement of labels at points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from typing import Any

from stsbench.display.style import COLOURS, GREY, PAGE, new_figure, style
from stsbench.errors import StsbenchError

REACHES = (5, 11, 18, 26)  # distances of a label from its marker, in points of 1/72 inch
FAR = (*REACHES, 36, 48, 62, 78, 96)  # distances for plots with many points
_LEAD = 11  # distance from which a line connects the label with its marker
_MARKER = 4.0  # a marker's radius in points, and a margin
_WIDE = 10.0  # ratio of the largest to the smallest cost from which the axis is logarithmic


def _offsets(reaches: Sequence[int]) -> list[tuple[float, float, str, str]]:
    """Return the possible positions of a label, best first: x and y in points from the marker, horizontal and vertical
    alignment."""
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
    """Draw each label inside the axes where it covers no point or other label, or else where it covers the least area.

    lines: paths of horizontal and vertical strokes, in data coordinates, that labels avoid, too. lead: connect a distant
    label with its point by a thin line. The layout is fixed, so everything else must be drawn before.
    """
    from matplotlib.transforms import Bbox

    drawing.draw_without_rendering()  # computes the layout, so that positions in pixels are known
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
    """Return the box of a text of this size at an offset from its point, in pixels."""
    from matplotlib.transforms import Bbox

    x, y, side, level = offset
    left = {"left": 0.0, "center": 0.5, "right": 1.0}[side]
    below = {"bottom": 0.0, "center": 0.5, "top": 1.0}[level]
    return Bbox.from_bounds(spot[0] + x * unit - left * width, spot[1] + y * unit - below * height, width, height)


def overlap(first: Any, second: Any) -> float:
    """Return the area that two boxes share, in square pixels."""
    width = min(first.x1, second.x1) - max(first.x0, second.x0)
    height = min(first.y1, second.y1) - max(first.y0, second.y0)
    return float(max(width, 0) * max(height, 0))


@dataclass(frozen=True)
class Point:
    """A point of the plot, such as an encoder: its cost, its score, the ends of the score's interval, if it has one, and the
    smallest and largest measurement of a timed cost. Raises StsbenchError unless all are finite."""

    name: str
    cost: float
    score: float
    low: float | None = None
    high: float | None = None
    least: float | None = None
    most: float | None = None

    def __post_init__(self) -> None:
        ends = (self.low or 0.0, self.high or 0.0, self.least or 0.0, self.most or 0.0)
        if not all(isfinite(value) for value in (self.cost, self.score, *ends)):
            raise StsbenchError(f"{self.name}: cost {self.cost} and score {self.score} must be finite numbers")

    @property
    def costs(self) -> tuple[float, float]:
        """Return the smallest and the largest cost, equal where the cost was not timed."""
        return self.cost if self.least is None else self.least, self.cost if self.most is None else self.most


def front(points: Sequence[Point], lower_is_better: bool = False, *, more_is_cheaper: bool = False) -> list[bool]:
    """Return for each point whether it is on the Pareto front: no other is at least as good in both cost and score, and
    better in one. Costs whose ranges overlap count as equal.

    lower_is_better: of scores; more_is_cheaper: for costs that are a speed.
    """

    def beats(first: Point, second: Point) -> bool:
        gain = first.score - second.score if not lower_is_better else second.score - first.score
        if gain < 0:
            return False
        return not _cheaper(second, first, more_is_cheaper) if gain else _cheaper(first, second, more_is_cheaper)

    return [not any(beats(other, point) for other in points) for point in points]


def _cheaper(first: Point, second: Point, more_is_cheaper: bool) -> bool:
    """Return whether `first` costs less than `second` in every measurement."""
    return first.costs[0] > second.costs[1] if more_is_cheaper else first.costs[1] < second.costs[0]


def figure(
    points: Sequence[Point], title: str, cost_label: str, score_label: str, *, lower_is_better: bool = False,
    more_is_cheaper: bool = False, note: str = "",
) -> Any:
    """Return a matplotlib figure of points with their intervals, those of the Pareto front filled and joined by steps. The
    cost axis is logarithmic where costs are positive and the largest is at least ten times the smallest.

    note: a line below the axis, such as the machine of the costs. Raises StsbenchError where there is no point.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    if not points:
        raise StsbenchError("no point to draw: nothing has both a cost and a score")
    best = front(points, lower_is_better, more_is_cheaper=more_is_cheaper)
    with style():
        drawing = new_figure(PAGE, 4.2)
        axes = drawing.subplots()
        costs = [point.cost for point in points]
        if min(costs) > 0 and max(costs) >= _WIDE * min(costs):
            axes.set_xscale("log")  # with ticks 1, 2, 5, 10, ..., which are easier to read than powers of ten
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=8))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
        axes.margins(0.14, 0.12)
        lines = [line for point, on in zip(points, best, strict=True) for line in _draw(axes, point, on)]
        stair = _stair([point for point, on in zip(points, best, strict=True) if on], more_is_cheaper)
        axes.plot(*zip(*stair, strict=True), color=COLOURS[0], linewidth=1, zorder=1)
        axes.grid(color=GREY, alpha=0.2, linewidth=0.5)
        axes.set_xlabel(cost_label + (f"\n{note}" if note else ""))
        axes.set_ylabel(score_label)
        axes.set_title(title, loc="left", wrap=True)
        drawing.legend(handles=_legend(points), loc="outside lower center", ncols=3)
        # Labels of the front are placed first, so that they get the nearest positions.
        order = sorted(range(len(points)), key=lambda i: (not best[i], points[i].cost, points[i].score))
        place_labels(drawing, axes, [(points[i].cost, points[i].score) for i in order], [points[i].name for i in order],
                     reaches=FAR, lines=[*lines, stair], lead=True)
    return drawing


def _draw(axes: Any, point: Point, on: bool) -> list[list[tuple[float, float]]]:
    """Draw a point, with its interval and the range of its cost, if it has them, and return these as lines."""
    colour = COLOURS[0] if on else GREY
    lines = []
    if point.low is not None and point.high is not None:
        lines.append([(point.cost, point.low), (point.cost, point.high)])
        axes.plot(*zip(*lines[0], strict=True), "-_", color=colour, linewidth=0.8, markersize=4, alpha=0.7, zorder=2)
    if point.costs[0] < point.costs[1]:
        lines.append([(cost, point.score) for cost in point.costs])
        axes.plot(*zip(*lines[-1], strict=True), "-", color=colour, linewidth=0.8, alpha=0.7, zorder=2)
    axes.plot([point.cost], [point.score], "o", color=colour, markerfacecolor=colour if on else "white", markersize=5,
              zorder=3)
    return lines


def _stair(best: Sequence[Point], more_is_cheaper: bool) -> list[tuple[float, float]]:
    """Return the corners of the steps that show the best score for at most a cost, or at least a speed; the first and the
    last are points of the front."""
    ranked = sorted({(point.cost, point.score) for point in best})
    corners = ranked[:1]
    for cost, score in ranked[1:]:
        corners += [(corners[-1][0], score) if more_is_cheaper else (cost, corners[-1][1]), (cost, score)]
    return corners


def _legend(points: Sequence[Point]) -> list[Any]:
    from matplotlib.lines import Line2D

    marks = [("o", "-", COLOURS[0], COLOURS[0], "no other is cheaper and better"),
             ("o", "", GREY, "white", "another beats it in one and is no worse in the other")]
    if any(point.low is not None for point in points):
        marks.append(("|", "", GREY, GREY, "95 % interval"))
    return [Line2D([], [], linestyle=line, marker=mark, color=colour, markerfacecolor=fill, markersize=5, label=text)
            for mark, line, colour, fill, text in marks]
