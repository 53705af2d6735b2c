"""The README's forest plot: the best rows of STS (Spearman, all), each with its score, its interval and that of its rank."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from xml.sax.saxutils import escape

from stsbench.leaderboard.page.tables import SHORT, comparable, readme_tab
from stsbench.leaderboard.ranks.board import Board, Row, Tab

from .picture import COLOURS, DARK_STYLE, MUTED, PAPER, TEXT, ticks

ROWS = 10  # the most rows for each kind of training
# In user units: a width of 590 is still readable on a phone, and LEFT leaves room for LONGEST characters of a label.
WIDTH, LEFT, RIGHT, LINE, TOP, FOOT = 590.0, 292.0, 470.0, 21.0, 46.0, 73.0
LONGEST, NEXT = 42, 13.0  # characters of a label's line; the height of each further line
NOTES = (
    "Dot: average of the seven tasks, × 100; line: its 95 % interval. Filled: could be first.",
    "Rank: its 95 % interval, jointly, among all rows measured here. Test sentences: of any of",
    "the seven tasks, as an encoder's makers or its records show; else unknown.",
)


def forest(board: Board) -> str:
    """Return the forest plot as the text of an SVG file, in light and dark; "" where nothing has been measured. Equal boards
    give equal bytes.

    A filled dot is a row that could be first at 95 %, jointly with all others.
    """
    tab = readme_tab(board)
    groups = {name: some[:ROWS] for name, some in comparable(tab).items() if name != SHORT} if tab else {}
    rows = [row for some in groups.values() for row in some]
    if tab is None or not rows:
        return ""
    low, high = _limits(tab, rows)

    def across(value: float) -> float:
        return LEFT + (value - low) / (high - low) * (RIGHT - LEFT)

    methods = [row.method for row in rows]
    labels = {row.id: _label(row, methods.count(row.method) > 1) for row in rows}
    heights = {name: LINE + NEXT * (len(label) - 1) for name, label in labels.items()}
    bottom = TOP + LINE * len(groups) + sum(heights.values())
    height = bottom + FOOT
    title = f"STS, {tab.title}: encoders by what they were trained on"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(WIDTH)} {_n(height)}" width="{_n(1.25 * WIDTH)}" '
        f'height="{_n(1.25 * height)}" role="img" aria-labelledby="forest-title" font-family="system-ui, sans-serif" '
        f'font-size="12" fill="{TEXT}">',
        f'<title id="forest-title">{escape(title)}</title>',
        DARK_STYLE,
        f'<rect width="{_n(WIDTH)}" height="{_n(height)}" fill="{PAPER}"/>',
        _words(10, 20, title, weight=600),
        _words(RIGHT + 20, TOP - 8, "Avg", weight=600),
        _words(RIGHT + 66, TOP - 8, "Rank", weight=600),
    ]
    for tick in ticks(low, high):
        parts.append(f'<line x1="{_n(across(tick))}" x2="{_n(across(tick))}" y1="{_n(TOP)}" y2="{_n(bottom)}" '
                     'stroke="currentColor" stroke-opacity="0.15"/>')
        parts.append(_words(across(tick), bottom + 16, f"{tick:g}", anchor="middle"))
    y = TOP
    for group, some in groups.items():
        parts.append(_words(10, y + 0.5 * LINE + 4, f"Trained on {group}", weight=600))
        y += LINE
        for row in some:
            parts += _draw_row(tab, row, labels[row.id], y + heights[row.id] / 2, across)
            y += heights[row.id]
    parts += [_words(10, bottom + 36 + 15 * number, line, colour=MUTED) for number, line in enumerate(NOTES)]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _label(row: Row, shared: bool) -> list[str]:
    """Return a row's method on as many lines as needed, with the backbone if `shared`: other rows have the same method."""
    name = f"{row.method} ({row.backbone})" if shared else row.method
    return textwrap.wrap(" ".join(name.split()), LONGEST) or [row.id]


def _draw_row(tab: Tab, row: Row, label: Sequence[str], y: float, across: Callable[[float], float]) -> list[str]:
    cell, rank = row.cells[tab.lead], row.rank
    assert rank is not None
    colour, first = COLOURS[0], y + 4 - NEXT * (len(label) - 1) / 2
    parts = [_words(LEFT - 14, first + NEXT * number, line, anchor="end") for number, line in enumerate(label)]
    if cell.low is not None and cell.high is not None:
        parts.append(f'<line x1="{_n(across(cell.low))}" x2="{_n(across(cell.high))}" y1="{_n(y)}" y2="{_n(y)}" '
                     f'stroke="{colour}" stroke-width="2"/>')
    fill = colour if rank.first == 1 else PAPER
    parts.append(f'<circle cx="{_n(across(cell.value))}" cy="{_n(y)}" r="3.5" fill="{fill}" stroke="{colour}" '
                 'stroke-width="1.5"/>')
    parts.append(_words(RIGHT + 20, y + 4, f"{cell.value:.{tab.digits}f}"))
    parts.append(_words(RIGHT + 66, y + 4, rank.interval))
    return parts


def _limits(tab: Tab, rows: Sequence[Row]) -> tuple[float, float]:
    cells = [row.cells[tab.lead] for row in rows]
    low = min(cell.value if cell.low is None else cell.low for cell in cells)
    high = max(cell.value if cell.high is None else cell.high for cell in cells)
    margin = max(0.03 * (high - low), 0.05)  # never 0, even for a single row without an interval
    return low - margin, high + margin


def _words(x: float, y: float, text: str, anchor: str = "start", weight: int = 400, colour: str = "currentColor") -> str:
    look = "" if colour == "currentColor" else f' fill="{colour}"'
    bold = "" if weight == 400 else f' font-weight="{weight}"'
    return f'<text x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}"{bold}{look}>{escape(text)}</text>'


def _n(number: float) -> str:
    return f"{round(number, 2) + 0.0:.2f}".rstrip("0").rstrip(".")
