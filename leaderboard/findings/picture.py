"""The plot of protocol sensitivity: a line per row, settings on the x axis, averages on the y axis."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from xml.sax.saxutils import escape

from .sensitivity import Sensitivity

# In user units; a width of 480 is readable on a phone of 390 pixels, at four fifths of its size.
WIDTH, LEFT, STEP, GAP, TOP, FOOT = 480.0, 44.0, 45.0, 12.0, 28.0, 46.0
LABEL, LINE = 12, 14.0  # font size, and the height a line of text takes
PLACE, PLACE_LINE = 10, 11.0
CHARACTERS = 22  # the most characters of a label's line at the right
COLOURS = ("#1f6feb", "#ca7050", "#0e4815", "#a0297c", "#5d33a1", "#997406", "#b72449", "#00344b")
DARK_COLOURS = ("#6cb0ff", "#c57d31", "#5ecc8e", "#7276e9", "#8e79c2", "#dfbe5c", "#ffd0d2", "#6aabb5")
TEXT, PAPER, MUTED = "#1f2328", "#ffffff", "#59636e"
_DARK = {PAPER: "#14181d", MUTED: "#9198a1", **dict(zip(COLOURS, DARK_COLOURS, strict=True))}
# A dark page shows the picture in dark colours, since a style overrides the attributes.
DARK_STYLE = "<style>@media (prefers-color-scheme: dark) {{ svg {{ fill: #e6edf3; color: #e6edf3 }} {} }}</style>".format(
    " ".join(f'[{what}="{light}"] {{ {what}: {dark} }}' for light, dark in _DARK.items() for what in ("fill", "stroke"))
)
_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def picture(sensitivity: Sensitivity) -> str:
    """Return the plot as the text of an SVG file, in light and dark. Equal input gives equal bytes on every machine."""
    plan = _Plan(sensitivity)
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(WIDTH)} {_n(plan.height)}" width="{_n(1.5 * WIDTH)}" '
        f'height="{_n(1.5 * plan.height)}" role="img" aria-labelledby="sensitivity-title sensitivity-desc" '
        f'font-family="system-ui, sans-serif" fill="{TEXT}">'
    )
    parts = [
        opening,
        '<title id="sensitivity-title">STS average of the measured rows under each setting</title>',
        f'<desc id="sensitivity-desc">{_text(_described(sensitivity))}</desc>',
        DARK_STYLE,
        f'<rect width="{_n(WIDTH)}" height="{_n(plan.height)}" fill="{PAPER}"/>',
        *_axes(plan),
    ]
    # The first rows get a colour each, on top of the others, which are grey.
    for row in sensitivity.rows[len(COLOURS) :]:
        parts += _curve(plan, row, MUTED, 0.75)
    for row, colour in zip(sensitivity.rows, COLOURS, strict=False):
        parts += _curve(plan, row, colour, 2)
    for row in sensitivity.rows:
        parts += _words(plan, row)
    return "\n".join([*parts, "</svg>"]) + "\n"


class _Plan:
    """The layout of the plot: x of the settings, y of a value, and labels, moved so that none overlap."""

    def __init__(self, sensitivity: Sensitivity) -> None:
        self.settings, self.rows, self.rank = sensitivity.settings, sensitivity.rows, sensitivity.position
        self.average = sensitivity.average
        self.x = _across(self.settings)
        self.names = {row: wrapped(row) for row in self.rows}
        heights = [LINE * len(lines) + 3 for lines in self.names.values()]
        self.bottom = TOP + max(250.0, sum(heights), PLACE_LINE * len(self.rows))
        self.height = self.bottom + FOOT
        low, high = min(self.average.values()), max(self.average.values())
        margin = max(0.04 * (high - low), 0.05)  # wide enough that ticks of two decimals differ
        self.low: float = low - margin
        self.high: float = high + margin
        last = self.settings[-1]
        ends = [self.y(self.average[last, row]) for row in self.rows]
        self.label = dict(zip(self.rows, spread_out(ends, heights, TOP, self.bottom), strict=True))
        self.number: dict[tuple[str, str], float] = {}
        for setting in self.settings:
            at = [self.y(self.average[setting, row]) for row in self.rows]
            moved = spread_out(at, [PLACE_LINE] * len(at), TOP, self.bottom)
            self.number.update({(setting, row): y for row, y in zip(self.rows, moved, strict=True)})

    def y(self, value: float) -> float:
        return self.bottom - (value - self.low) / (self.high - self.low) * (self.bottom - TOP)


def _across(settings: Sequence[str]) -> dict[str, float]:
    """Return setting -> x, with a gap where the metric changes."""
    x, at, before = {}, LEFT + 6, ""
    for setting in settings:
        metric = setting.split()[-1]
        at += GAP if before and metric != before else 0
        x[setting], before = at, metric
        at += STEP
    return x


def spread_out(positions: Sequence[float], heights: Sequence[float], top: float, bottom: float) -> list[float]:
    """Return the centres of labels of these heights, as near to `positions` (least squares) as possible without overlap.

    They lie between `top` and `bottom` if they fit; labels of equal positions keep their order.
    """
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    # With the heights of the labels above subtracted, upper edges need only be in ascending order: isotonic regression.
    above, edges = 0.0, []
    for i in order:
        edges.append(positions[i] - heights[i] / 2 - above)
        above += heights[i]
    blocks: list[tuple[float, int]] = []
    for edge in edges:
        mean, count = edge, 1
        while blocks and blocks[-1][0] > mean:
            earlier, size = blocks.pop()
            mean, count = (earlier * size + mean * count) / (size + count), size + count
        blocks.append((mean, count))
    free = [max(top, min(mean, bottom - above)) for mean, count in blocks for _ in range(count)]
    centres, above = [0.0] * len(positions), 0.0
    for i, edge in zip(order, free, strict=True):
        centres[i] = edge + above + heights[i] / 2
        above += heights[i]
    return centres


def wrapped(name: str) -> list[str]:
    """Return a name on one or two lines of at most CHARACTERS; a second line that is too long loses its middle."""
    name = " ".join(name.split())
    if len(name) <= CHARACTERS:
        return [name]
    breaks = [at.end() for at in re.finditer(r"[ \-_/:,]", name[: CHARACTERS + 1]) if at.end() > CHARACTERS // 3]
    spaces = [at for at in breaks if name[at - 1] == " " and len(name) - at <= CHARACTERS]
    at = spaces[-1] if spaces else breaks[-1] if breaks else CHARACTERS
    first, rest = name[:at].strip(), name[at:].strip()
    if len(rest) > CHARACTERS:
        rest = f"{rest[: CHARACTERS // 2 - 1]}…{rest[-(CHARACTERS // 2) :]}"
    return [first, rest] if rest else [first]


def _axes(plan: _Plan) -> list[str]:
    left, right = plan.x[plan.settings[0]], plan.x[plan.settings[-1]]
    parts = [f'<text x="{_n(LEFT - 10)}" y="{_n(TOP - 12)}" font-size="{LABEL}" font-weight="600" text-anchor="end">'
             "Avg</text>"]
    for tick in ticks(plan.low, plan.high):
        y = plan.y(tick)
        parts.append(f'<line x1="{_n(LEFT - 6)}" x2="{_n(right)}" y1="{_n(y)}" y2="{_n(y)}" stroke="currentColor" '
                     'stroke-opacity="0.15"/>')
        parts.append(f'<text x="{_n(LEFT - 10)}" y="{_n(y + 4)}" font-size="{LABEL}" text-anchor="end">{_n(tick)}</text>')
    groups: dict[str, list[float]] = {}
    for setting, x in plan.x.items():
        how, metric = setting.rsplit(" ", 1)
        groups.setdefault(metric, []).append(x)
        parts.append(f'<line x1="{_n(x)}" x2="{_n(x)}" y1="{_n(TOP)}" y2="{_n(plan.bottom)}" stroke="currentColor" '
                     'stroke-opacity="0.3"/>')
        parts.append(f'<text x="{_n(x)}" y="{_n(plan.bottom + 18)}" font-size="{LABEL}" text-anchor="middle">'
                     f"{_text(how)}</text>")
    for metric, xs in groups.items():
        middle = max((xs[0] + xs[-1]) / 2, left)
        parts.append(f'<text x="{_n(middle)}" y="{_n(plan.bottom + 36)}" font-size="{LABEL}" font-weight="600" '
                     f'text-anchor="middle">{_text(metric)}</text>')
    return parts


def _curve(plan: _Plan, row: str, colour: str, thickness: float) -> list[str]:
    """Return the SVG of a row's line, its points, and a leader to its label, which may have been moved."""
    stroke = f'stroke="{colour}"'
    at = [(plan.x[setting], plan.y(plan.average[setting, row])) for setting in plan.settings]
    end, y = at[-1]
    points = " ".join(f"{_n(x)},{_n(y)}" for x, y in at)
    dots = [f'<circle cx="{_n(x)}" cy="{_n(y)}" r="{_n(1.5 * thickness)}" fill="{colour}"/>' for x, y in at]
    return [f'<g stroke-width="{_n(thickness)}"><title>{_text(row)}</title>',
            f'<polyline points="{points}" fill="none" {stroke}/>', *dots,
            f'<line x1="{_n(end + 14)}" y1="{_n(y)}" x2="{_n(end + 33)}" y2="{_n(plan.label[row])}" {stroke}/></g>']


