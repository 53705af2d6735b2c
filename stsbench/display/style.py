"""Style of all plots (column widths, colour-blind-safe colours), and writing them as reproducible files."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stsbench.errors import StsbenchError
from stsbench.files import atomic_write
from stsbench.notebook import in_notebook

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMN, PAGE = 3.3, 6.9  # inches: one column of a two-column paper, and both
SUFFIXES = (".png", ".svg")
# Okabe & Ito (2008), distinguishable by colour-blind readers; yellow, too pale for a line on white, is left out.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--", "-.", ":")
GREY = "#555555"
_RC: Any = {
    "font.family": "DejaVu Sans", "font.size": 8, "axes.labelsize": 8, "axes.titlesize": 8, "xtick.labelsize": 7,
    "ytick.labelsize": 7, "legend.fontsize": 7, "axes.spines.top": False, "axes.spines.right": False,
    "axes.linewidth": 0.6, "xtick.major.width": 0.6, "ytick.major.width": 0.6, "lines.linewidth": 1.2,
    "legend.frameon": False, "savefig.dpi": 300, "svg.hashsalt": "stsbench", "svg.fonttype": "path", "text.usetex": False,
    "axes.unicode_minus": True, "text.parse_math": False,  # a name with two dollar signs is not a formula
}
ROW = 0.22  # height of a row in inches


@contextmanager
def style() -> Iterator[None]:
    """Set the style of plots within the block, independent of a user's matplotlibrc."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_RC)
        yield


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure of this size in inches, without a display, a window or pyplot's global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = _figure_class()(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


@cache
def _figure_class() -> Any:
    """Return a subclass of matplotlib's Figure that notebooks can show without pyplot."""
    from matplotlib import figure

    class Figure(figure.Figure):
        def _repr_svg_(self) -> str:
            return figure_bytes(self, "svg").decode()

    return Figure


def shown_in_notebook(figure: Any) -> Any:
    """Return the figure, registered with pyplot in a notebook, which then shows it below the cell with all later changes.

    It must not be called within `style`, whose end would reset the notebook backend that pyplot sets when it is loaded.
    """
    if in_notebook():
        from matplotlib import pyplot

        pyplot.figure(figure)
    return figure


def targets(output: Path) -> list[Path]:
    """Return the files that `--output` stands for: the path itself, or .png and .svg of it when it has no suffix.

    Raises StsbenchError for another suffix.
    """
    if not output.suffix:
        return [output.with_name(output.name + suffix) for suffix in SUFFIXES]
    if output.suffix.lower() not in SUFFIXES:
        raise StsbenchError(f"unknown suffix '{output.suffix}' of {output}: pictures are written as .png or .svg")
    return [output]


def save(figure: Any, output: Path) -> list[Path]:
    """Write the figure to every file of `targets`, with the same bytes for the same figure, and return the files. Raises
    StsbenchError for an unknown suffix."""
    written = targets(output)
    for path in written:
        content = figure_bytes(figure, path.suffix.lower()[1:])
        with atomic_write(path, "wb") as stream:
            stream.write(content)
    return written


def figure_bytes(figure: Any, kind: str) -> bytes:
    """Return the content of a png or svg file of the figure, in the resolution of `style`."""
    content = io.BytesIO()
    metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
    with style():
        # Only labels of logarithmic axes are parsed as formulas, as powers of ten have a raised exponent.
        axes = [axis for panel in figure.axes for axis in (panel.xaxis, panel.yaxis) if axis.get_scale() == "log"]
        if axes:
            figure.draw_without_rendering()  # ticks are created when a figure is drawn
        for tick in (tick for axis in axes for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks())):
            tick.label1.set_parse_math(True)
        figure.savefig(content, format=kind, metadata=metadata)
    return content.getvalue()


def interval_axes(
    names: Sequence[str], values: Sequence[float], bounds: Sequence[tuple[float | None, float | None]], label: str, *,
    filled: Sequence[bool] | None = None, zero: bool = False, title: str = "", axes: Axes | None = None,
) -> Axes:
    """Draw n named values, the first at the top, as dots on the lines of their intervals, if any, and return the axes.

    label: of the axis of values; filled: which dots are filled, by default all; zero: whether to draw a line at 0, for
    differences; axes: to draw on; None: those of a new figure of sufficient height.
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
