"""Reads annotators' labels: a column each, a list in one column, long form, or best-worst votes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from stsbench.data.own.table import column_names, is_number, named_columns
from stsbench.errors import DataError
from stsbench.evaluation.records import ScoreRow
from stsbench.extensions.ceiling.agreement import Ceiling, Floats, ceiling_of_ratings, ceiling_of_votes

FIGURES = Path(__file__).with_name("figures.yaml")
LABELS = "labels"  # the usual column, whose cells hold several


def measure_ceiling(
    path: str | Path, labels: Sequence[str] = (LABELS,), *, item: str | None = None, votes: Sequence[str] = (),
    best: str = "best", worst: str = "worst", seed: int = 0,
) -> Ceiling:
    """Return what a perfect model is expected to score against the mean of raw labels in a table.

    labels: a column for each annotator, or one whose cells hold several (1,2,2 or [1, 2, 2]). item: the table is in long
    form, a row for each label of the item that this column names. votes: best-worst votes, the columns of the items shown;
    best, worst: the columns that hold a position from 1, or the item itself. Raises DataError, one line that names file and
    row.

    >>> from stsbench.extensions.ceiling.labels import measure_ceiling
    >>> rows = [f"{i % 6},{i % 6 + i % 2},{i % 6}" for i in range(60)]
    >>> _ = open("raw.csv", "w").write("\\n".join(["a,b,c", *rows]))
    >>> round(measure_ceiling("raw.csv", ["a", "b", "c"]).best, 1) > 95
    True
    """
    path = Path(path)
    if item and (votes or len(labels) > 1):
        raise DataError(f"{path}: --item is of long form, with one column of --labels and without --votes")
    try:
        if votes:
            return ceiling_of_votes(path.name, _votes(path, votes, best, worst), seed)
        return ceiling_of_ratings(path.name, _long(path, labels[0], item) if item else _wide(path, labels), seed)
    except ValueError as error:
        raise DataError(f"{path}: {error}") from error


def remarks(protocol: str, source: Path | None, set_id: str, scores: Sequence[ScoreRow]) -> list[str]:
    """Return a sentence for a file of scored pairs with a column of raw labels, and for each part of a set whose ceiling is
    known, and whether a score is above what the labels allow; [] elsewhere."""
    if protocol != "sts":
        return []
    if figures := known_ceilings().get(set_id):
        parts = {part: [row for row in scores if row.subset == part] for part in figures}
        return [_remark(part, *figures[part], rows) for part, rows in parts.items() if rows]
    try:
        if source is None or not source.is_file() or LABELS not in column_names(source):
            return []
        ceiling = measure_ceiling(source)
    except DataError:
        return []
    return [_remark(source.name, ceiling.best, ceiling.low, ceiling.high, [row for row in scores if row.subset is None])]


@cache
def known_ceilings() -> dict[str, dict[str, tuple[float, float, float]]]:
    """Return set -> its part -> best, low, high: figures of `measure_ceiling` on raw labels that a set's authors published,
    where the set itself holds their means alone."""
    known: dict[str, dict[str, tuple[float, float, float]]] = yaml.safe_load(FIGURES.read_text("utf-8"))
    return known


def _remark(name: str, best: float, low: float, high: float, scores: Sequence[ScoreRow]) -> str:
    above = [row for row in scores if row.metric == "spearman" and row.value > high][:1]
    doubt = "".join(f"; {row.value:.2f} is above it: were these labels trained on?" for row in above)
    return (f"{name}: a perfect model is expected to score {best:.1f} ({low:.1f} to {high:.1f}) against these labels, by "
            f"how far their annotators agree{doubt}")


def _wide(path: Path, names: Sequence[str]) -> Floats:
    rows = [[value for name in names for value in _numbers(row[name], location, name, len(names) == 1)]
            for location, row in named_columns(path, names)]
    return _matrix(rows)


def _long(path: Path, label: str, item: str) -> Floats:
    rows: dict[str, list[float]] = {}
    for location, row in named_columns(path, [item, label]):
        rows.setdefault(str(row[item]), []).extend(_numbers(row[label], location, label, False))
    return _matrix(list(rows.values()))


def _matrix(rows: Sequence[Sequence[float]]) -> Floats:
    """Return (n, k) labels, NaN behind those of items with fewer."""
    matrix = np.full((len(rows), max(map(len, rows), default=0)), np.nan)
    for row, values in zip(matrix, rows, strict=True):
        row[: len(values)] = values
    return matrix


def _numbers(cell: Any, location: str, name: str, several: bool) -> list[float]:
    """Return the labels of a cell: one, of a list several; an empty cell has none."""
    if isinstance(cell, str) and several:
        try:
            cell = json.loads(cell) if cell.strip().startswith("[") else cell.split(",")
        except ValueError as error:
            raise DataError(f"{location}: {name} is no list of numbers: {cell!r}") from error
    values = cell if isinstance(cell, list) else [cell]
    if wrong := [value for value in values if value not in (None, "") and not is_number(str(value))]:
        raise DataError(f"{location}: {name} must be a number, not {wrong[0]!r}")
    return [float(value) for value in values if value not in (None, "")]


def _votes(path: Path, names: Sequence[str], best: str, worst: str) -> NDArray[np.intp]:
    number: dict[str, int] = {}
    rows = []
    for location, row in named_columns(path, [*names, best, worst]):
        shown = [str(row[name]) for name in names]
        chosen = [_chosen(str(row[name]), shown, location, name) for name in (best, worst)]
        rows.append([*(number.setdefault(text, len(number)) for text in shown), *(number[text] for text in chosen)])
    return np.array(rows, dtype=np.intp).reshape(-1, len(names) + 2)


def _chosen(cell: str, items: Sequence[str], location: str, name: str) -> str:
    """Return the item that a vote chose, by its position from 1 or itself."""
    if cell in items:
        return cell
    if cell.strip().isdecimal() and 1 <= int(cell) <= len(items):
        return items[int(cell) - 1]
    raise DataError(f"{location}: {name} must be a position from 1 to {len(items)}, or one of the items, not {cell[:40]!r}")