def _words(plan: _Plan, row: str) -> list[str]:
    """Return the SVG of a row's ranks along its line, and of its name at the end."""
    parts = []
    for setting, x in plan.x.items():
        parts.append(f'<text class="place" x="{_n(x + 5)}" y="{_n(plan.number[setting, row] + 3.5)}" font-size="{PLACE}" '
                     f'stroke="{PAPER}" stroke-width="3" stroke-linejoin="round" paint-order="stroke">'
                     f"{plan.rank[setting, row]}</text>")
    lines = plan.names[row]
    for number, line in enumerate(lines):
        y = plan.label[row] + LINE * (number - (len(lines) - 1) / 2) + 4
        x = plan.x[plan.settings[-1]] + 37
        parts.append(f'<text class="name" x="{_n(x)}" y="{_n(y)}" font-size="{LABEL}">{_text(line)}</text>')
    return parts


def ticks(low: float, high: float) -> list[float]:
    """Return 3 to 8 round numbers from low to high, whose distance is 1, 2 or 5 times a power of ten."""
    step = 10.0 ** math.floor(math.log10((high - low) / 3))
    step *= next((factor for factor in (5, 2) if (high - low) / (step * factor) >= 3), 1)
    return [round(number * step, 6) for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _described(sensitivity: Sensitivity) -> str:
    parts, rank = [], sensitivity.position
    for setting in sensitivity.settings:
        ordered = sorted(sensitivity.rows, key=lambda row: rank[setting, row])
        listed = ", ".join(f"{rank[setting, row]} {row} {sensitivity.average[setting, row]:.2f}" for row in ordered)
        parts.append(f"{setting}: {listed}.")
    return " ".join(parts)


def _n(number: float) -> str:
    """Return a coordinate as text, with at most two decimals and never -0."""
    return f"{round(number, 2) + 0.0:.2f}".rstrip("0").rstrip(".")


def _text(text: str) -> str:
    # "=" is escaped, too, so that no name looks like an attribute in a search of the picture for event handlers.
    return escape(_NO_XML.sub("\ufffd", text), {"=": "&#61;"})
