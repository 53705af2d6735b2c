"""Scores over prompts: a strip of points for each task, with the default, its interval over items, and the controls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stsbench.display.style import COLOURS, GREY, PAGE, new_figure, style

_ROW = 0.42  # inches that a task takes


@dataclass(frozen=True)
class Strip:
    """One task: scores behind its prompts; the default with its 95 % interval over items; without a prompt; behind one that
    says nothing."""

    name: str
    scores: tuple[float, ...]
    default: float
    items: tuple[float | None, float | None]
    none: float | None
    neutral: float | None


def figure(strips: Sequence[Strip], title: str, label: str, neutral: str) -> Any:
    """A matplotlib figure, the first task at the top. label: of the axis; neutral: the prompt that says nothing."""
    with style():
        drawing = new_figure(PAGE, 1.1 + _ROW * len(strips))
        axes = drawing.subplots()
        for y, strip in enumerate(strips):
            low, high = strip.items
            if low is not None and high is not None:
                axes.plot([low, high], [y - 0.22, y - 0.22], color=COLOURS[0], linewidth=1.2)
            axes.plot([strip.default], [y - 0.22], "o", color=COLOURS[0], markersize=4.5)
            axes.plot(strip.scores, [y + 0.12] * len(strip.scores), "|", color=GREY, markersize=8, markeredgewidth=0.8)
            for value, mark, colour in ((strip.none, "s", COLOURS[1]), (strip.neutral, "^", COLOURS[2])):
                if value is not None:
                    axes.plot([value], [y + 0.12], mark, color=colour, markerfacecolor="white", markersize=4.5)
        axes.set_yticks(range(len(strips)), [strip.name for strip in strips])
        axes.set_ylim(len(strips) - 0.4, -0.6)
        axes.grid(axis="x", color=GREY, alpha=0.25, linewidth=0.5)
        axes.set_xlabel(label)
        axes.set_title(title, loc="left", wrap=True)
        drawing.legend(handles=_legend(strips, neutral), loc="outside lower center", ncols=4)
    return drawing


def _legend(strips: Sequence[Strip], neutral: str) -> list[Any]:
    from matplotlib.lines import Line2D

    marks = [("o", COLOURS[0], COLOURS[0], "default, 95 % over items"), ("|", GREY, GREY, "one prompt")]
    if any(strip.none is not None for strip in strips):
        marks.append(("s", COLOURS[1], "white", "no prompt"))
    if any(strip.neutral is not None for strip in strips):
        marks.append(("^", COLOURS[2], "white", f"behind {neutral!r}"))
    return [Line2D([], [], linestyle="", marker=mark, color=colour, markerfacecolor=fill, markersize=5, label=text)
            for mark, colour, fill, text in marks]
