"""The page of a comparison that one can hand on: one HTML file, which loads nothing."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from html import escape
from itertools import pairwise
from pathlib import Path

import numpy as np

from stsbench.display.table import Table, html_lines
from stsbench.encoders.base import fingerprint_of
from stsbench.extensions.parity.measures import turned
from stsbench.extensions.parity.result import Parity, Side
from stsbench.files import atomic_write

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#1b1f24;background:#fff}"
    "h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}table{border-collapse:collapse;margin:.5rem 0;font-size:.9rem}"
    "caption{font-weight:600;padding:.3rem 0}td,th{border-bottom:1px solid #d0d7de;padding:.25rem .7rem;"
    "vertical-align:top;overflow-wrap:anywhere}"
    "td:first-child{min-width:7rem}.verdict{padding:.7rem 1rem;border-left:.4rem solid;background:#f6f8fa}"
    ".equal{border-color:#1a7f37}.different{border-color:#b3261e}svg{max-width:100%}.small{color:#57606a;font-size:.85rem}"
)
_EDGES = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # of the distances of directions
_WIDTH, _ROW, _LEFT = 640, 24, 150


def write_page(result: Parity, path: Path) -> None:
    """Write the page of a comparison."""
    with atomic_write(path) as stream:
        stream.write(page(result))


def page(result: Parity) -> str:
    """The page as HTML: verdict, causes, distances, worst texts, and what both sides are."""
    names = " and ".join(escape(side.name) for side in result.sides)
    colour = "equal" if result.equal else "different"
    parts = [f"<h1>{names}: {escape(result.verdict)}</h1>",
             f'<div class="verdict {colour}">{html_lines(result.lines())}</div>']
    if len(result.cosines):
        parts += ["<h2>How far apart</h2>", _histogram(result)]
        parts += [table.html() for table in result.distance_tables()]
    if result.scores:
        parts += ["<h2>What it costs</h2>", result.score_table().html()]
    parts += ["<h2>Both sides</h2>", _sides(*result.sides).html()]
    if result.explanation is not None:
        tried = "".join(f"<li>{escape(words)}</li>" for words in result.explanation.tried)
        parts.append(f"<h2>What was tried on A</h2><ul class='small'>{tried}</ul>")
    when = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, stsbench parity; texts: {escape(result.probe.source)}, "
    parts.append(f"<p class='small'>{when}sha256 {result.probe.digest}</p>")
    head = f"<meta charset='utf-8'><meta name='viewport' content='width=device-width'><title>{names}</title>"
    return f"<!doctype html><html lang='en'><head>{head}<style>{_STYLE}</style></head><body>{''.join(parts)}</body></html>\n"


def _histogram(result: Parity) -> str:
    """How many texts lie how far apart, as bars; the line is the tolerance."""
    distance = turned(result.a, result.b)
    names = [f"up to {_EDGES[0]:g}", *(f"{low:g} to {high:g}" for low, high in pairwise(_EDGES)),
             f"over {_EDGES[-1]:g}", "not finite"]
    bins = np.where(np.isfinite(distance), np.searchsorted(_EDGES, distance), len(names) - 1)
    counts = np.bincount(bins, minlength=len(names))
    most, rows = max(int(counts.max()), 1), [i for i in range(len(names)) if i < len(names) - 1 or counts[i]]
    bars = "".join(
        f"<text x='{_LEFT - 8}' y='{line * _ROW + 16}' text-anchor='end'>{names[i]}</text>"
        f"<rect x='{_LEFT}' y='{line * _ROW + 4}' width='{(_WIDTH - _LEFT - 50) * counts[i] / most:.1f}' height='{_ROW - 8}'"
        f" fill='{'#1a7f37' if i < len(_EDGES) and _EDGES[i] <= result.level * 1.001 else '#b3261e'}'/>"
        f"<text x='{_LEFT + 6 + (_WIDTH - _LEFT - 50) * counts[i] / most:.1f}' y='{line * _ROW + 16}'>{counts[i]}</text>"
        for line, i in enumerate(rows)
    )
    what = (f"Texts by the distance of the two directions, sqrt(2 - 2 cos); up to {result.level:g} counts as equal "
            f"({result.tolerance}'s rounding).")
    return (f"<p class='small'>{what}</p><svg viewBox='0 0 {_WIDTH} {len(rows) * _ROW + 4}' width='{_WIDTH}' role='img' "
            f"font-size='13' font-family='system-ui,sans-serif'>{bars}</svg>")


def _sides(a: Side, b: Side) -> Table:
    """Every field of the two specs, and the libraries."""
    fields = [asdict(side.spec) for side in (a, b)]
    specs = [{**spec, **spec["options"], "fingerprint": fingerprint_of(spec)} for spec in fields]
    for spec, side in zip(specs, (a, b), strict=True):
        spec.pop("options")
        spec |= {"dimension": side.dimension, "run by": side.engine, **side.libraries}
    keys = dict.fromkeys([*specs[0], *specs[1]])
    cells = [[key, *(_value(spec.get(key)) for spec in specs)] for key in keys
             if any(spec.get(key) not in (None, "", []) for spec in specs)]
    return Table.of("all that decides their vectors", ["", "A", "B"], cells)


def _value(value: object) -> str:
    if value is None or value == "":
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
