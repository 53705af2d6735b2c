"""The result of `parity`: the verdict, the distances of the vectors, the causes, and an HTML page of them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stsbench.display.table import Column, Document, Estimate, Table, html_lines
from stsbench.display.tabular import Tabular, arrow_table
from stsbench.encoders.base import EncoderSpec, mapping_fingerprint
from stsbench.extensions.parity.explain import Explanation
from stsbench.extensions.parity.measures import EQUIVALENT, QUANTILES, Floats, Scores, cosines, lengths, turned
from stsbench.extensions.parity.texts import ProbeTexts
from stsbench.files import atomic_write

if TYPE_CHECKING:
    import pyarrow as pa

EQUAL, SCALED, DIFFERENT, WIDTHS = "equal", "equal up to scale", "different", "of different dimensions"
WORST = 10
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#1b1f24;background:#fff}"
    "h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}table{border-collapse:collapse;margin:.5rem 0;font-size:.9rem}"
    "caption{font-weight:600;padding:.3rem 0}td,th{border-bottom:1px solid #d0d7de;padding:.25rem .7rem;"
    "vertical-align:top;overflow-wrap:anywhere}"
    "td:first-child{min-width:7rem}.verdict{padding:.7rem 1rem;border-left:.4rem solid;background:#f6f8fa}"
    ".equal{border-color:#1a7f37}.different{border-color:#b3261e}svg{max-width:100%}.small{color:#57606a;font-size:.85rem}"
)
_EDGES = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # bounds for the distances of directions
_WIDTH, _ROW, _LEFT = 640, 24, 150


@dataclass(frozen=True)
class Side:
    """One of the two encoders. words: description; spec: all that decides its vectors; engine, libraries: what ran it."""

    name: str
    words: str
    spec: EncoderSpec
    dimension: int | None
    engine: str
    libraries: dict[str, str]
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the side as plain data for JSON."""
        return {"name": self.name, "fingerprint": self.spec.fingerprint(), "dimension": self.dimension,
                "engine": self.engine, "spec": asdict(self.spec), "libraries": self.libraries, "notes": list(self.notes)}


