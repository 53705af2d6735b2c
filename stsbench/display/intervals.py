"""Scores or differences with their 95 % intervals, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stsbench.display.style import COLOURS, GREY, PAGE, new_figure, shown_in_notebook, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROW = 0.22  # inches that a row takes


def interval_axes(
    names: Sequence[str], values: Sequence[float], bounds: Sequence[tuple[float | None, float | None]], label: str, *,
    filled: Sequence[bool] | None = None, zero: bool = False, title: str = "", axes: Axes | None = None,
) -> Axes:
    """n named values, the first at the top, each a dot on the line of its interval; one without an interval is a dot alone.

    label: of the axis of the values; filled: which dots are, all by default; zero: a line at 0, for differences. axes: to
    draw on; None: those of a new figure, as high as n needs.
    """
    with style():
        new = axes is None
        if axes is None:
            axes = new_figure(PAGE, 0.7 + 0.2 * len(title.splitlines()) + ROW * len(names)).subplots()
        if zero:
            axes.axvline(0, color=GREY, linewidth=0.8, zorder=0)
        for y, (value, (low, high)) in enumerate(zip(values, bounds, strict=True)):
            if low is not None and high is not None:
                axes.plot([low, high], [y, y], color=COLOURS[0], linewidth=1.2)
            fill = COLOURS[0] if filled is None or filled[y] else "white"
            axes.plot([value], [y], "o", color=COLOURS[0], markerfacecolor=fill, markersize=4, linestyle="")
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.grid(axis="x", color=GREY, alpha=0.25, linewidth=0.5)
        axes.set_xlabel(label)
        axes.set_title(title, loc="left", wrap=True)
    if new:
        shown_in_notebook(axes.figure)
    return axes