@dataclass(frozen=True, eq=False)
class Parity(Tabular):
    """The comparison of two encoders on the same texts. a, b: float64 (n, d) and (n, k) vectors; level: the tolerance as a
    distance; explanation: None where none was looked for."""

    sides: tuple[Side, Side]
    probe: ProbeTexts
    tolerance: str
    level: float
    verdict: str
    a: Floats
    b: Floats
    explanation: Explanation | None = None
    scores: tuple[Scores, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Return whether B can replace A: the vectors are equal, or scores were measured and all are equivalent."""
        if self.verdict == EQUAL:
            return True
        return bool(self.scores) and all(row.verdict == EQUIVALENT for row in self.scores)

    @property
    def cosines(self) -> Floats:
        """Return (n,) cosines of A's and B's vectors; NaN where one is not finite; (0,) where the dimensions differ."""
        return cosines(self.a, self.b) if self.a.shape == self.b.shape else np.zeros(0)

    @property
    def largest(self) -> float | None:
        """Return the largest absolute difference of two components; None where the dimensions differ."""
        if self.a.shape != self.b.shape:
            return None
        gaps = np.abs(self.a - self.b)
        return float(gaps[np.isfinite(gaps)].max(initial=0))

    @property
    def causes(self) -> tuple[str, ...]:
        """Return in words why B differs from A; () where nothing that was tried explains it."""
        return () if self.explanation is None else tuple(map(str, self.explanation.causes))

    def __repr__(self) -> str:
        return f"<Parity: {'; '.join([self.verdict, *self.causes])}>"

    def document(self) -> Document:
        """Return both sides, tables of the farthest texts and of the scores, and the verdict with its causes."""
        of_a, of_b, *verdict = self.lines()
        return Document([*self.distance_tables(), *([self.score_table()] if self.scores else [])], [of_a, of_b], verdict)

    def to_arrow(self) -> pa.Table:
        """Return a row for each text: its kind, cosine, and the two lengths."""
        return arrow_table(self._rows(range(len(self.probe.texts))))

    def lines(self) -> list[str]:
        """Return the report as lines: both sides, the verdict, its causes, notes."""
        listed = [f"A: {self.sides[0].words}", f"B: {self.sides[1].words}", f"{self.verdict}: {self._measured()}"]
        if self.explanation is not None:
            listed += [f"why: {cause}" for cause in self.causes] or [self._unexplained(self.explanation)]
            if self.causes and self.explanation.residual is not None:
                listed.append(f"with that, no direction is farther from B's than {self.explanation.residual:.2g}")
        return [*listed, *(f"note: {note}" for note in self.notes)]

    def _measured(self) -> str:
        texts, size = f"on {self.probe.source}", f"{self.tolerance}'s tolerance, {self.level:g}"
        if not len(self.cosines):
            return f"{texts}, A has {self.a.shape[1]} numbers and B {self.b.shape[1]}"
        values = self.cosines[np.isfinite(self.cosines)]
        off = int((turned(self.a, self.b) > self.level).sum())
        far = f"{off} of {len(self.probe.texts)} beyond {size}" if off else f"all within {size}"
        if not len(values):
            return f"{texts}, none of which has a finite vector in both"
        return (f"{texts}, the smallest cosine is {_cosine(values.min())}, the mean {_cosine(values.mean())}, the largest "
                f"difference of a number {self.largest:.2g}; {far}")

    def _unexplained(self, explanation: Explanation) -> str:
        near = ""
        if explanation.nearest is not None:
            words, share = explanation.nearest
            near = f" Nearest, with {100 * share:.4g} % of the squared distances: {words}."
        return (f"why: nothing that was tried explains it ({len(explanation.tried)} changes of A, and two at a time).{near} "
                "What is left: other weights, such as another revision's, or what was not tried")

    def distance_tables(self) -> list[Table]:
        """Return a table of how many texts of each kind differ, and one of the texts that are farthest apart; [] where the
        vectors are equal or have no cosines."""
        if self.verdict == EQUAL or not len(self.cosines):
            return []
        off, kinds = turned(self.a, self.b) > self.level, np.array(self.probe.kinds)
        rows = [(kind, kinds == kind) for kind in dict.fromkeys(self.probe.kinds)]
        worst = self._rows(self.worst())
        norms = {f"norm in {side}": [row[key] for row in worst] for side, key in (("A", "length_a"), ("B", "length_b"))}
        same = np.allclose(norms["norm in A"], norms["norm in B"], rtol=self.level)
        return [
            Table.from_rows("by kind of text", ["kind of text", "texts", "beyond the tolerance", "smallest cosine"], [
                [kind, int(its.sum()), int(off[its].sum()), _least(self.cosines[its])] for kind, its in rows
            ]),
            Table("the texts that are farthest apart", [
                Column("text", [repr(text) if len(text := row["text"]) <= 30 else f"{text[:27]!r}..." for row in worst]),
                Column("kind", [row["kind"] for row in worst]),
                Column("cosine", ["not finite" if row["cosine"] is None else _cosine(row["cosine"]) for row in worst]),
                *(Column(name, [f"{norm:.4g}" for norm in its]) for name, its in norms.items() if not same),
            ]),
        ]

    def worst(self, count: int = WORST) -> list[int]:
        """Return the indices of the `count` texts whose vectors are farthest apart, the farthest first."""
        if not len(self.cosines):
            return []
        distance = turned(self.a, self.b)
        return [int(i) for i in np.argsort(-distance, kind="stable")[:count] if distance[i] > 0]

    def score_table(self) -> Table:
        """Return a table of both scores, their difference and its verdict for each task."""
        rows, gaps = self.scores, [row.difference for row in self.scores]
        return Table("scores x 100", [
            Column("task", [row.task for row in rows]), Column("protocol", [row.protocol for row in rows], detail=1),
            Column("metric", [row.metric for row in rows], detail=1), Column("n", [row.n for row in rows], detail=1),
            Column("A", [row.a for row in rows]), Column("B", [row.b for row in rows]),
            Column("B - A", [Estimate(gap.value, gap.low, gap.high) for gap in gaps], 3, signed=True),
            Column("verdict", [f"{row.verdict} (margin {row.margin:g})" for row in rows]),
        ])

    def as_json(self) -> dict[str, Any]:
        """Return what --json writes, as plain data."""
        finite = self.cosines[np.isfinite(self.cosines)]
        quantiles = {f"{q:g}": float(np.quantile(finite, q)) for q in QUANTILES} if len(finite) else {}
        why = self.explanation
        return {
            "verdict": self.verdict, "equal": self.equal, "a": self.sides[0].as_json(), "b": self.sides[1].as_json(),
            "tolerance": {"name": self.tolerance, "value": self.level},
            "texts": {"source": self.probe.source, "count": len(self.probe.texts), "sha256": self.probe.digest},
            "cosines": {"quantiles": quantiles, "mean": float(finite.mean()) if len(finite) else None,
                        "not_finite": len(self.cosines) - len(finite)},
            "largest_difference": self.largest, "lengths": {"a": _spread(self.a), "b": _spread(self.b)},
            "causes": [asdict(cause) for cause in why.causes] if why is not None else None,
            "residual": why.residual if why is not None else None, "tried": list(why.tried) if why is not None else None,
            "worst": self._rows(self.worst()), "scores": [_score(row) for row in self.scores], "notes": list(self.notes),
        }

    def _rows(self, numbers: Any) -> list[dict[str, Any]]:
        size_a, size_b, cosine = lengths(self.a), lengths(self.b), self.cosines
        return [
            {"text": self.probe.texts[i], "kind": self.probe.kinds[i],
             "cosine": float(cosine[i]) if len(cosine) and np.isfinite(cosine[i]) else None,
             "length_a": float(size_a[i]), "length_b": float(size_b[i])} for i in numbers
        ]


def _least(values: Floats) -> str:
    return "none finite" if np.isnan(values).all() else _cosine(float(np.nanmin(values)))


def _cosine(value: float) -> str:
    """Return a cosine with enough digits to see its difference from 1."""
    off = 1 - value
    return f"{value:.4f}" if off > 1e-3 else f"1 - {off:.1e}" if off > 1e-15 else "1"


def _spread(vectors: Floats) -> dict[str, float | None]:
    size = lengths(vectors)
    size = size[np.isfinite(size)]
    parts = {"min": size.min(), "median": np.median(size), "max": size.max()} if len(size) else {}
    return {name: float(parts[name]) if name in parts else None for name in ("min", "median", "max")}


def _score(row: Scores) -> dict[str, Any]:
    return {**{key: value for key, value in asdict(row).items() if key != "difference"}, "difference": row.difference.value,
            "low": row.difference.low, "high": row.difference.high, "p": row.difference.p, "verdict": row.verdict}


def write_page(result: Parity, path: Path) -> None:
    """Write the HTML page of a comparison to a file."""
    with atomic_write(path) as stream:
        stream.write(page(result))


def page(result: Parity) -> str:
    """Return the comparison as an HTML page: verdict, causes, distances, worst texts, and both encoders' settings."""
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
    """Return an SVG histogram of the distances, in green within the tolerance and in red beyond it."""
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
    """Return a table of all fields of the two specs, and the libraries' versions."""
    fields = [asdict(side.spec) for side in (a, b)]
    specs = [{**spec, **spec["options"], "fingerprint": mapping_fingerprint(spec)} for spec in fields]
    for spec, side in zip(specs, (a, b), strict=True):
        spec.pop("options")
        spec |= {"dimension": side.dimension, "run by": side.engine, **side.libraries}
    keys = dict.fromkeys([*specs[0], *specs[1]])
    cells = [[key, *(_value(spec.get(key)) for spec in specs)] for key in keys
             if any(spec.get(key) not in (None, "", []) for spec in specs)]
    return Table.from_rows("all that decides their vectors", ["", "A", "B"], cells)


def _value(value: object) -> str:
    if value is None or value == "":
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
